"""Two trainings on one stream, the second started later than the first: what the server decodes, its CPU time, and when each one ends.

    python3 tests/bench/late_trainer.py IMAGES --headrace HEADRACE --later 10 --epochs 60

IMAGES is a folder per class of JPEGs. The trainer is bindings/examples/trainer.py, or that of another commit (`--trainer`, with that commit's
Python package in PYTHONPATH), for a comparison of two builds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from skew import cpu_of, stream

TRAINER = Path(__file__).parents[2] / "bindings/examples/trainer.py"


class Trainer(threading.Thread):
    def __init__(self, args: argparse.Namespace, address: str, client: str) -> None:
        super().__init__()
        command = [sys.executable, args.trainer, "--address", address, "--client", client, "--epochs", str(args.epochs), "--report", "100000"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.ended = 0.0
        self.images = 0
        self.digests: list[str] = []
        self.start()

    def run(self) -> None:
        out = self.process.communicate()[0]
        self.ended = time.monotonic()
        if self.process.returncode == 0:
            lines = [json.loads(line) for line in out.splitlines()]
            self.digests = [line["digest"] for line in lines if line["event"] == "epoch"]
            self.images = lines[-1]["images"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images")
    parser.add_argument("--headrace", default="headrace")
    parser.add_argument("--trainer", default=TRAINER)
    parser.add_argument("--later", type=float, default=10, help="seconds")
    parser.add_argument("--epochs", type=int, default=60)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        address, config = f"{folder}/run", Path(folder) / "headrace.yaml"
        settings = {"server": {"threads": os.cpu_count(), "metrics": "off", "directory": address}}
        config.write_text(
            json.dumps({**settings, "sources": {"images": {"type": "image_folder", "path": args.images}}, "streams": {"train": stream(floats=True)}})
        )

        def ask(verb: str, *options: str) -> str:
            return subprocess.run([args.headrace, verb, "--address", address, *options], check=True, capture_output=True, text=True).stdout

        server = subprocess.Popen([args.headrace, "serve", config])
        try:
            ask("health", "--timeout", "30")
            begun = time.monotonic()
            first = Trainer(args, address, "first")
            time.sleep(args.later)
            second = Trainer(args, address, "second")
            time.sleep(args.later)
            print(ask("ls"))
            for trainer in (first, second):
                trainer.join()
            cpu = cpu_of(server.pid)
            figures: dict[str, Any] = json.loads(ask("stats"))["streams"]["train"]
        finally:
            server.terminate()
            server.wait()
    if not first.digests or first.digests != second.digests:
        sys.exit("the trainers failed, or received different batches")
    print("| decoded | delivered | server CPU, s | first ends, s | second ends, s |\n|---|---|---|---|---|")
    decoded = figures.get("decoded", figures["samples"] - figures.get("shared", 0))
    print(f"| {decoded} | {first.images + second.images} | {cpu:.1f} | {first.ended - begun:.1f} | {second.ended - begun:.1f} |")


if __name__ == "__main__":
    main()
