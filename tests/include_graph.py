#!/usr/bin/env python3
"""Checks what includes what, folder by folder: nothing in a cycle, and in server/ only from rows of the table of server/README.md to rows below them.

Of the Python package: no module imports itself in a circle, not for its types either."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INCLUDE = re.compile(r'^#include "((?:server|clientlib)/[^"]+)"', re.MULTILINE)
ROW = re.compile(r"^\| `([a-z_]+)` \|", re.MULTILINE)


def includes() -> list[tuple[Path, Path]]:
    """(file, included file), relative to the root."""
    files = [path for top in ("server", "clientlib") for path in (ROOT / top).rglob("*") if path.suffix in (".h", ".cpp", ".cu")]
    return [(file.relative_to(ROOT), Path(name)) for file in files for name in INCLUDE.findall(file.read_text())]


def modules() -> dict[str, set[str]]:
    """Module of bindings/headrace -> those that it imports, at its beginning or in a function."""
    files = {path.stem: path for path in (ROOT / "bindings/headrace").glob("*.py")}
    out: dict[str, set[str]] = {}
    for name, path in files.items():
        imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom) and node.level == 1]
        named = {node.module or alias.name for node in imports for alias in node.names}
        out[name] = {module for module in named if module in files and module != name}
    return out


def main() -> int:
    found = includes()
    below: dict[str, set[str]] = defaultdict(set)
    for file, included in found:
        if file.parent != included.parent:
            below[str(file.parent)].add(str(included.parent))
    problems = []
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        problems.append("folders include each other in a cycle: " + " <- ".join(error.args[1]))
    try:
        TopologicalSorter(modules()).prepare()
    except CycleError as error:
        problems.append("modules of bindings/headrace import each other in a cycle: " + " <- ".join(error.args[1]))
    rows = ROW.findall((ROOT / "server/README.md").read_text())
    for file, included in found:
        if file.parts[0] != "server" or included.parts[0] != "server":
            continue
        upper, lower = file.parts[1], included.parts[1]
        if missing := {upper, lower} - set(rows):
            problems.append(f"{file}: the table of server/README.md has no row for {', '.join(sorted(missing))}")
        elif rows.index(upper) > rows.index(lower):
            problems.append(f"{file} includes {included}: {lower} is above {upper} in the table of server/README.md")
    print("\n".join(sorted(set(problems))), end="\n" if problems else "")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
