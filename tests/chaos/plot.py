#!/usr/bin/env python3
"""Plots the server's memory, descriptors and threads during a chaos run (needs matplotlib).

  ./run chaos --minutes 30 --keep-server
  tests/chaos/plot.py build/chaos soak.svg
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

CHURN = ("kill_client", "stop_client", "resize", "attach_storm", "hostile_bytes")


def main(folder: str, out: str) -> None:
    matplotlib.rcParams["svg.fonttype"] = "none"
    with Path(folder, "server.csv").open() as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    with Path(folder, "events.csv").open() as file:
        faults = sum(row["kind"] in CHURN for row in csv.DictReader(file))
    minutes = [row["seconds"] / 60 for row in rows]
    figure, panels = pyplot.subplots(3, 1, figsize=(8, 6), sharex=True)
    for column, label in (("anonymous_mb", "private"), ("shared_mb", "rings and other shared memory")):
        panels[0].plot(minutes, [row[column] for row in rows], linewidth=0.8, label=label)
    panels[0].set_ylabel("resident MB")
    panels[0].legend()
    for panel, column in ((panels[1], "descriptors"), (panels[2], "threads")):
        panel.plot(minutes, [row[column] for row in rows], linewidth=0.8)
        panel.set_ylabel(column)
    for panel in panels:
        panel.set_ylim(bottom=0)
    starts = len({row["pid"] for row in rows})
    panels[2].set_xlabel(f"minutes, with {faults:,} faults of clients; {starts} server process{'es' if starts > 1 else ''}")
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None} if out.endswith(".svg") else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
