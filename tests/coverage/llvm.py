"""Line coverage of programs that the preset `coverage` compiled, by llvm-profdata and llvm-cov."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/coverage"
ALL_LINES = BUILD / "tests/coverage/libheadrace_lines.so"  # all code under test, also what no test calls


@dataclass(frozen=True)
class Lines:
    covered: int = 0
    count: int = 0

    def __add__(self, other: Lines) -> Lines:
        return Lines(self.covered + other.covered, self.count + other.count)

    @property
    def share(self) -> float:
        return self.covered / self.count if self.count else 1.0


def lines_of(profiles: Iterable[Path], objects: Iterable[Path]) -> dict[str, Lines]:
    """By path in the tree: the lines of `objects` that the runs which wrote `profiles` reached."""
    merged = BUILD / "merged.profdata"
    subprocess.run(["llvm-profdata-19", "merge", "-sparse", "-failure-mode=all", "-o", merged, *profiles], check=True)
    named = [argument for each in objects for argument in ("-object", str(each))]
    exported = subprocess.run(["llvm-cov-19", "export", "-summary-only", f"-instr-profile={merged}", *named[1:]], stdout=subprocess.PIPE, check=True)
    found = {}
    for file in json.loads(exported.stdout)["data"][0]["files"]:
        path = Path(file["filename"])
        if path.is_relative_to(ROOT):
            found[str(path.relative_to(ROOT))] = Lines(file["summary"]["lines"]["covered"], file["summary"]["lines"]["count"])
    return found
