"""Runs one workload of tests/bench/peers on synthetic data, with Headrace and the other loaders that are installed.

  beside_peers.py w1|w2|w3|w4|w5 [--seconds 1]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

BENCH = Path(__file__).resolve().parents[1] / "bench"
sys.path.insert(0, str(BENCH))
WORKLOADS = {"w1": "w1-f32", "w2": "w2-f32", "w3": "w3-f32", "w4": "w4-cached-f32-b128", "w5": "w5-f32"}
INSTALLED = ("torch", "nvidia.dali", "ffcv", "tensorflow", "spdl", "grain", "litdata")
LOADERS = {"nvidia.dali": ["dali"], "ffcv": ["ffcv"], "tensorflow": ["tf.data"], "spdl": ["spdl"], "grain": ["grain"], "litdata": ["litdata-0", "litdata-2"]}
LOADERS["torch"] = ["numpy", "tensor", "dataloader-pil-0", "dataloader-pil-2", "dataloader-tensors-2", "dataloader-lz4-2"]


def installed() -> list[str]:
    from importlib.util import find_spec

    def there(module: str) -> bool:
        try:
            return find_spec(module) is not None
        except ModuleNotFoundError:  # the parent package is missing
            return False

    found = ["headrace"]
    for module in INSTALLED:
        if not there(module):
            print(f"[not run] {', '.join(LOADERS[module])}: the Python package {module} is not installed", flush=True)
        else:
            found += LOADERS[module]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=WORKLOADS, help="the workload: tests/bench/peers/README.md describes them")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds per loader and round (default: 1)")
    given = parser.parse_args()
    import made_up
    from peers.workloads import WORKLOADS as KNOWN

    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary) / "scratch"
        workload = KNOWN[WORKLOADS[given.name]]
        data = made_up.MAKERS[workload.data](scratch)  # in the form that peers would prepare, so that it need not
        if workload.data == "cifar":  # also as arrays, for loops without a loader
            rows = np.concatenate([np.fromfile(file, np.uint8) for file in sorted(data.glob("data_batch_*.bin"))]).reshape(-1, 3073)
            np.save(data / "images.npy", rows[:, 1:].reshape(-1, 3, 32, 32))
            np.save(data / "labels.npy", rows[:, 0].astype(np.int64))
        command = [sys.executable, "-m", "peers", "--data", f"{workload.data}={data}", "--scratch", scratch, "--workloads", workload.name]
        command += ["--loaders", *installed(), "--rounds", "2", "--seconds", given.seconds, "--out", Path(temporary) / "out"]
        status = subprocess.run([str(word) for word in command], cwd=BENCH, check=False).returncode
        for raw in (Path(temporary) / "out").glob("*.json"):
            for one in json.loads(raw.read_text())["workloads"][0]["loaders"]:
                if one["error"]:
                    print(f"[not run] {workload.name}, {one['loader']}: {str(one['error']).splitlines()[0]}", flush=True)
                    continue
                us = statistics.median(1e6 * turn["cpu"] / turn["samples"] for turn in one["rounds"])
                rate = statistics.median(turn["samples"] / turn["seconds"] for turn in one["rounds"])
                print("[figure] " + json.dumps({"figure": "peers", "workload": workload.name, "loader": one["loader"], "cpu_us": us, "samples_per_s": rate}), flush=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
