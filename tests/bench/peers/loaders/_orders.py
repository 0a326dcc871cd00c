"""Shared by the loaders in this folder: shuffled batches of indices, and normalization."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from peers.workloads import Job


def batches_of_indices(job: Job, samples: int) -> Iterator[Any]:
    """This rank's part of each epoch, in a different order for each epoch; a batch may span two epochs."""
    world = job.workload.trainers if job.workload.delivery == "shard" else 1
    rank = job.rank if world > 1 else 0
    random = np.random.default_rng(job.seed)
    batch, left = job.workload.batch, np.empty(0, np.int64)
    while True:
        while len(left) < batch:
            left = np.concatenate([left, random.permutation(samples)[rank::world]])
        whole = len(left) // batch * batch
        for start in range(0, whole, batch):
            yield left[start : start + batch]
        left = left[whole:]


def scale_and_shift(job: Job) -> tuple[Any, Any]:
    """A normalized value is byte * scale - shift: float32, of C x 1 x 1."""
    mean, std = (np.array(values, np.float64)[:, None, None] for values in (job.mean(), job.std()))
    return (1 / (255 * std)).astype(np.float32), (mean / std).astype(np.float32)
