#!/usr/bin/env python3
"""Measures how the server scales on 1, 2, 4, 8 and 16 cores, as far as the machine has them, for each workload of tests/bench/peers.

  scaling.py --out FOLDER [--data imagenet=DIR pairs=DIR ...] [--cores 1 2 4] [--workloads NAME...] [--rounds 3] [--seconds 3]
             [--headrace PROGRAM]

The server runs on n cores (one hyperthread of each core first) with n workers: once without a client, and once with a client that reads the
batches on the same cores. All n run in turn; results are medians of the rounds. `cores_had` is the number of cores that the server really
used. --data as in peers/README.md; other data is synthetic (made_up.py). Writes FOLDER/scaling.json and, with matplotlib, scaling.png:
samples/s relative to one core, with the ideal line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import made_up  # noqa: E402
from peers import prepare  # noqa: E402
from peers.rows import rows_of  # noqa: E402
from peers.workloads import WORKLOADS, Job, Workload  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SHOWN = ("w1-f32", "w2-f32", "w3-f32", "w4-cached-f32-b128", "w4-uncached-f32-b128", "w5-f32")
CORES = (1, 2, 4, 8, 16)
CLIENTS = (0, 1)
START_SECONDS = 120.0


def cores_in_order() -> list[int]:
    """The CPUs that this process may use: first one hyperthread of each core, then the others."""

    def hyperthread_index(cpu: int) -> int:
        """0 for the first of a core's hyperthreads."""
        try:
            text = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
        except OSError:
            return 0
        ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
        return sum(cpu > one for first, *last in ends for one in range(first, (last or [first])[0] + 1))

    return sorted(os.sched_getaffinity(0), key=lambda cpu: (hyperthread_index(cpu), cpu))


def measure(
    program: str, config: Path, cores: list[int], seconds: float, clients: tuple[int, ...] = CLIENTS
) -> list[dict[str, float]]:
    """One run for each number of clients."""
    command = [program, "bench", str(config), "--stream", "train", "--json", "--seconds", str(seconds)]
    command += ["--set", f"server.threads={len(cores)}", "--clients", *map(str, clients)]
    allowed: Callable[[], None] = lambda: os.sched_setaffinity(0, cores)  # noqa: E731
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS + 4 * seconds, preexec_fn=allowed, check=False)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` ended with status {done.returncode}: {done.stderr.strip()}")
    runs: list[dict[str, float]] = json.loads(done.stdout)["runs"]
    return runs


def write_config(workload: Workload, data: str, scratch: Path, folder: Path) -> Path:
    """Writes the configuration of Headrace's row in peers; returns its path."""
    from peers.loaders import served

    row = rows_of(workload, ["headrace"])[0]
    folder.mkdir()
    job = Job(workload, data, str(scratch), str(folder), row.name, row.module, row.options)
    path = folder / "headrace.yaml"
    path.write_text(json.dumps(served.config(job, folder / "run")))
    return path


def measure_scaling(workload: Workload, config: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One figure for each number of cores."""
    order = cores_in_order()
    runs: dict[int, list[list[dict[str, float]]]] = {cores: [] for cores in options.cores}
    for turn in range(options.rounds):
        for i in range(len(options.cores)):
            cores = options.cores[(i + turn) % len(options.cores)]
            runs[cores].append(measure(options.headrace, config, order[:cores], options.seconds))
    figures = []
    for cores, found in runs.items():
        rates = [statistics.median(run[i]["samples_per_second"] for run in found) for i in range(len(CLIENTS))]
        cpu_us = statistics.median(run[0]["cpu_us_per_sample"] for run in found)
        first = figures[0] if figures else {"samples_per_s": rates[0], "with_a_client": rates[1], "cores": cores}
        over = rates[0] / first["samples_per_s"] * first["cores"]
        figures.append(
            {
                "figure": "scaling",
                "workload": workload.name,
                "cores": cores,
                "samples_per_s": rates[0],
                "over_one_core": over,
                "of_ideal": over / cores,
                "cpu_us": cpu_us,
                "cores_had": rates[0] * cpu_us / 1e6,
                "with_a_client": rates[1],
                "with_a_client_over_one_core": rates[1] / first["with_a_client"] * first["cores"],
            }
        )
    return figures


def plot(figures: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn, panels = pyplot.subplots(1, 2, figsize=(11, 5), sharex=True, sharey=True)
    cores = sorted({figure["cores"] for figure in figures})
    for axis, key, title in zip(panels, ("over_one_core", "with_a_client_over_one_core"), ("the server alone", "with one client on the same cores"), strict=True):
        axis.plot(cores, cores, "--", color="#888", label="ideal")
        for name in dict.fromkeys(figure["workload"] for figure in figures):
            line = [(figure["cores"], figure[key]) for figure in figures if figure["workload"] == name]
            axis.plot(*zip(*line, strict=True), marker="o", label=name)
        axis.set(xscale="log", yscale="log", xlabel="cores", ylabel="samples/s over those of one core", title=title)
        for each in (axis.xaxis, axis.yaxis):
            each.set_major_formatter("{x:g}")
            each.set_minor_formatter("")
            each.set_ticks(cores)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    drawn.tight_layout()
    drawn.savefig(path, dpi=90)
    pyplot.close(drawn)


def prepare_data(name: str, given: dict[str, str], scratch: Path) -> str:
    """Prepares the dataset as peers does, or generates it; returns its folder."""
    if name not in given:
        return str(made_up.MAKERS[name](scratch))
    folder = Path(given[name]).resolve()  # a configuration's paths are relative to itself
    prepare.PREPARE[name](folder, scratch)
    return str(folder)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", nargs="+", default=[], metavar="NAME=DIR")
    parser.add_argument("--cores", nargs="+", type=prepare.positive, default=list(CORES))
    parser.add_argument("--workloads", nargs="+", choices=sorted(WORKLOADS), default=list(SHOWN), metavar="NAME")
    parser.add_argument("--rounds", type=prepare.positive, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--headrace", default=str(ROOT / "build/release/server/verbs/headrace"))
    options = parser.parse_args()
    options.data = dict(entry.partition("=")[::2] for entry in options.data)
    unknown = [name for name in options.data if name not in prepare.PREPARE]
    if unknown:
        parser.error(f"--data {unknown[0]}: unknown dataset, expected one of {', '.join(prepare.PREPARE)}")
    here = len(os.sched_getaffinity(0))
    options.cores = sorted({cores for cores in options.cores if cores <= here})
    if not options.cores:
        parser.error(f"--cores: expected at least one number up to {here}, the cores that this process may use")
    return options


def main() -> None:
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    figures: list[dict[str, Any]] = []
    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        folders: dict[str, str] = {}
        for name in options.workloads:
            workload = WORKLOADS[name]
            try:
                if workload.data not in folders:
                    folders[workload.data] = prepare_data(workload.data, options.data, Path(temporary))
            except ImportError as error:
                print(f"[not run] {name}: {error}", flush=True)
                continue
            try:
                config = write_config(workload, folders[workload.data], Path(temporary), Path(temporary) / name)
                made = measure_scaling(workload, config, options)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"scaling: {name}: {error}", file=sys.stderr, flush=True)
                failed = True
                continue
            for figure in made:
                print("[figure] " + json.dumps(figure), flush=True)
            figures += made
    (options.out / "scaling.json").write_text(json.dumps({"cores_here": len(os.sched_getaffinity(0)), "data": options.data, "figures": figures}, indent=1) + "\n")
    try:
        if figures:
            plot(figures, options.out / "scaling.png")
    except ImportError as error:
        print(f"[not run] the plot, scaling.png: {error}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
