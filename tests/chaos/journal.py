"""What a consumer received, as lines of text, and how much of it its checkpoint covers.

    start TIME KEPT              a process began at its checkpoint, which covers the first KEPT batches here; those behind are rolled back
    batch TIME EPOCH NUMBER ROW...     a batch; ROW is SAMPLE=HASH, without the rows that are not valid
    save TIME KEPT               a checkpoint was written
    error TIME CODE MESSAGE      an error of the library, after which the consumer goes on
    end TIME                     it received all that it was told to

TIME is CLOCK_MONOTONIC, which all processes share. consumer.py and consumer.cpp write the same lines.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Received:
    time: float
    epoch: int
    number: int
    rows: str


@dataclass(slots=True)
class Journal:
    """A journal, read. `undone` are the batches that were rolled back, `kept` the others, `arrivals` the times of all of them."""

    kept: list[Received] = field(default_factory=list)
    undone: list[Received] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    errors: list[tuple[float, str]] = field(default_factory=list)
    ended: bool = False

    def add(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        if kind == "batch":
            time, epoch, number, *rows = rest.split(" ", 3)  # a rank's last batch may have no valid row
            self.kept.append(Received(float(time), int(epoch), int(number), "".join(rows)))
            self.arrivals.append(float(time))
        elif kind == "start":
            time, kept = rest.split()
            if int(kept) > len(self.kept):
                raise ValueError(f"a checkpoint covers {kept} batches, and the journal has {len(self.kept)}")
            self.undone += self.kept[int(kept) :]
            del self.kept[int(kept) :]
            self.starts.append(float(time))
        elif kind == "error":
            time, _, said = rest.partition(" ")
            self.errors.append((float(time), said))
        elif kind == "end":
            self.ended = True


def complete_lines(text: str) -> Iterator[str]:
    """The lines that were written whole. A process begins with an empty line, so one that its predecessor left half written has none behind it."""
    for line, following in itertools.pairwise(text.split("\n")):
        if line and not following.startswith("start "):
            yield line


def last_epoch(path: Path) -> int:
    """The epoch of the last batch, without reading the whole file."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - (1 << 16)))
        lines = file.read().decode().split("\n")[1:-1]  # the first may be the end of a line, the last the beginning of one
    return max((int(line.split(" ", 3)[2]) for line in lines if line.startswith("batch ")), default=0)


def read(path: Path) -> Journal:
    journal = Journal()
    for line in complete_lines(path.read_text() if path.exists() else ""):
        journal.add(line)
    return journal
