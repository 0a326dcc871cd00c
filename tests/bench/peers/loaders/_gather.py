"""Batches from arrays in memory, vectorized over the batch: for the loop without a loader, and for loaders that run functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from peers import prepare
from peers.loaders._orders import scale_and_shift
from peers.loaders._pairs import PairTransform, decoded_pairs
from peers.workloads import PADDING, Job


class Gather:
    """Indices to (images, labels), or to (lr, hr). May be called from several threads."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._random = np.random.SeedSequence(job.seed_of_rank())
        family = job.workload.family
        if family == "pairs":
            self._pairs, self._transform = decoded_pairs(Path(job.scratch)), PairTransform(job)
            self.samples = len(self._pairs)
            return
        read = prepare.mnist_arrays if family == "mnist" else prepare.cifar_arrays
        self._images, self._labels = read(Path(job.scratch))
        self.samples = len(self._images)
        self._scale, self._shift = scale_and_shift(job)
        if job.options.get("normalized"):
            self._images = self._images * self._scale - self._shift
        if family == "cifar":
            around = ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING))
            side = self._images.shape[-1]
            padded = np.pad(self._images, around)
            self._windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side), axis=(2, 3))

    def __call__(self, rows: Any) -> tuple[Any, Any]:
        if self._job.workload.family == "pairs":
            return self._transform.batch([self._pairs[row] for row in rows])
        batch = self._images[rows] if self._job.workload.family == "mnist" else self._cropped(rows)
        if self._job.workload.normalized and batch.dtype == np.uint8:
            batch = batch * self._scale
            batch -= self._shift
        return batch, self._labels[rows]

    def _cropped(self, rows: Any) -> Any:
        random = np.random.default_rng(self._random.spawn(1)[0])
        top, left = random.integers(0, 2 * PADDING + 1, (2, len(rows)))
        batch = self._windows[rows, :, top, left]
        flipped = random.random(len(rows)) < 0.5
        batch[flipped] = batch[flipped, :, :, ::-1]
        return batch
