"""Measures epochs of datasets in GPU memory (`residence: gpu`), beside a few lines of torch that use tensors on the GPU.

  residence_bench.py [DEVICE]

The torch code indexes MNIST by `X[randperm]`. For CIFAR-10 it crops and flips a whole epoch at once, as scripts for training records do.
First, the program checks that an epoch has every sample once. It prints a line of JSON after "[figure] " per figure. The data is synthetic.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import torch


def device_to_measure() -> str:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", default="cuda:0", help='"cuda:N", or "host" to try the program on the CPU backend with small datasets (default: cuda:0)')
    device: str = parser.parse_args().device
    return device


DEVICE = device_to_measure()
TORCH = torch.device("cpu" if DEVICE == "host" else DEVICE)
SCALE = 100 if DEVICE == "host" else 1
MNIST, CIFAR = 60_000 // SCALE, 50_000 // SCALE
EPOCHS = 2 if DEVICE == "host" else 7
Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


def config(folder: Path) -> dict[str, Any]:
    random = np.random.default_rng(0)
    sources = {}
    for name, count, shape in (("mnist", MNIST, (28, 28, 1)), ("cifar", CIFAR, (32, 32, 3))):
        arrays = {"image": random.integers(0, 256, (count, *shape), np.uint8), "label": random.integers(0, 10, count)}
        for field, array in arrays.items():
            np.save(folder / f"{name}_{field}.npy", array)
        sources[name] = {"type": "npy", "fields": {field: str(folder / f"{name}_{field}.npy") for field in arrays}}
    crop = [{"random_crop": {"size": 32, "padding": 4, "padding_mode": "reflect"}}, "random_horizontal_flip"]

    def stream(source: str, batch_size: int, transforms: list[Any], dtype: str, channels: int) -> dict[str, Any]:
        normalize = {"normalize": {"mean": [0.5] * channels, "std": [0.25] * channels}}
        made = {"source": source, "batch_size": batch_size, "transforms": [*transforms, normalize], "output": {"dtype": dtype}}
        return made | {"residence": "gpu", "last": "drop"}

    cifar = stream("cifar", 500, crop, "float16", 3)
    return {
        "server": {"directory": str(folder / "run"), "metrics": "off"},
        "sources": sources,
        "streams": {
            "mnist": stream("mnist", 300, [], "float32", 1),
            "cifar": cifar,
        },
    }


def synchronize() -> None:
    if TORCH.type == "cuda":
        torch.cuda.synchronize(TORCH)


def epoch_ms(epoch: Callable[[], Batches]) -> tuple[float, float]:
    """Milliseconds until the device has computed all batches, and until the loop has received them: the best of EPOCHS epochs."""
    best = (1e9, 1e9)
    for _ in range(EPOCHS):
        synchronize()
        begun = time.perf_counter()
        for _ in epoch():
            pass
        handed = time.perf_counter()
        synchronize()
        best = min(best, (1e3 * (time.perf_counter() - begun), 1e3 * (handed - begun)))
    return best


def indexed(images: torch.Tensor, labels: torch.Tensor, batch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    order = torch.randperm(len(images), device=TORCH)
    for first in range(0, len(images) - batch + 1, batch):
        at = order[first : first + batch]
        yield images[at], labels[at]


def augmented(padded: torch.Tensor, side: int, reach: int) -> torch.Tensor:
    """Crops each image at its own random offset and flips half of them: all images at once, a pass for each vertical and horizontal offset."""
    places = torch.randint(0, 2 * reach + 1, (2, len(padded)), device=TORCH)
    rows = torch.empty(len(padded), 3, side, side + 2 * reach, dtype=padded.dtype, device=TORCH)
    out = torch.empty(len(padded), 3, side, side, dtype=padded.dtype, device=TORCH)
    for place in range(2 * reach + 1):
        here = places[0] == place
        rows[here] = padded[here, :, place : place + side, :]
    for place in range(2 * reach + 1):
        here = places[1] == place
        out[here] = rows[here, :, :, place : place + side]
    flip = (torch.rand(len(out), device=TORCH) < 0.5).view(-1, 1, 1, 1)
    return torch.where(flip, out.flip(-1), out)


def compare(address: str, stream: str, what: str, beside: str, by_torch: Callable[[], Batches]) -> None:
    with headrace.Loader(address, stream=stream, device=DEVICE, output="torch", meta=True, batch="dict") as loader:
        begun = time.perf_counter()
        seen = torch.cat([batch["sample_index"] for batch in loader]).tolist()
        first_ms = 1e3 * (time.perf_counter() - begun)
        samples = loader.info.samples
        if len(set(seen)) != len(seen) or len(seen) != samples // loader.info.batch_size * loader.info.batch_size:
            expected = samples // loader.info.batch_size * loader.info.batch_size
            sys.exit(f"residence_bench: {stream}: expected {expected} different samples in an epoch, found {len(seen)}, of which {len(set(seen))} differ")
    with headrace.Loader(address, stream=stream, device=DEVICE, output="torch") as loader:
        own, handed = epoch_ms(lambda: loader)
    theirs, _ = epoch_ms(by_torch)
    figure = {"figure": "epoch of a dataset in GPU memory", "of": what, "epoch_ms": own, "received_ms": handed, "first_epoch_ms": first_ms}
    print("[figure] " + json.dumps(figure | {"torch": beside, "torch_ms": theirs, "over_torch": own / theirs}), flush=True)


def on_device(folder: Path, name: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.from_numpy(np.load(folder / f"{name}_image.npy")).permute(0, 3, 1, 2).to(TORCH)
    labels = torch.from_numpy(np.load(folder / f"{name}_label.npy")).to(TORCH)
    return ((images.float() / 255 - 0.5) / 0.25).to(dtype), labels


def main() -> None:
    print(f"{'host' if DEVICE == 'host' else torch.cuda.get_device_name(0)}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = config(folder)
        (folder / "config.yaml").write_text(json.dumps(written))
        with headrace.serve(folder / "config.yaml") as server:
            digits, labels = on_device(folder, "mnist", torch.float32)
            compare(server.address, "mnist", f"MNIST, {MNIST} images, batches of 300, float32", "X[randperm]", lambda: indexed(digits, labels, 300))
            images, classes = on_device(folder, "cifar", torch.float16)
            padded = torch.nn.functional.pad(images, (4,) * 4, "reflect")
            what = f"CIFAR-10, {CIFAR} images, batches of 500, crop, flip, float16"
            compare(server.address, "cifar", what, "all images augmented at once, X[randperm]", lambda: indexed(augmented(padded, 32, 4), classes, 500))


if __name__ == "__main__":
    main()
