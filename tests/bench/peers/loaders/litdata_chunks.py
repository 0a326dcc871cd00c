"""LitData: chunks of its own, written beforehand (JPEG and PNG files as they are), read by StreamingDataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litdata
import numpy as np
import torch

from peers import prepare
from peers.loaders import _cv2
from peers.loaders._orders import scale_and_shift
from peers.loaders._pairs import PairTransform, decode
from peers.workloads import LONG_EPOCH, PADDING, Job

_inputs: dict[str, Any] = {}


def _small(index: int) -> Any:
    return torch.from_numpy(_inputs["images"][index]), int(_inputs["labels"][index])


def _file(index: int) -> Any:
    return Path(_inputs["images"][index]).read_bytes(), _inputs["labels"][index]


def _pair(index: int) -> Any:
    return tuple(Path(file).read_bytes() for file in _inputs["images"][index])


def written(job: Job) -> Path:
    family, scratch = job.workload.family, Path(job.scratch)

    def write(path: Path) -> None:
        if family == "pairs":
            _inputs["images"] = prepare.pair_files(scratch)
            function: Any = _pair
        elif family in ("mnist", "cifar"):
            read = prepare.mnist_arrays if family == "mnist" else prepare.cifar_arrays
            _inputs["images"], _inputs["labels"] = read(scratch)
            function = _small
        else:
            _inputs["images"], _inputs["labels"] = prepare.image_files(Path(job.data))
            function = _file
        samples = len(_inputs["images"])
        indices = list(range(samples)) * -(-LONG_EPOCH // samples)
        litdata.optimize(function, indices, str(path), chunk_bytes="64MB", num_workers=1, start_method="fork", verbose=False)

    return prepare.once(job.shared(f"litdata-{'imagenet' if family == 'color' else family}"), write)


class Transform:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._images, self._pairs = _cv2.Transform(job) if job.workload.family in ("imagenet", "color") else None, PairTransform(job)
        if job.workload.normalized:
            self._scale, self._shift = map(torch.from_numpy, scale_and_shift(job))

    def __call__(self, sample: Any) -> Any:
        family = self._job.workload.family
        if family == "pairs":
            return self._pairs(tuple(decode(content) for content in sample))  # type: ignore[arg-type]
        image, label = sample
        if self._images is not None:
            return self._images(decode(image)), label
        if family == "cifar":
            image = torch.nn.functional.pad(image, (PADDING,) * 4)
            top, left = np.random.randint(0, 2 * PADDING + 1, 2)
            image = image[:, top : top + 32, left : left + 32]
            if np.random.random() < 0.5:
                image = image.flip(2)
        if self._job.workload.normalized:
            image = (image * self._scale).sub_(self._shift)
        return image, label


def open_batches(job: Job) -> Iterator[Any]:
    torch.set_num_threads(1)
    data = litdata.StreamingDataset(str(written(job)), shuffle=True, drop_last=True, seed=job.seed, transform=Transform(job))
    workers = job.options["workers"]
    loader = litdata.StreamingDataLoader(
        data, batch_size=job.workload.batch, num_workers=workers, drop_last=True, persistent_workers=workers > 0
    )

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    return batches()
