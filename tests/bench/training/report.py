"""Tables of the results of the training examples and their `DataLoader` versions."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

from .real_sets import DATA_USED

LOADERS = ("Headrace", "DataLoader")
Lines = dict[str, list[dict[str, Any]]]  # by loader, one per seed


@dataclass(frozen=True)
class Case:
    program: str
    arguments: tuple[str, ...]
    ranks: int = 1
    most_seeds: int = 1_000_000

    @property
    def name(self) -> str:
        return " ".join((self.program, *self.arguments)) + (f", {self.ranks} ranks" if self.ranks > 1 else "")


def result(lines: list[dict[str, Any]]) -> str:
    """Mean and range over the seeds, of the last epoch."""
    metric, unit, factor = ("psnr", " dB", 1) if "psnr" in lines[0]["last"] else ("accuracy", "%", 100)
    values = [factor * line["last"][metric] for line in lines]
    spread = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{unit}{spread}"


def chance(last: dict[str, Any]) -> str:
    """The uncertainty of an accuracy due to the choice of the test images."""
    error = 100 * math.sqrt(last["accuracy"] * (1 - last["accuracy"]) / last["test_samples"])
    return f"; an accuracy measured on so few samples has a standard error of {error:.2f} percentage points"


def row(loader: str, lines: list[dict[str, Any]]) -> str:
    seconds = statistics.median(line["seconds_per_epoch"] for line in lines)
    share = statistics.median(line["wait_share"] for line in lines)
    cpu = statistics.median(line["cpu"] for line in lines)
    return f"| {loader} | {seconds:.2f} | {100 * share:.1f}% | {result(lines)} | {cpu:.0f} |"


def section(case: Case, lines: Lines) -> str:
    last = next(iter(lines.values()))[0]["last"]
    counts = f"{last['samples'] * case.ranks:,} samples an epoch, {last['test_samples']:,} to test"
    if "bicubic" in last:
        counts += f"; bicubic alone: {last['bicubic']:.2f} dB"
    if "accuracy" in last:
        counts += chance(last)
    seeds = len(next(iter(lines.values())))
    counts += f"; {seeds} seeds" if seeds > 1 else "; one seed"
    head = f"### `{case.name}`\n\n{counts}.\n\n| loader | s per epoch | waiting | test result | CPU s, whole run |\n|---|---:|---:|---|---:|\n"
    return head + "".join(row(loader, lines[loader]) + "\n" for loader in LOADERS if loader in lines)


def markdown(results: dict[Case, Lines], about: dict[str, Any], seconds: float) -> str:
    used = "".join(f"- `{program}`: {DATA_USED[program]}\n" for program in dict.fromkeys(case.program for case in results))
    return f"""# Training with Headrace and with torch's DataLoader

This page compares the training programs of `bindings/examples` with versions of them that use torch's `DataLoader`. The two differ only
in the lines that load data. `cd tests/bench; python -m training DATA --out training/RESULTS.md` makes the tables.

Machine: {about["cores"]} cores of {about["cpu"]}, {about["gpu"] or "no GPU"}. Python {about["python"]}, torch {about["torch"]}, {about["date"]}, Headrace of commit {about["commit"]}.
The loaders ran in turn, for {seconds / 60:.0f} minutes in total. The load average at the end was {about["load"]:.1f}; it includes other work on the machine.
On the CPU each trainer computes on one thread. Each `DataLoader` has two worker processes.

| column | meaning |
|---|---|
| `s per epoch` | seconds per epoch, without the first epoch: the median over the epochs, then over the seeds |
| `waiting` | the share of this time in which the loop waited for its loader |
| `test result` | the result after the last epoch: the mean over the seeds (minimum to maximum) |
| `CPU s, whole run` | user + system time of all processes, including imports and the first epoch |

Data used:

{used}
{chr(10).join(section(case, lines) for case, lines in results.items())}"""
