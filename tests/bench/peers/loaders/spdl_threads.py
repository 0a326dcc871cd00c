"""SPDL: a pipeline of two threads; images decoded, cropped, resized and flipped by its FFmpeg."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import spdl.io
from spdl.pipeline import PipelineBuilder

from peers import prepare
from peers.loaders._gather import Gather
from peers.loaders._orders import batches_of_indices
from peers.loaders._pairs import PairTransform, decode
from peers.workloads import Job

THREADS = 2
SIDE = 224
ONE_THREAD = spdl.io.decode_config(decoder="mjpeg", decoder_options={"threads": "1"})


class Images:
    """Indices to a batch: one filter graph per image, one buffer for all of them, normalized by numpy."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._files, labels = prepare.image_files(Path(job.data))
        self._labels = np.array(labels)
        self.samples = len(labels)
        mean, std = np.array(job.mean()), np.array(job.std())
        self._scale, self._shift = (1 / (255 * std)).astype(np.float32), (mean / std).astype(np.float32)

    def _filters(self, width: int, height: int) -> str:
        for _ in range(10):
            area = width * height * np.random.uniform(0.08, 1)
            ratio = math.exp(np.random.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                break
        else:
            w, h = width, height
        x, y = np.random.randint(width - w + 1), np.random.randint(height - h + 1)
        flip = ",hflip" if np.random.random() < 0.5 else ""
        return f"crop={w}:{h}:{x}:{y}:exact=1,scale={SIDE}:{SIDE}:flags=bilinear{flip},format=rgb24"

    def _frame(self, file: str) -> Any:
        packets = spdl.io.demux_image(file)
        return spdl.io.decode_packets(packets, filter_desc=self._filters(packets.width, packets.height), decode_config=ONE_THREAD)

    def __call__(self, rows: Any) -> tuple[Any, Any]:
        frames = [self._frame(self._files[row]) for row in rows]
        batch = spdl.io.to_numpy(spdl.io.convert_frames(frames))
        if self._job.workload.normalized:
            batch = batch * self._scale
            batch -= self._shift
        if self._job.workload.layout == "NCHW":
            batch = np.ascontiguousarray(batch.transpose(0, 3, 1, 2))
        return batch, self._labels[rows]


class Pairs:
    """Indices to a batch of pairs that are decoded each time."""

    def __init__(self, job: Job) -> None:
        self._files, self._transform = prepare.pair_files(Path(job.scratch)), PairTransform(job)
        self.samples = len(self._files)

    def __call__(self, rows: Any) -> tuple[Any, Any]:
        return self._transform.batch(
            [tuple(decode(Path(file).read_bytes()) for file in self._files[row]) for row in rows]  # type: ignore[misc]
        )


def open_batches(job: Job) -> Iterator[Any]:
    if job.workload.family == "imagenet":
        work: Any = Images(job)
    else:
        work = Pairs(job) if job.workload.group == "uncached" else Gather(job)
    order = batches_of_indices(job, work.samples)
    pipeline = PipelineBuilder().add_source(order).pipe(work, concurrency=THREADS).add_sink(2).build(num_threads=THREADS)

    def batches() -> Iterator[Any]:
        with pipeline.auto_stop():
            yield from pipeline.get_iterator(timeout=60)

    return batches()
