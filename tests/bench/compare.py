#!/usr/bin/env python3
"""Compares the server with the bare decode loop, and 1, 2 and 4 clients with none: in turn, over several rounds of one run.

  compare.py FOLDER [--build build/release] [--rounds 5] [--seconds 3]

FOLDER: class folders of JPEGs. Prints each round, then the medians and ratios. CPU time: user + system of all threads.
"""
import argparse
import json
import re
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def bare_loop(build: Path, folder: str) -> float:
    """CPU us per image of libjpeg-turbo's region decodes over the same rectangles, two threads."""
    command = [build / "tests/decode_loop", folder, "--threads", "2"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"CPU us/image ([\d.]+)", out)
    assert found, out
    return float(found.group(1))


def server(build: Path, folder: str, clients: int, seconds: float) -> tuple[float, float]:
    """(CPU us per sample, samples per second) of the server process."""
    command = [build / "server/verbs/headrace", "bench", ROOT / "configs/imagefolder.yaml"]
    command += ["--set", f"sources.photos.path={folder}", "--stream", "train"]
    command += ["--seconds", str(seconds), "--clients", str(clients), "--json"]
    run = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["runs"][0]
    return run["cpu_us_per_sample"], run["samples_per_second"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    arguments = parser.parse_args()
    kinds = ["bare loop", "0 clients", "1 client", "2 clients", "4 clients"]
    cpu: dict[str, list[float]] = {kind: [] for kind in kinds}
    print(("{:>12}" * len(kinds)).format(*kinds), " CPU us per image")
    for _ in range(arguments.rounds):
        cpu["bare loop"].append(bare_loop(arguments.build, arguments.folder))
        for kind in kinds[1:]:
            cpu[kind].append(server(arguments.build, arguments.folder, int(kind[0]), arguments.seconds)[0])
        print("".join(f"{cpu[kind][-1]:12.0f}" for kind in kinds), flush=True)
    median = {kind: statistics.median(values) for kind, values in cpu.items()}
    print("".join(f"{median[kind]:12.0f}" for kind in kinds), " medians")
    print(f"server / bare loop, by CPU: the server reaches {median['bare loop'] / median['0 clients']:.3f} of the loop's rate")
    for kind in kinds[2:]:
        print(f"{kind} against none: {100 * (median[kind] / median['0 clients'] - 1):+.1f}% CPU per image")


if __name__ == "__main__":
    main()
