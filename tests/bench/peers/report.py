"""Tables and a plot of results."""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peers.contest import Result
from peers.workloads import Workload

HEADER = (
    "| loader | in memory | samples/s | CPU µs/sample | spread | CPU / headrace | memory, MB |",
    "|---|---|---:|---:|---|---:|---:|",
)


def cpu_us(result: Result) -> list[float]:
    """CPU time per sample of each round, us."""
    return [1e6 * one["cpu"] / one["samples"] for one in result.rounds]


def rate(result: Result) -> float:
    """Median samples per second."""
    return statistics.median(one["samples"] / one["seconds"] for one in result.rounds)


def digits(value: float) -> str:
    """Three digits, no exponent."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def line(result: Result, reference: float | None) -> str:
    row = result.row
    if result.error or not result.rounds:
        return f"| {row.name} | {row.cached} | did not run: {result.error.replace('|', '/')} | | | | |"
    cpu = cpu_us(result)
    median = statistics.median(cpu)
    ratio = digits(median / reference) if reference else ""
    cells = [row.name, row.cached, digits(rate(result)), digits(median), f"{digits(min(cpu))} to {digits(max(cpu))}", ratio]
    return "| " + " | ".join([*cells, f"{result.memory / 1e6:.0f}"]) + " |"


def table(workload: Workload, results: list[Result]) -> str:
    """Headrace first, then the others by their CPU time, then those that did not run."""
    ran = [one for one in results if one.rounds and not one.error]
    ours = [one for one in ran if one.row.name == "headrace"]
    reference = statistics.median(cpu_us(ours[0])) if ours else None
    others = sorted((one for one in ran if one not in ours), key=lambda one: statistics.median(cpu_us(one)))
    rest = [one for one in results if one not in ran]
    title = f"### {workload.name}\n\n{workload.title}; batch {workload.batch}, {workload.dtype} {workload.layout}.\n"
    return "\n".join([title, *HEADER, *(line(one, reference) for one in [*ours, *others, *rest])]) + "\n"


def raw(workload: Workload, results: list[Result]) -> dict[str, Any]:
    made = []
    for one in results:
        fields = {"error": one.error, "rounds": one.rounds, "memory_bytes": one.memory, "first_batches": one.fields}
        made.append({"loader": one.row.name, "in_memory": one.row.cached, **fields})
    return {"workload": asdict(workload), "loaders": made}


def write(folder: Path, tables: list[str], raw: dict[str, Any], results: list[tuple[Workload, list[Result]]]) -> None:
    """results.md, results.json, results.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.md").write_text("\n".join(tables))
    (folder / "results.json").write_text(json.dumps(raw, indent=1) + "\n")
    try:
        plot(results, folder / "results.svg")
    except ImportError as error:
        print(f"no results.svg: {error}", file=sys.stderr)


def plot(all_results: list[tuple[Workload, list[Result]]], path: Path) -> None:
    """CPU time per sample, a panel per workload, on a logarithmic scale."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text, not outlines: a tenth of the size
    from matplotlib import pyplot

    shown = [(workload, [one for one in results if one.rounds and not one.error]) for workload, results in all_results]
    shown = [(workload, results) for workload, results in shown if results]
    if not shown:
        return
    columns = min(3, len(shown))
    lines = -(-len(shown) // columns)
    most = max(len(results) for _, results in shown)
    figure, axes = pyplot.subplots(lines, columns, figsize=(4.6 * columns, (0.7 + 0.19 * most) * lines), squeeze=False)
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    for axis, (workload, results) in zip(axes.flat, shown, strict=False):
        ordered = sorted(results, key=lambda one: -statistics.median(cpu_us(one)))
        values = [statistics.median(cpu_us(one)) for one in ordered]
        colors = ["#c44" if one.row.name.startswith("headrace") else "#68a" for one in ordered]
        bars = axis.barh([one.row.name for one in ordered], values, color=colors)
        axis.bar_label(bars, [f" {digits(value)}" for value in values], fontsize=6)
        axis.set_xscale("log")
        axis.set_xlim(min(values) / 3, max(values) * 4)  # no bar looks like nothing, and labels have room
        axis.xaxis.set_visible(False)
        axis.set_title(f"{workload.name}: CPU µs per sample", fontsize=8)
        axis.tick_params(labelsize=6)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=75)
    pyplot.close(figure)
