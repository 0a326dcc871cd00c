"""Grain: a MapDataset over indices, shuffled anew each epoch, read by two threads (or `processes`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np

from peers import prepare
from peers.loaders import _cv2
from peers.loaders._gather import Gather
from peers.loaders._pairs import PairTransform, decode
from peers.workloads import Job

THREADS = 2


def stacked(samples: Any) -> tuple[Any, ...]:
    return tuple(np.stack(column) for column in zip(*samples, strict=True))


def open_batches(job: Job) -> Iterator[Any]:
    workload = job.workload
    if workload.family in ("mnist", "cifar") or workload.group == "cached":
        gather = Gather(job)  # a whole batch at once
        made = _shuffled(gather.samples, job).batch(workload.batch, drop_remainder=True, batch_fn=lambda rows: gather(np.array(rows)))
    elif workload.family == "pairs":
        files, cut = prepare.pair_files(Path(job.scratch)), PairTransform(job)
        pairs = _shuffled(len(files), job)
        pairs = pairs.map(lambda row: cut(tuple(decode(Path(file).read_bytes()) for file in files[row])))  # type: ignore[arg-type]
        made = pairs.batch(workload.batch, drop_remainder=True, batch_fn=stacked)
    else:
        names, labels = prepare.image_files(Path(job.data))
        transform = _cv2.Transform(job)
        images = _shuffled(len(names), job).map(lambda row: (transform(_cv2.read(names[row])), labels[row]))
        made = images.batch(workload.batch, drop_remainder=True, batch_fn=stacked)
    ahead = 2 if workload.family in ("mnist", "cifar") or workload.group == "cached" else 2 * workload.batch
    return iter(made.to_iter_dataset(grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=min(ahead, 16))))


def _shuffled(samples: int, job: Job) -> Any:
    data = grain.MapDataset.range(samples)
    if job.workload.trainers > 1 and job.workload.delivery == "shard":
        data = data[job.rank :: job.workload.trainers]
    return data.seed(job.seed).shuffle().repeat()
