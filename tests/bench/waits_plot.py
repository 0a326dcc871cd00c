#!/usr/bin/env python3
"""Plots the simulation of sharing.patience: the rule compared with never waiting and always waiting (needs matplotlib).

  HEADRACE_CSV=waits.csv build/release/tests/fill_order_test --gtest_filter='*BetterOf*'
  tests/bench/waits_plot.py waits.csv waits.svg
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def main(source: str, out: str) -> None:
    matplotlib.rcParams["svg.fonttype"] = "none"
    rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(Path(source).open())]
    best = [min(row["detach"], row["wait"]) for row in rows]
    figure, axes = pyplot.subplots(figsize=(8, 4))
    for key, label in (("detach", "never waiting (patience: 0s)"), ("wait", "always waiting (on_lag: wait)"), ("rule", "the rule")):
        axes.plot(sorted(row[key] / least for row, least in zip(rows, best, strict=True)), label=label)
    axes.axhline(1.05, color="gray", linewidth=0.8, linestyle="--")
    axes.set_xlabel(f"{len(rows)} random pairs of jobs, each line sorted")
    axes.set_ylabel("total time / that of the better choice")
    axes.set_ylim(0.8, 2.2)
    axes.legend()
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None} if out.endswith(".svg") else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
