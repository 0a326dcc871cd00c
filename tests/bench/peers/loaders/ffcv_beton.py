"""FFCV: two threads over a file in its own format, written beforehand. Its JPEGs are encoded again (quality 90, at most 500 pixels wide).

Its crops are resized by OpenCV's INTER_AREA.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # Numba's threads would burn their idle time

import numpy as np
import torch
from ffcv.fields import IntField, NDArrayField, RGBImageField
from ffcv.fields.decoders import (
    IntDecoder,
    NDArrayDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import (
    Convert,
    NormalizeImage,
    RandomHorizontalFlip,
    RandomTranslate,
    ToTensor,
    ToTorchImage,
)
from ffcv.writer import DatasetWriter

from peers import prepare
from peers.workloads import LONG_EPOCH, PADDING, Job

WORKERS = 2
MOST_PIXELS = 500


class Samples:
    def __init__(self, job: Job) -> None:
        self._family = job.workload.family
        if self._family == "imagenet":
            self._images, self._labels = prepare.image_files(Path(job.data))
            return
        read = prepare.mnist_arrays if self._family == "mnist" else prepare.cifar_arrays
        self._images, self._labels = read(Path(job.scratch))

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> Any:
        image, label = self._images[index], int(self._labels[index])
        if self._family == "imagenet":
            from PIL import Image

            return Image.open(image).convert("RGB"), label
        return (image if self._family == "mnist" else np.ascontiguousarray(image.transpose(1, 2, 0))), label


def written(job: Job) -> Path:
    fields = {
        "mnist": lambda: NDArrayField(np.dtype("uint8"), (1, 28, 28)),
        "cifar": RGBImageField,
        "imagenet": lambda: RGBImageField(write_mode="jpg", max_resolution=MOST_PIXELS, jpeg_quality=90),
    }

    def write(path: Path) -> None:
        field = fields[job.workload.family]()
        writer = DatasetWriter(str(path), {"image": field, "label": IntField()}, num_workers=WORKERS)
        writer.from_indexed_dataset(Samples(job))

    return prepare.once(job.shared(f"{job.workload.family}.beton"), write)


class Normalize(torch.nn.Module):
    """NormalizeImage for fields of type NDArrayField."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._scale, self._shift = 1 / (255 * job.std()[0]), job.mean()[0] / job.std()[0]

    def forward(self, batch: Any) -> Any:
        return (batch * self._scale).sub_(self._shift)


def steps(job: Job) -> list[Any]:
    mean, std = np.array(job.mean()) * 255, np.array(job.std()) * 255
    normalize = [NormalizeImage(mean, std, np.float32)] if job.workload.normalized else []
    to_image = [ToTensor(), ToTorchImage(channels_last=False)] if job.workload.layout == "NCHW" else [ToTensor()]
    if job.workload.family == "mnist":
        made: list[Any] = [NDArrayDecoder(), ToTensor()]
        return [*made, Convert(torch.float32), Normalize(job)] if job.workload.normalized else made
    if job.workload.family == "cifar":
        drawn = [SimpleRGBImageDecoder(), RandomHorizontalFlip(), RandomTranslate(padding=PADDING)]
        return [*drawn, *normalize, *to_image]
    return [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip(), *normalize, *to_image]


def open_batches(job: Job) -> Iterator[Any]:
    torch.set_num_threads(1)
    path, samples = written(job), len(Samples(job))
    loader = Loader(
        str(path),
        indices=np.tile(np.arange(samples), -(-LONG_EPOCH // samples)),
        batch_size=job.workload.batch,
        num_workers=WORKERS,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=True,
        seed=job.seed_of_rank(),
        pipelines={"image": steps(job), "label": [IntDecoder(), ToTensor()]},
    )

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    return batches()
