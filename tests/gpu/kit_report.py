"""Writes the report of `kit run`: report.json, report.md and logs.tgz, and as many plots and traces as the report may have."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MOST_FILES, MOST_BYTES = 8, 16_000_000  # files in --out, and bytes of a plot or trace
Figure = dict[str, Any]


@dataclass(frozen=True)
class Goal:
    """A goal: `value` of each figure that `of` selects, in `unit`, is at least (or at most) `bound`. The worst figure counts."""

    what: str
    stage: str
    of: Callable[[Figure], bool]
    value: str
    bound: float
    at_least: bool = True
    unit: str = ""

    def measured(self, figures: Iterable[Figure]) -> tuple[str, str]:
        """The worst figure, and whether it meets the goal."""
        found = [figure[self.value] for figure in figures if self.of(figure) and self.value in figure]
        if not found:
            return "not run yet", ""
        worst = min(found) if self.at_least else max(found)
        met = worst >= self.bound if self.at_least else worst <= self.bound
        return f"{worst:.3g}{self.unit}", "met" if met else "missed"


def of(figure: str, **parts: str) -> Callable[[Figure], bool]:
    """Selects figures of that name whose members begin with the given texts, except those of the step `ncu`, which include the profiler's overhead."""
    return lambda found: found["figure"] == figure and found.get("step") != "ncu" and all(str(found.get(name, "")).startswith(part) for name, part in parts.items())


def copies(least_kb: float, most_kb: float) -> Callable[[Figure], bool]:
    return lambda found: found["figure"] == "host to device" and least_kb <= found["batch_kb"] < most_kb


RESIDENT = "epoch of a dataset in GPU memory"  # a figure of residence_bench.py
GOALS = (
    Goal("host to device, batches of 16 MB and more: speed as a fraction of cudaMemcpyAsync from pinned memory", "copy", copies(16 << 10, 1e9), "share_of_pinned", 0.95),
    Goal("host to device, batches of 4 MB: speed as a fraction of cudaMemcpyAsync from pinned memory", "copy", copies(4 << 10, 16 << 10), "share_of_pinned", 0.85),
    Goal(
        "host to device, batches below 4 MB: time relative to cudaMemcpyAsync from pageable memory, which is how torch copies a plain tensor",
        "copy",
        copies(0, 4 << 10),
        "over_pageable",
        1.0,
        at_least=False,
    ),
    Goal("copies to the device: fraction of their time in which no queued kernel of the trainer waits", "copy", of("copies beside the trainer's kernels"), "hidden", 0.95),
    Goal(
        "kernel with flip and normalize, 224 x 224: bandwidth as a fraction of a device-to-device copy's",
        "kernels",
        of("kernel", of="224 x 224, flip, normalize"),
        "share_of_copy",
        0.75,
    ),
    Goal(
        "kernel with flip, color jitter and normalize, 224 x 224: bandwidth as a fraction of a device-to-device copy's",
        "kernels",
        of("kernel", of="224 x 224, flip, color jitter"),
        "share_of_copy",
        0.5,
    ),
    Goal(
        "torchvision v2 on the whole batch, with one random draw: device time relative to Headrace's kernel",
        "torch",
        of("transforms", other="torchvision, one draw"),
        "device_ratio",
        3.0,
    ),
    Goal("Kornia with random draws per image: device time relative to Headrace's kernel", "torch", of("transforms", other="Kornia"), "device_ratio", 3.0),
    Goal(
        "CIFAR-10 in GPU memory (50,000 images, crop, flip, normalize, float16): time of an epoch",
        "torch",
        of(RESIDENT, of="CIFAR-10"),
        "epoch_ms",
        25.0,
        at_least=False,
        unit=" ms",
    ),
    Goal("MNIST in GPU memory: time of an epoch relative to X[randperm] in torch", "torch", of(RESIDENT, of="MNIST"), "over_torch", 1.0, at_least=False),
)


def table(rows: list[dict[str, Any]]) -> list[str]:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    shown = [[f"{row[c]:.4g}" if isinstance(row.get(c), float) else str(row.get(c, "")) for c in columns] for row in rows]
    return ["| " + " | ".join(text.replace("|", "/") for text in line) + " |" for line in [columns, ["---"] * len(columns), *shown]]


def markdown(found: dict[str, Any]) -> str:
    kit, machine, stages = found["kit"], found["machine"], found["stages"]
    figures = [figure for stage in stages.values() for figure in stage["figures"]]
    lines = [f"# {machine['name']}", "", f"{found['date']}. Kit {kit['kit']}, commit {kit['commit']}, CUDA {kit['cuda']}.", ""]
    lines += [*table([{"": name, "value": value} for name, value in machine.items()]), "", "## Stages", ""]
    steps = [
        {"stage": name, "step": step["step"], "status": step["status"], "s": step["seconds"], "why": step["why"]}
        for name, stage in stages.items()
        for step in stage["steps"]
    ]
    steps += [{"stage": name, "step": "", "status": "not run yet", "s": "", "why": ""} for name in found["missing"]]
    lines += [*table(steps), "", "## Goals", "", *table(found["goals"]), ""]
    if not_run := [f"- {name}: {line}" for name, stage in stages.items() for line in stage["not_run"]]:
        lines += ["## Not run", "", *not_run, ""]
    if found["left_out"]:
        lines += ["## Files that are not in the report", "", *(f"- {line}" for line in found["left_out"]), ""]
    for name in dict.fromkeys(figure["figure"] for figure in figures):
        rows = [{key: value for key, value in figure.items() if key != "figure"} for figure in figures if figure["figure"] == name]
        lines += [f"## {name}", "", *table(rows), ""]
    return "\n".join(lines)


def write(out: Path, kit: dict[str, Any], machine: dict[str, Any], every: list[str], stages: dict[str, Any], state: Path) -> None:
    """Writes the report from the state alone, so that it includes stages of earlier calls."""
    out.mkdir(parents=True, exist_ok=True)
    figures = [figure for stage in stages.values() for figure in stage["figures"]]
    left_out, room = [], MOST_FILES - 3
    for file in sorted((state / "files").iterdir(), key=lambda path: path.stat().st_size):
        if room == 0 or file.stat().st_size > MOST_BYTES:
            left_out.append(f"{file.name}, {file.stat().st_size / 1e6:.1f} MB: a report has at most {MOST_FILES} files, of at most {MOST_BYTES / 1e6:.0f} MB each")
            continue
        room -= 1
        shutil.copy(file, out / file.name)
    goals = []
    for goal in GOALS:
        measured, met = goal.measured(figures)
        value = f"{'at least' if goal.at_least else 'at most'} {goal.bound:g}{goal.unit}"
        goals.append({"goal": goal.what, "goal value": value, "stage": goal.stage, "measured": measured, "met": met})
    found = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "kit": kit,
        "machine": machine,
        "stages": {name: stages[name] for name in every if name in stages},
        "missing": [name for name in every if name not in stages],
        "goals": goals,
        "left_out": left_out,
    }
    with tarfile.open(out / "logs.new", "w:gz") as archive:
        for log in sorted((state / "logs").iterdir()):
            archive.add(log, f"logs/{log.name}")
    (out / "logs.new").replace(out / "logs.tgz")
    for name, text in (("report.json", json.dumps(found, indent=1) + "\n"), ("report.md", markdown(found))):
        (out / f"{name}.new").write_text(text)
        (out / f"{name}.new").replace(out / name)
