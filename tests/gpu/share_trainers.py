"""Runs several trainers that share one GPU and one stream of JPEGs. Measures the rows served per row decoded, and the samples per second.

  share_trainers.py TRAINERS [DEVICE] [--epochs 20] [--jpegs DIR]

A trainer copies each batch to the GPU and computes a convolution there. The server should decode a row once for all trainers, so the goal for
rows served per row decoded is the number of trainers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import headrace

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

BATCH = 64


def config(folder: Path, pictures: Path, trainers: int) -> Path:
    normalize = {"normalize": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}}
    stream = {
        "source": "set",
        "batch_size": BATCH,
        "transforms": [{"random_resized_crop": {"size": 224}}, "random_horizontal_flip", normalize],
        "output": {"dtype": "float16"},
        "sharing": {"wait_for": trainers, "on_lag": "wait"},
        "ring": {"max_clients": trainers},
    }
    server = {"directory": str(folder / "run"), "metrics": "off"}
    written = folder / "config.yaml"
    written.write_text(json.dumps({"server": server, "sources": {"set": {"type": "image_folder", "path": str(pictures)}}, "streams": {"train": stream}}))
    return written


def train(address: str, device: str, epochs: int) -> None:
    """Runs one trainer, and prints its rows and seconds as JSON."""
    import torch

    at = "cpu" if device == "host" else device
    model = torch.nn.Conv2d(3, 8, 7, stride=4).to(at, torch.float32 if device == "host" else torch.float16)
    with headrace.Loader(address, stream="train", device=device) as loader, torch.no_grad():

        rows, before, begun = 0, 0, time.perf_counter()

        def decoded() -> int:
            return int(headrace.stats(address)["streams"]["train"]["decoded"])

        for epoch in range(epochs):
            if epoch == min(1, epochs - 1):  # the first epoch includes the start-up and fills the ring: not counted
                rows, before, begun = 0, decoded(), time.perf_counter()
            for image, _ in loader:
                model(image.float() if device == "host" else image).sum().item()
                rows += len(image)
        print(json.dumps({"rows": rows, "seconds": time.perf_counter() - begun, "decoded": decoded() - before}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainers", type=int, help="the number of trainers")
    parser.add_argument("device", nargs="?", default="cuda:0", help='"cuda:N", or "host" to try the program on the CPU backend (default: cuda:0)')
    parser.add_argument("--epochs", type=int, default=20, help="epochs of each trainer; the first one is not counted (default: 20)")
    parser.add_argument("--jpegs", type=Path, help="a folder of JPEGs with a sub-folder per class (default: synthetic images)")
    parser.add_argument("--address", help="run as one of the trainers of the server at this address; used internally")
    given = parser.parse_args()
    if given.address:
        return train(given.address, given.device, given.epochs)
    import made_up

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pictures = given.jpegs.resolve() if given.jpegs else made_up.imagenet(folder)
        with headrace.serve(config(folder, pictures, given.trainers)) as server:
            command = [sys.executable, __file__, str(given.trainers), given.device, "--epochs", str(given.epochs), "--address", server.address]
            running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(given.trainers)]
            said = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        sys.exit(f"share_trainers: expected all trainers to end with status 0, found {[process.returncode for process in running]}")
    lines: list[dict[str, Any]] = [json.loads(text) for text in said]
    served, decoded = sum(line["rows"] for line in lines), max(line["decoded"] for line in lines)
    figure: dict[str, Any] = {"figure": "shared stream", "trainers": given.trainers, "rows_served": served, "rows_decoded": decoded, "served_per_decoded": served / decoded}
    figure |= {"samples_per_s": sum(line["rows"] / line["seconds"] for line in lines)}
    print(("[figure] " if given.device != "host" else "tried   ") + json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
