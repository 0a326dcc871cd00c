#!/usr/bin/env python3
"""Measures how much work `device: gpu` saves the server: the same stream computed by the server, and completed on the device, in turn, over
several rounds.

  placement.py FOLDER [--headrace PROGRAM] [--old PROGRAM] [--rounds 3] [--seconds 4]

FOLDER: class folders of JPEGs, kept in memory after the first round. --old: another build, whose `device: gpu` is measured as well. No GPU
is needed: what the device does is not measured here. CPU time: user + system of all threads of the server; bytes: those that go through the
ring, and so to the device.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
NORMALIZE = {"normalize": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}}
CROP: list[Any] = [{"random_resized_crop": {"size": 224}}, "random_horizontal_flip"]
JITTER: list[Any] = [
    {"color_jitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}},
    {"random_grayscale": {"p": 0.2}},
]
CHAINS = {
    "crop, flip": CROP,
    "crop, flip, colors": CROP + JITTER,
    "resize 256, center crop": [{"resize": {"size": 256}}, {"center_crop": {"size": 224}}],
}


def measure(program: str, config: Path, seconds: float) -> tuple[float, float]:
    """(CPU us, KB through the ring) of a sample."""
    command = [program, "bench", config, "--stream", "train", "--clients", "0"]
    out = subprocess.run([*command, "--seconds", str(seconds), "--json"], capture_output=True, text=True, check=True).stdout
    run = json.loads(out)["runs"][0]
    return run["cpu_us_per_sample"], run["published_bytes_per_second"] / run["samples_per_second"] / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--headrace", default=str(ROOT / "build/release/server/verbs/headrace"))
    parser.add_argument("--old")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    arguments = parser.parse_args()
    ways = {"cpu": (arguments.headrace, "cpu"), "gpu": (arguments.headrace, "gpu")}
    if arguments.old:
        ways["old gpu"] = (arguments.old, "gpu")
    print(f"{'chain':26}{'dtype':9}" + "".join(f"{way + ' us':>12}" for way in ways) + "".join(f"{way + ' KB':>12}" for way in ways) + "   (medians)")
    for name, chain in CHAINS.items():
        for dtype in ("float32", "uint8"):
            found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
            for _ in range(arguments.rounds):
                for way, (program, device) in ways.items():
                    plan = {
                        "source": "photos",
                        "batch_size": 64,
                        "transforms": chain + ([NORMALIZE] if dtype == "float32" else []),
                        "output": {"dtype": dtype},
                        "device": device,
                    }
                    source = {"type": "image_folder", "path": str(arguments.folder.resolve())}
                    source["cache"] = {"encoded": "1GB", "tile": False}
                    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                        yaml.safe_dump({"sources": {"photos": source}, "streams": {"train": plan}}, file)
                        file.flush()
                        found[way].append(measure(program, Path(file.name), arguments.seconds))
            medians = [statistics.median(run[i] for run in found[way]) for i in (0, 1) for way in ways]
            print(f"{name:26}{dtype:9}" + "".join(f"{median:12.0f}" for median in medians), flush=True)


if __name__ == "__main__":
    main()
