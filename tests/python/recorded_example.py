"""Runs a training example, and records the batches of its loaders. As one rank of torchrun's job, `recorded_example.py OUT PROGRAM
[ARGUMENT...]` writes the record to OUT/RANK.json."""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import headrace

Seen = dict[str, list[list[list[tuple[int, bool]]]]]
"""For each stream, a list of the epochs that were begun: lists of batches, each with (sample_index, valid) of its rows."""


def run(program: Path, *arguments: str) -> Seen:
    """Runs it in this process, as `python PROGRAM ARGUMENT...` does."""
    seen: Seen = {}

    class Recorded(headrace.Loader):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.epochs = seen.setdefault(options["stream"], [])

        def __iter__(self) -> Iterator[Any]:
            self.epochs.append([])
            for batch in super().__iter__():
                self.epochs[-1].append(list(zip(batch.sample_index.tolist(), batch.valid.tolist(), strict=True)))
                yield batch

    called = mock.patch.object(sys, "argv", [str(program), *arguments])
    found = mock.patch.object(sys, "path", [str(program.parent), *sys.path])
    with called, found, mock.patch.object(headrace, "Loader", Recorded):
        runpy.run_path(str(program), run_name="__main__")
    return seen


if __name__ == "__main__":
    seen = run(Path(sys.argv[2]), *sys.argv[3:])
    (Path(sys.argv[1]) / f"{os.environ['RANK']}.json").write_text(json.dumps(seen))
