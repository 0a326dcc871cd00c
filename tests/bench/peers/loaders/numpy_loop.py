"""No loader: whole arrays in memory, gathered and transformed by numpy in the trainer's loop, vectorized over the batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from peers.loaders._gather import Gather
from peers.loaders._orders import batches_of_indices
from peers.workloads import Job


def open_batches(job: Job) -> Iterator[Any]:
    gather = Gather(job)
    return map(gather, batches_of_indices(job, gather.samples))
