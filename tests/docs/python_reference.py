"""The reference of the Python package: every public name with its signature and docstring, read by griffe without an import."""

from __future__ import annotations

import re
from pathlib import Path

import griffe

INTRO = """# Python

This page lists the public names of the package `headrace`, with their signatures and docstrings, for programmers who write a trainer.
[The guide](../README.md) explains how they work together. The site generates this page from the source.

```python
import headrace

for image, label in headrace.Loader(stream="train"):
    ...
```
"""
# "name, other    what it means", and lines that continue it.
ENTRY = re.compile(r"(\w[\w, ]*?) {2,}(\S.*)")


def text_of(docstring: str | None) -> str:
    """The docstring as Markdown: paragraphs whose lines are aligned names and meanings become tables."""
    blocks = []
    for block in re.split(r"\n\s*\n", docstring or ""):
        lines = block.split("\n")
        if not ENTRY.fullmatch(lines[0]) or not all(ENTRY.fullmatch(line) or line.startswith("    ") for line in lines):
            blocks.append(block)
            continue
        rows: list[list[str]] = []
        for line in lines:
            if entry := ENTRY.fullmatch(line):
                rows.append([", ".join(f"`{name}`" for name in entry[1].split(", ")), entry[2]])
            else:
                rows[-1][1] += " " + line.strip()
        cells = ["| {} | {} |".format(name, meaning.replace("|", "\\|")) for name, meaning in rows]
        blocks.append("\n".join(["| argument | meaning |", "|---|---|", *cells]))
    return "\n\n".join(blocks)


def parameters(function: griffe.Function) -> str:
    shown, star = [], False
    for parameter in function.parameters:
        if parameter.name == "self":
            continue
        if parameter.kind is griffe.ParameterKind.keyword_only and not star:
            shown.append("*")
            star = True
        star |= parameter.kind is griffe.ParameterKind.var_positional
        prefix = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(parameter.kind, "")
        annotation = f": {parameter.annotation}" if parameter.annotation is not None else ""
        default = f" = {parameter.default}" if parameter.default is not None and not prefix else ""
        shown.append(f"{prefix}{parameter.name}{annotation}{default}")
    line = ", ".join(shown)
    return f"({line})" if len(line) < 80 else "(\n    " + ",\n    ".join(shown) + ",\n)"


def signature(name: str, member: griffe.Object) -> str:
    if isinstance(member, griffe.Function):
        result = f" -> {member.returns}" if member.returns is not None else ""
        return f"{name}{parameters(member)}{result}"
    if isinstance(member, griffe.Class):
        made = member.members.get("__init__")
        return f"class {name}" + (parameters(made) if isinstance(made, griffe.Function) else "")
    annotation = getattr(member, "annotation", None)
    return f"{name}: {annotation}" if annotation is not None else name


def attributes(members: list[griffe.Object]) -> str:
    rows = []
    for member in members:
        annotation = f": {member.annotation}" if getattr(member, "annotation", None) is not None else ""
        meaning = " ".join(member.docstring.value.split()) if member.docstring else ""
        rows.append("| `{}` | {} |".format(f"{member.name}{annotation}".replace("|", "\\|"), meaning.replace("|", "\\|")))
    return "\n".join(["| attribute | |", "|---|---|", *rows])


def entry(name: str, member: griffe.Object, depth: int) -> list[str]:
    text = text_of(member.docstring.value if member.docstring else None)
    parts = [f"{'#' * depth} `{name}`", f"```python\n{signature(name.rpartition('.')[2], member)}\n```", text]
    if isinstance(member, griffe.Class):
        public = [below for below in member.members.values() if isinstance(below, griffe.Object) and not below.name.startswith("_")]
        values = [below for below in public if isinstance(below, griffe.Attribute)]
        if values:
            parts.append(attributes(values))
        for below in public:
            if isinstance(below, griffe.Function) and below.docstring:
                parts += entry(f"{name}.{below.name}", below, depth + 1)
    return [part for part in parts if part]


def page(root: Path) -> str:
    package = griffe.load("headrace", search_paths=[root / "bindings"], resolve_aliases=True)
    parts = [INTRO.rstrip()]
    for name in sorted(package.exports or [], key=lambda name: str(name).lower()):
        member = package[str(name)]
        target = member.final_target if isinstance(member, griffe.Alias) else member
        if isinstance(target, griffe.Module):  # a module with the name of its function, or headrace.errors
            target = target.members.get(str(name), target)
        if isinstance(target, griffe.Module) or str(name).startswith("__"):
            continue
        parts += entry(str(name), target, 2)
    parts += ["## `headrace.errors`", "[Errors](../../clientlib/errors.md) lists the classes of exceptions."]
    return "\n\n".join(parts) + "\n"
