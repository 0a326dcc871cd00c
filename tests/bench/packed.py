#!/usr/bin/env python3
"""Compares the server's CPU time for a folder of JPEGs and for the same dataset packed encoded and tiled: in turn, over several rounds of
one run.

  packed.py FOLDER [--build build/release] [--rounds 5] [--seconds 3]

FOLDER: class folders of JPEGs. Prints each round, then the medians of random_resized_crop 224, flip, normalize, float32 without clients. CPU time: user + system of all threads. The databases are made in a temporary folder.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACK_SECONDS = 3600
STREAM = {
    "source": "photos",
    "batch_size": 64,
    "seed": 1,
    "transforms": [
        {"random_resized_crop": {"size": 224}},
        "random_horizontal_flip",
        {"normalize": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}},
    ],
    "output": {"dtype": "float32", "layout": "NCHW"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    arguments = parser.parse_args()
    headrace = str(arguments.build / "server/verbs/headrace")
    with tempfile.TemporaryDirectory() as temporary:
        sources = {"folder": {"type": "image_folder", "path": str(arguments.folder.resolve())}}
        for store in ("encoded", "tiled"):
            out = f"{temporary}/{store}.lmdb"
            command = [headrace, "pack", str(arguments.folder), out, "--store", store, "--quiet"]
            subprocess.run(command, check=True, timeout=PACK_SECONDS)
            sources[store] = {"type": "lmdb", "path": out}
        cpu: dict[str, list[float]] = {kind: [] for kind in sources}
        print(("{:>12}" * len(sources)).format(*sources), " CPU us per image")
        for _ in range(arguments.rounds):
            for kind, source in sources.items():
                config = Path(temporary) / f"{kind}.yaml"
                config.write_text(json.dumps({"sources": {"photos": source}, "streams": {"train": STREAM}}))
                command = [headrace, "bench", str(config), "--stream", "train", "--clients", "0", "--json"]
                command += ["--seconds", str(arguments.seconds)]
                done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60 + 10 * arguments.seconds)
                cpu[kind].append(json.loads(done.stdout)["runs"][0]["cpu_us_per_sample"])
            print("".join(f"{cpu[kind][-1]:12.0f}" for kind in sources), flush=True)
        medians = {kind: statistics.median(values) for kind, values in cpu.items()}
        print("".join(f"{medians[kind]:12.0f}" for kind in sources), " medians")


if __name__ == "__main__":
    main()
