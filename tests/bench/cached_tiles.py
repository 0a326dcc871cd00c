#!/usr/bin/env python3
"""Compares the server's CPU time with the cache `encoded` before and after idle workers have tiled its files, in turn.

  cached_tiles.py FOLDER [--build build/release] [--rounds 7] [--epochs 8]

FOLDER: class folders of JPEGs that fit into 1 GB. Two servers, of which one reads at a time: random_resized_crop 224, flip, normalize,
float32, batches of 64, to one client that reads them at once. Prints each round, then medians. CPU time: user + system of all threads of
the server. Ends with an error if the two streams differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import headrace
from packed import STREAM

ROOT = Path(__file__).resolve().parents[2]


class Server:
    def __init__(self, binary: Path, folder: Path, tile: bool, scratch: Path) -> None:
        self.binary, self.address = binary, str(scratch / f"run-{tile}")
        source = {"type": "image_folder", "path": str(folder), "cache": {"encoded": "1GB", "tile": tile}}
        config = scratch / f"{tile}.yaml"
        server = {"directory": self.address, "metrics": "off", "log_level": "error"}
        config.write_text(json.dumps({"server": server, "sources": {"photos": source}, "streams": {"train": STREAM}}))
        self.process = subprocess.Popen([binary, "serve", config])
        while subprocess.run([binary, "health", "--address", self.address], capture_output=True).returncode != 0:
            assert self.process.poll() is None, "the server ended"
            time.sleep(0.05)
        self.loader = headrace.Loader(self.address, stream="train", zero_copy=True)

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def cache(self) -> dict[str, Any]:
        stats = subprocess.run([self.binary, "stats", "--address", self.address], capture_output=True, text=True, check=True)
        cache: dict[str, Any] = json.loads(stats.stdout)["caches"][0]
        return cache

    def read(self, epochs: int, digest: Any = None) -> int:
        samples = 0
        for _ in range(epochs):
            for images, labels in self.loader:
                samples += len(labels)
                if digest is not None:
                    digest.update(images)
        return samples

    def cost(self, epochs: int) -> float:
        """Microseconds of CPU per image."""
        begin = self.cpu()
        samples = self.read(epochs)
        time.sleep(0.2)  # the batches made ahead now are about as many as before
        return (self.cpu() - begin) / samples * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        servers = [Server(arguments.build / "server/verbs/headrace", arguments.folder.resolve(), tile, Path(scratch)) for tile in (False, True)]
        try:
            digests = [hashlib.sha256(), hashlib.sha256()]
            for server, digest in zip(servers, digests, strict=True):
                server.read(1, digest)
            while (cache := servers[1].cache())["samples_to_tile"] > 0:
                time.sleep(0.1)
            print(f"{cache['tiled_images']} images tiled in {cache['tiling_seconds']:.1f} s of CPU at most, {cache['untiled_images']} left as they are")
            for server, digest in zip(servers, digests, strict=True):
                server.read(1, digest)
            assert digests[0].digest() == digests[1].digest(), "the streams differ"
            rounds = []
            print("     as read       tiled  CPU us per image")
            for _ in range(arguments.rounds):
                rounds.append([server.cost(arguments.epochs) for server in servers])
                print("".join(f"{us:12.0f}" for us in rounds[-1]), flush=True)
            medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
            print("".join(f"{us:12.0f}" for us in medians), f" medians: {medians[1] / medians[0]:.3f} of the CPU")
        finally:
            for server in servers:
                server.process.terminate()
                server.process.wait()


if __name__ == "__main__":
    main()
