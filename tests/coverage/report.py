#!/usr/bin/env python3
"""Prints the line coverage of each folder of clientlib and server by the C++ tests. Exit code 1: a folder is below its limit.

    ./run test coverage                        builds and runs the tests first
    tests/coverage/report.py [--files FOLDER]  again, of the last run; --files: each file of a folder"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict

from llvm import ALL_LINES, BUILD, Lines, lines_of

# The least part of each folder's lines that tests must reach. If one of these folders is wrong, batches are lost or wrong.
LEAST = {"clientlib/ring": 0.9, "clientlib/wire": 0.9, "server/decode": 0.9, "server/publish": 0.9, "server/store": 0.9}


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/coverage/report.py")
    parser.add_argument("--files", metavar="FOLDER", help="the files of this folder instead, e.g. server/store")
    arguments = parser.parse_args()
    files = lines_of(sorted((BUILD / "profiles").glob("*.profraw")), [ALL_LINES])
    folders: dict[str, Lines] = defaultdict(Lines)
    for path, lines in files.items():
        top, name, *_ = path.split("/")
        if top not in ("clientlib", "server"):
            continue
        if arguments.files is None:
            folders[f"{top}/{name}"] += lines
        elif path.startswith(arguments.files.rstrip("/") + "/"):
            folders[path] += lines
    print("| folder | lines | reached | at least |\n|---|---:|---:|---:|")
    for name, lines in [*sorted(folders.items()), ("all", sum(folders.values(), Lines()))]:
        limit = f"{LEAST[name]:.0%}" if name in LEAST else ""
        print(f"| `{name}` | {lines.count:,} | {lines.share:.1%} | {limit} |")
    below = [name for name, limit in LEAST.items() if arguments.files is None and folders[name].share < limit]
    for name in below:
        print(f"{name}: {folders[name].share:.1%} of its lines are reached, the limit is {LEAST[name]:.0%}; tests/coverage/report.py --files {name} shows where they are missing")
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
