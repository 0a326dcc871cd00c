"""torch.utils.data.DataLoader: TensorDataset, and map-style datasets that transform with torchvision or OpenCV."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler, TensorDataset
from torchvision.transforms import InterpolationMode, v2

from peers import prepare
from peers.loaders._orders import scale_and_shift
from peers.workloads import COLOR_SIDE, LONG_EPOCH, PADDING, Job


class Samples(Dataset[Any]):
    def __init__(self, read: Callable[[int], Any], transform: Callable[[Any], Any], labels: Any) -> None:
        self.read, self.transform, self.labels = read, transform, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.read(index)), self.labels[index]


def transform(job: Job, tensors: bool) -> Callable[[Any], Any]:
    flip = v2.RandomHorizontalFlip()
    by_family: dict[str, list[Any]] = {
        "mnist": [],
        "cifar": [v2.RandomCrop(32, padding=PADDING), flip],
        "imagenet": [v2.RandomResizedCrop(224, antialias=True), flip],
        "color": [
            v2.Resize([COLOR_SIDE, COLOR_SIDE], InterpolationMode.BILINEAR, antialias=True),
            flip,
            v2.RandomVerticalFlip(),
            v2.ColorJitter(0.3, 0.3, 0.3, 0.1),
            v2.RandomGrayscale(0.2),
        ],
    }
    steps = by_family[job.workload.family]
    if not tensors:
        steps.append(v2.PILToTensor())
    if job.workload.dtype == "float32":
        steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(job.mean(), job.std(), inplace=True)]
    if job.workload.layout == "NHWC":
        steps.append(v2.Lambda(lambda image: image.permute(1, 2, 0).contiguous()))
    return v2.Compose(steps)


def dataset(job: Job) -> Dataset[Any]:
    from PIL import Image

    family, kind, scratch = job.workload.family, job.options["kind"], Path(job.scratch)
    if family in ("mnist", "cifar"):
        images, labels = (prepare.mnist_arrays if family == "mnist" else prepare.cifar_arrays)(scratch)
        if kind == "tensors":
            scale, shift = scale_and_shift(job)
            return TensorDataset(torch.from_numpy(images * scale - shift), torch.from_numpy(labels))
        pictures = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).squeeze()
        return Samples(lambda index: Image.fromarray(pictures[index]), transform(job, False), labels)
    if family == "pairs":
        from peers.loaders import _stores  # imported here, because only pairs need lmdb and lz4

        return _stores.pairs(job, kind)
    files, classes = prepare.image_files(Path(job.data))
    if kind == "cv2":
        from peers.loaders import _cv2

        return Samples(lambda index: _cv2.read(files[index]), _cv2.Transform(job), classes)
    if kind == "tensors":
        from torchvision.io import ImageReadMode, decode_image

        return Samples(lambda index: decode_image(files[index], ImageReadMode.RGB), transform(job, True), classes)
    return Samples(lambda index: Image.open(files[index]).convert("RGB"), transform(job, False), classes)


def data_loader(job: Job) -> DataLoader[Any]:
    torch.set_num_threads(1)
    torch.manual_seed(job.seed_of_rank())
    data, workers = dataset(job), job.options["workers"]
    sharded = job.workload.trainers > 1 and job.workload.delivery == "shard"
    sampler: Any = DistributedSampler(data, job.workload.trainers, job.rank) if sharded else RandomSampler(data, num_samples=max(len(data), LONG_EPOCH))
    return DataLoader(
        data,
        batch_size=job.workload.batch,
        sampler=sampler,
        num_workers=workers,
        persistent_workers=workers > 0,
        drop_last=True,
        worker_init_fn=_seed_numpy,
    )


def open_batches(job: Job) -> Iterator[Any]:
    loader = data_loader(job)

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    return batches()


def _seed_numpy(worker: int) -> None:
    np.random.seed(torch.initial_seed() % 2**32)
