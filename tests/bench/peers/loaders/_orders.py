"""What loaders written here have in common: shuffled batches of indices, and the size of a normalised value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from peers.workloads import Job


def batches_of_indices(job: Job, samples: int) -> Iterator[Any]:
    """This rank's part of each epoch, in an order of its own for each epoch, in whole batches (repeated if there are fewer)."""
    world = job.workload.trainers if job.workload.delivery == "shard" else 1
    rank = job.rank if world > 1 else 0
    random = np.random.default_rng(job.seed)
    while True:
        order = random.permutation(samples)[rank::world]
        if len(order) < job.workload.batch:
            order = np.resize(order, job.workload.batch)
        for start in range(0, len(order) - job.workload.batch + 1, job.workload.batch):
            yield order[start : start + job.workload.batch]


def scale_and_shift(job: Job) -> tuple[Any, Any]:
    """A normalised value is byte * scale - shift: float32, of C x 1 x 1."""
    mean, std = (np.array(values, np.float64)[:, None, None] for values in (job.mean(), job.std()))
    return (1 / (255 * std)).astype(np.float32), (mean / std).astype(np.float32)
