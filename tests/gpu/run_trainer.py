"""Runs the C++ trainer on a device, over a small synthetic dataset. Checks that its loss falls, and reports how long it waited for batches.

  run_trainer.py PROGRAM [DEVICE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import headrace
import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the built device_trainer")
    parser.add_argument("device", nargs="?", default="cuda:0", help='"cuda:N", or "host" for the CPU backend (default: cuda:0)')
    given = parser.parse_args()
    program, device = given.program, given.device
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        labels = np.arange(2048) % 4
        random = np.random.default_rng(0)
        images = random.integers(0, 120, (2048, 32, 32, 3), dtype=np.uint8) + (labels * 40).astype(np.uint8)[:, None, None, None]
        np.save(here / "images.npy", images)
        np.save(here / "labels.npy", labels)
        stream = {
            "source": "set",
            "batch_size": 256,
            "transforms": [{"random_crop": {"size": 32, "padding": 4}}, {"normalize": {"mean": [0.5] * 3, "std": [0.25] * 3}}],
            "output": {"dtype": "float32"},
        }
        source = {"type": "npy", "fields": {"image": str(here / "images.npy"), "label": str(here / "labels.npy")}, "classes": list("abcd")}
        config = {"server": {"directory": str(here / "run"), "metrics": "off"}, "sources": {"set": source}, "streams": {"train": stream}}
        (here / "config.yaml").write_text(json.dumps(config))
        with headrace.serve(here / "config.yaml") as server:
            done = subprocess.run([program, "--address", server.address, "--device", device, "--epochs", "5"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"run_trainer: {program} ended with status {done.returncode}: {done.stderr}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    losses = [line["loss"] for line in lines if line["event"] == "epoch"]
    if not losses[-1] < 0.9 * losses[0]:
        sys.exit(f"run_trainer: expected the loss to fall by 10% or more, found the losses {losses} (one per epoch)")
    end = lines[-1]
    figure = {"figure": "C++ trainer", "images": end["images"], "seconds": end["seconds"], "waited_s": end["waited"], "losses": [round(x, 4) for x in losses]}
    print("[figure] " + json.dumps(figure | end["copies"]))


if __name__ == "__main__":
    main()
