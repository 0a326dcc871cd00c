#!/usr/bin/env python3
"""Compares two builds of the server: CPU time per sample of each workload of tests/bench/peers, and the ratio of new to old.

  regress.py OLD NEW [--data imagenet=DIR pairs=DIR ...] [--workloads NAME...] [--rounds 15] [--seconds 2]

OLD and NEW: `headrace` programs. One worker on one core, without clients; the builds alternate, and so does which of them goes first. The
ratio is the median of the rounds' ratios, with its 95% interval (bootstrap). --data as in peers/README.md; other data is synthetic.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from peers.workloads import WORKLOADS  # noqa: E402
from scaling import SHOWN, cores_in_order, measure, prepare_data, write_config  # noqa: E402


def interval(ratios: list[float]) -> tuple[float, float]:
    """The middle 95% of the medians of resampled rounds."""
    resampled = random.Random(0)
    medians = sorted(statistics.median(resampled.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--data", nargs="+", default=[], metavar="NAME=DIR")
    parser.add_argument("--workloads", nargs="+", default=SHOWN, choices=sorted(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args()
    named = dict(given.split("=", 1) for given in options.data)
    folders: dict[str, str] = {}
    core = cores_in_order()[:1]
    print(f"{'workload':24}{'old':>10}{'new':>10}  CPU us/sample (medians){'ratio':>8}   95% interval", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        for name in options.workloads:
            workload = WORKLOADS[name]
            if workload.data not in folders:
                folders[workload.data] = prepare_data(workload.data, named, scratch)
            config = write_config(workload, folders[workload.data], scratch, scratch / name)
            costs: dict[str, list[float]] = {options.old: [], options.new: []}
            for turn in range(options.rounds):
                for program in (options.old, options.new) if turn % 2 else (options.new, options.old):
                    costs[program].append(measure(program, config, core, options.seconds, (0,))[0]["cpu_us_per_sample"])
            ratios = [new / old for old, new in zip(costs[options.old], costs[options.new], strict=True)]
            low, high = interval(ratios)
            old, new = (statistics.median(costs[program]) for program in (options.old, options.new))
            print(f"{name:24}{old:10.3f}{new:10.3f}{statistics.median(ratios):32.4f}   {low:.4f} to {high:.4f}", flush=True)


if __name__ == "__main__":
    main()
