"""Runs whole trainings of bindings/examples with four loaders, one after the other, and reports seconds per epoch and accuracy of each.

  train_epochs.py mnist|cifar [DEVICE] [--data DIR] [--epochs 3] [--workers 8]

The loaders are Headrace, Headrace with its dataset in GPU memory (`residence: gpu`), torch's DataLoader, and tensors that the script itself
keeps in GPU memory. Without --data the data is synthetic: then the accuracy shows only that all four learn.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch.nn.functional import pad

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "bindings" / "examples"
sys.path[:0] = [str(EXAMPLES), str(ROOT / "tests" / "bench")]

PROGRAMS = {"mnist": "mnist_mlp", "cifar": "cifar10_vgg"}
MEANS = {"mnist": ((0.1307,), (0.3081,)), "cifar": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))}
CIFAR_TRAIN, CIFAR_TEST = [f"data_batch_{part}.bin" for part in range(1, 6)], ["test_batch.bin"]


def make_up(data: Path, name: str, train: int, test: int) -> None:
    """Writes synthetic data in the dataset's own file format: each image is its class's image with noise."""
    from training import files

    random = np.random.default_rng(0)
    shape = (28, 28) if name == "mnist" else (3, 32, 32)
    centers = random.integers(64, 192, (10, *shape))
    for part, count in (("train", train), ("t10k", test)):
        labels = random.integers(0, 10, count)
        images = np.empty((count, *shape), np.uint8)
        for first in range(0, count, 5000):
            at = slice(first, first + 5000)
            noise = random.normal(0, 80, images[at].shape).astype(np.float32)
            images[at] = np.clip(centers[labels[at]] + noise, 0, 255)
        if name == "mnist":
            files.write_mnist(data, part, images, labels)
        else:
            files.write_cifar(data, CIFAR_TRAIN if part == "train" else CIFAR_TEST, images, labels)


def read(data: Path, name: str, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    if name == "mnist":
        raw = data / "MNIST" / "raw"
        images = np.fromfile(raw / f"{part}-images-idx3-ubyte", np.uint8, offset=16).reshape(-1, 1, 28, 28)
        return torch.from_numpy(images), torch.from_numpy(np.fromfile(raw / f"{part}-labels-idx1-ubyte", np.uint8, offset=8).astype(np.int64))
    records = np.concatenate([np.fromfile(data / "cifar-10-batches-bin" / file, np.uint8).reshape(-1, 3073) for file in (CIFAR_TRAIN if part == "train" else CIFAR_TEST)])
    return torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy()), torch.from_numpy(records[:, 0].astype(np.int64))


class OnDevice:
    """The dataset as a normalized tensor on the device. Batches are X[randperm]; CIFAR-10's training set has a crop and a flip per image."""

    def __init__(self, data: Path, name: str, part: str, batch_size: int, device: str) -> None:
        images, labels = read(data, name, part)
        mean, std = (torch.tensor(values, device=device).view(1, -1, 1, 1) for values in MEANS[name])
        self.images = (images.to(device).float() / 255 - mean) / std
        self.labels = labels.to(device)
        self.batch_size, self.train, self.crop = batch_size, part == "train", name == "cifar" and part == "train"
        if self.crop:
            self.images = pad(self.images, (4, 4, 4, 4))

    def __len__(self) -> int:
        return -(-len(self.labels) // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        pass

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        count, device = len(self.labels), self.labels.device
        order = torch.randperm(count, device=device) if self.train else torch.arange(count, device=device)
        for at in order.split(self.batch_size):
            yield (self.cropped(at) if self.crop else self.images[at]), self.labels[at]

    def cropped(self, at: torch.Tensor) -> torch.Tensor:
        device, side = at.device, torch.arange(32, device=at.device)
        top, left = torch.randint(0, 9, (2, len(at), 1), device=device)
        columns = torch.where(torch.rand(len(at), 1, device=device) < 0.5, side.flip(0), side) + left
        return self.images[at[:, None, None], :, (top + side)[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def of_program(command: list[str]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"train_epochs: {' '.join(command)} ended with status {done.returncode}")
    line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return line


def held_on_device(data: Path, name: str, options: list[str]) -> dict[str, Any]:
    """Runs the example's own model and loop, with OnDevice instead of its loaders."""
    example: Any = importlib.import_module(PROGRAMS[name])
    sys.argv = [PROGRAMS[name], *options]
    program = EXAMPLES / f"{PROGRAMS[name]}.py"
    given = example.arguments(str(program), "", epochs=1, batch_size=1, **({"width": 16} if name == "cifar" else {}))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        example.train(given, OnDevice(data, name, "train", given.batch_size, given.device), OnDevice(data, name, "t10k", 500, given.device))
    line: dict[str, Any] = json.loads(printed.getvalue())
    return line


def configs(folder: Path, name: str) -> dict[str, Path]:
    """The example's configuration, and the same with the training set in GPU memory."""
    written = {}
    for loader, more in (("Headrace", {}), ("Headrace, dataset in GPU memory", {"residence": "gpu"})):
        config = yaml.safe_load((EXAMPLES / f"{PROGRAMS[name]}.yaml").read_text())
        config["server"] = {"metrics": "off"}  # safe_load() reads the file's `off` as false (YAML 1.1)
        config["streams"]["train"] |= more
        written[loader] = folder / f"{len(written)}.yaml"
        written[loader].write_text(json.dumps(config))
    return written


def report(arguments: argparse.Namespace, loader: str, line: dict[str, Any]) -> None:
    """Prints a figure at once, so that it is kept if the stage runs out of time later."""
    figure = {"figure": "training", "set": arguments.set, "data": "real" if arguments.data else "synthetic", "loader": loader}
    figure |= {"s_per_epoch": line["seconds_per_epoch"], "wait_share": line["wait_share"], "accuracy": line["last"]["accuracy"]}
    figure |= {"epochs": arguments.epochs, "batch": line["batch_size"]}
    print(("[figure] " if arguments.device != "host" else "tried   ") + json.dumps(figure), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=list(PROGRAMS), help="the dataset")
    parser.add_argument("device", nargs="?", default="cuda", help='"cuda", "cuda:N", or "host" to try the program on the CPU with small datasets (default: cuda)')
    parser.add_argument("--data", type=Path, help="the folder that bindings/examples/README.md calls data/ (default: synthetic data)")
    parser.add_argument("--epochs", type=int, default=3, help="epochs of each training (default: 3)")
    parser.add_argument("--workers", type=int, default=8, help="worker processes of torch's DataLoader (default: 8)")
    arguments = parser.parse_args()
    name, on_gpu = arguments.set, arguments.device != "host"
    batch = {"mnist": 300, "cifar": 500}[name]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data = folder / "data"
        if arguments.data:
            data.symlink_to(arguments.data.resolve())  # the configurations name data/
        else:
            make_up(data, name, *((60_000 if name == "mnist" else 50_000, 10_000) if on_gpu else (1000, 500)))
        options = ["--epochs", str(arguments.epochs), "--batch-size", str(batch), "--device", arguments.device if on_gpu else "cpu"]
        options += ["--width", "32" if on_gpu else "4"] if name == "cifar" else []
        program = str(EXAMPLES / PROGRAMS[name])
        report(arguments, "tensors in GPU memory", held_on_device(data, name, options))
        for loader, config in configs(folder, name).items():
            if on_gpu or loader == "Headrace":
                report(arguments, loader, of_program([f"{program}.py", "--config", str(config), *options]))
        report(arguments, "DataLoader", of_program([f"{program}_dataloader.py", "--data", str(data), "--workers", str(arguments.workers), *options]))


if __name__ == "__main__":
    main()
