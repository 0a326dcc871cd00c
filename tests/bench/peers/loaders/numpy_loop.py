"""No loader: whole arrays in memory, gathered and transformed by numpy in the trainer's loop, vectorised over the batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from peers import prepare
from peers.loaders._orders import batches_of_indices, scale_and_shift
from peers.workloads import PADDING, Job


def open_batches(job: Job) -> Iterator[Any]:
    return {"mnist": mnist, "cifar": cifar}[job.workload.family](job)


def mnist(job: Job) -> Iterator[Any]:
    images, labels = prepare.mnist_arrays(Path(job.scratch))
    scale, shift = scale_and_shift(job)
    if job.options.get("normalised"):
        images = images * scale - shift
    for rows in batches_of_indices(job, len(images)):
        batch = images[rows]
        if job.workload.normalised and batch.dtype == np.uint8:
            batch = batch * scale
            batch -= shift
        yield batch, labels[rows]


def cifar(job: Job) -> Iterator[Any]:
    images, labels = prepare.cifar_arrays(Path(job.scratch))
    side = images.shape[-1]
    around = ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(images, around), (side, side), axis=(2, 3))
    scale, shift = scale_and_shift(job)
    random = np.random.default_rng(job.seed_of_rank())
    for rows in batches_of_indices(job, len(images)):
        top, left = random.integers(0, 2 * PADDING + 1, (2, len(rows)))
        batch = windows[rows, :, top, left]
        flipped = random.random(len(rows)) < 0.5
        batch[flipped] = batch[flipped, :, :, ::-1]
        if job.workload.normalised:
            batch = batch * scale
            batch -= shift
        yield batch, labels[rows]
