#!/usr/bin/env python3
"""Plots tests/ray/cluster_simulation.py: GPUs that wait after a quarter of the decode nodes is lost (needs matplotlib).

  .cache/ray/bin/python tests/ray/cluster_simulation.py --out curves.json
  tests/bench/cluster_plot.py curves.json cluster.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def main(source: str, out: str) -> None:
    matplotlib.rcParams["svg.fonttype"] = "none"
    found = json.loads(Path(source).read_text())
    figure, (rates, waits) = pyplot.subplots(2, 1, figsize=(8, 6), sharex=True)
    for curve in found["curves"]:
        seconds = [second - curve["lost_at"] for second in range(len(curve["rates"]))]
        label = f"{curve['gpu_rows_s']:,} rows/s for each GPU: longest wait {curve['longest_wait_s']:.1f} s"
        rates.plot(seconds, [rate / 1e6 for rate in curve["rates"]], label=label)
        waits.plot(seconds, [100 * wait for wait in curve["waits"]], label=label)
    for axes in (rates, waits):
        axes.axvline(0, color="gray", linewidth=0.8, linestyle="--")
        axes.set_xlim(-10, 60)
        axes.set_ylim(bottom=0)
    rates.set_ylabel("million rows/s, all trainer nodes")
    waits.set_ylabel("GPUs that wait, %")
    waits.set_xlabel("seconds since a quarter of the decode nodes stopped answering")
    waits.legend()
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None} if out.endswith(".svg") else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
