"""Trains a ResNet on JPEGs with several loaders that take turns, and reports images/s beside those of one batch that stays on the device.

  train_resnet.py [DEVICE] [--nets resnet18 resnet50] [--jpegs DIR]

Each loader decodes a JPEG, crops and resizes a random part to 224 x 224, flips half of the images, and normalizes:

  Headrace                the server does all of it and publishes float16
  Headrace, device: gpu   the server publishes uint8, and a kernel on the device flips and normalizes
  DataLoader              Pillow and torchvision in worker processes, `pin_memory`, and copies with `non_blocking`

`share_of_bound` is the speed as a fraction of the bound; the rest is time that the GPU waited. The bound is the loop's fastest turn with one
batch that stays on the device, because DataLoader workers that still fill their queues slow down the turn after theirs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headrace
import torch
import torchvision

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
TYPES = {"cuda": torch.float16, "cpu": torch.float32}  # of images
Batch = tuple[torch.Tensor, torch.Tensor]


def config(folder: Path, pictures: Path, batch: int) -> Path:
    chain = [{"random_resized_crop": 224}, "random_horizontal_flip", {"normalize": {"mean": MEAN, "std": STD}}]
    stream = {"source": "set", "batch_size": batch, "last": "drop", "transforms": chain, "output": {"dtype": "float16"}}
    sources = {"set": {"type": "image_folder", "path": str(pictures)}}
    written = folder / "config.yaml"
    written.write_text(json.dumps({"server": {"metrics": "off"}, "sources": sources, "streams": {"finished": stream, "kernel": stream | {"device": "gpu"}}}))
    return written


def endless(loader: Any, device: torch.device) -> Iterator[Batch]:
    while True:
        for image, label in loader:
            yield image.to(device, TYPES[device.type], non_blocking=True), label.to(device, torch.int64, non_blocking=True)


def by_dataloader(pictures: Path, batch: int, workers: int) -> torch.utils.data.DataLoader[Any]:
    from torchvision import transforms as t

    chain = t.Compose([t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(MEAN, STD)])
    once = torchvision.datasets.ImageFolder(str(pictures), chain)
    # Long epochs: at the end of each, all workers but those with the last batches are idle.
    dataset = torch.utils.data.ConcatDataset([once] * (1 + 100 * batch // len(once)))
    return torch.utils.data.DataLoader(dataset, batch, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=True, pin_memory=True, prefetch_factor=4, timeout=20)


class Training:
    """A net and its optimizer. Later turns continue its training."""

    def __init__(self, net: str, classes: int, device: torch.device) -> None:
        torch.manual_seed(0)
        self._model = torchvision.models.get_model(net, num_classes=classes).to(device, memory_format=torch.channels_last)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01, momentum=0.9)
        self._device = device

    def rate(self, batches: Iterator[Batch], steps: int) -> tuple[float, float]:
        """Images/s of `steps` steps, and the fraction of the time that the loop waited for `batches`."""
        waited, images = 0.0, 0
        self._synchronize()
        begun = time.perf_counter()
        for _ in range(steps):
            asked = time.perf_counter()
            image, label = next(batches)
            waited += time.perf_counter() - asked
            with torch.autocast("cuda", torch.float16, enabled=self._device.type == "cuda"):
                loss = torch.nn.functional.cross_entropy(self._model(image.contiguous(memory_format=torch.channels_last)), label)
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            images += len(image)
        self._synchronize()
        seconds = time.perf_counter() - begun
        return images / seconds, waited / seconds

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", default="cuda:0", help='"cuda:N", or "host" for a short trial on the CPU, which ignores the other options (default: cuda:0)')
    parser.add_argument("--nets", nargs="+", default=["resnet18", "resnet50"], help="models of torchvision (default: resnet18 resnet50)")
    parser.add_argument("--batch", type=int, default=128, help="images in a batch (default: 128)")
    parser.add_argument("--steps", type=int, default=40, help="steps of each turn (default: 40)")
    parser.add_argument("--turns", type=int, default=3, help="turns of each loader; the median is reported, of one batch the fastest (default: 3)")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="worker processes of the DataLoader (default: one per core)")
    parser.add_argument("--jpegs", type=Path, help="a folder of JPEGs with a sub-folder per class (default: synthetic images)")
    given = parser.parse_args()
    import made_up

    on_gpu = given.device != "host"
    device = torch.device(given.device if on_gpu else "cpu")
    if not on_gpu:
        given.batch, given.steps, given.turns, given.workers, given.nets = 2, 1, 1, 1, given.nets[:1]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pictures = given.jpegs.resolve() if given.jpegs else made_up.imagenet(folder)
        classes = sum(path.is_dir() for path in pictures.iterdir())
        measure(given, device, config(folder, pictures, given.batch), pictures, classes)


def measure(given: argparse.Namespace, device: torch.device, server_config: Path, pictures: Path, classes: int) -> None:
    fixed = torch.rand(given.batch, 3, 224, 224, device=device, dtype=TYPES[device.type]), torch.randint(0, classes, (given.batch,), device=device)
    dataloader = by_dataloader(pictures, given.batch, given.workers)

    def by_headrace(address: str, stream: str) -> Iterator[Batch]:
        with headrace.Loader(address, stream=stream, device=given.device) as loader:
            yield from endless(loader, device)

    with headrace.serve(server_config) as server:
        loaders: dict[str, Callable[[], Iterator[Batch]]] = {
            "one batch": lambda: itertools.repeat(fixed),
            "Headrace": lambda: by_headrace(server.address, "finished"),
            "Headrace, device: gpu": lambda: by_headrace(server.address, "kernel"),
            "DataLoader": lambda: endless(dataloader, device),
        }
        for net in given.nets:
            training = Training(net, classes, device)
            rates: dict[str, list[tuple[float, float]]] = {name: [] for name in loaders}
            for _ in range(given.turns):
                for name, make in loaders.items():  # one at a time, so that loaders do not compete for cores
                    batches = make()
                    try:
                        training.rate(batches, 1 + given.steps // 4)  # starts workers and fills queues
                        rates[name].append(training.rate(batches, given.steps))
                    except RuntimeError as error:  # a worker that ended or hangs
                        print(f"[not run] {name}: {str(error).splitlines()[0]}", flush=True)
                    del batches
            bound = max(rate for rate, _ in rates["one batch"])
            rates["one batch"] = [turn for turn in rates["one batch"] if turn[0] == bound]
            for name, turns in rates.items():
                if not turns:
                    continue
                rate, waited = (statistics.median(values) for values in zip(*turns, strict=True))
                figure = {"figure": "ResNet on JPEGs", "data": "real" if given.jpegs else "synthetic", "net": net, "loader": name, "images_per_s": rate}
                figure |= {"share_of_bound": rate / bound, "wait_share": waited, "batch": given.batch}
                print(("[figure] " if given.device != "host" else "tried   ") + json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
