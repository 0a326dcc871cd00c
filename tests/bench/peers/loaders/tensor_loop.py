"""No loader: the same loop in torch on one thread, over torch.randperm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from peers import prepare
from peers.loaders._orders import batches_of_indices, scale_and_shift
from peers.workloads import PADDING, Job


def open_batches(job: Job) -> Iterator[Any]:
    torch.set_num_threads(1)
    cropped = job.workload.family == "cifar"
    images, labels = map(torch.from_numpy, (prepare.cifar_arrays if cropped else prepare.mnist_arrays)(Path(job.scratch)))
    scale, shift = map(torch.from_numpy, scale_and_shift(job))
    if job.options.get("normalized"):
        images = images * scale - shift
    side = images.shape[-1]
    windows = torch.nn.functional.pad(images, (PADDING,) * 4).unfold(2, side, 1).unfold(3, side, 1) if cropped else None
    random = torch.Generator().manual_seed(job.seed_of_rank())
    for rows in map(torch.from_numpy, batches_of_indices(job, len(images))):
        if windows is None:
            batch = images[rows]
        else:
            top, left = torch.randint(0, 2 * PADDING + 1, (2, len(rows)), generator=random)
            batch = windows[rows, :, top, left]
            flipped = torch.rand(len(rows), generator=random) < 0.5
            batch[flipped] = batch[flipped].flip(3)
        if job.workload.normalized and batch.dtype == torch.uint8:
            batch = (batch * scale).sub_(shift)
        yield batch, labels[rows]
