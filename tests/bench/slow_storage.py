#!/usr/bin/env python3
"""Compares a local folder with the same folder with a delay in each read, with and without reading ahead: in turn, over several rounds.

  slow_storage.py FOLDER [--delay 20] [--build build/release] [--rounds 5] [--seconds 4]

FOLDER: class folders of JPEGs. Samples per second by the server's own count, without clients, once the rings and the read-ahead are full
(`headrace bench` waits for that). Prints each round, the medians, the ratios.
"""
import argparse
import json
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def rate(build: Path, folder: str, seconds: float, io: dict[str, str]) -> tuple[float, float]:
    """(samples per second, CPU us per sample) of the server process."""
    command = [build / "server/verbs/headrace", "bench", ROOT / "configs/imagefolder.yaml"]
    command += ["--set", f"sources.photos.path={folder}", "--stream", "train"]
    for key, value in io.items():
        command += ["--set", f"sources.photos.io.{key}={value}"]
    command += ["--seconds", str(seconds), "--clients", "0", "--json"]
    run = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["runs"][0]
    return run["samples_per_second"], run["cpu_us_per_sample"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--delay", type=int, default=20, help="of each read, ms")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    arguments = parser.parse_args()
    delay = {"delay": f"{arguments.delay}ms"}
    kinds: dict[str, dict[str, str]] = {
        "local": {},
        "local, ahead": {"threads": "64"},
        "slow, ahead": {"threads": "64", **delay},
        "slow": {"read_ahead": "0", **delay},
    }
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    cpu: dict[str, list[float]] = {kind: [] for kind in kinds}
    print("".join(f"{kind:>14}" for kind in kinds), " samples/s")
    for _ in range(arguments.rounds):
        for kind, io in kinds.items():
            per_second, us = rate(arguments.build, arguments.folder, arguments.seconds, io)
            rates[kind].append(per_second)
            cpu[kind].append(us)
        print("".join(f"{rates[kind][-1]:14.0f}" for kind in kinds), flush=True)
    median = {kind: statistics.median(values) for kind, values in rates.items()}
    print("".join(f"{median[kind]:14.0f}" for kind in kinds), " medians")
    print("".join(f"{statistics.median(cpu[kind]):14.0f}" for kind in kinds), " CPU us per sample, medians")
    for kind in list(kinds)[1:]:
        print(f"{kind}: {median[kind] / median['local']:.3f} of local")


if __name__ == "__main__":
    main()
