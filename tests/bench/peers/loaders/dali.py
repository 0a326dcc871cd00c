"""NVIDIA DALI on the CPU, two threads. Batches are views of its output, valid until the next one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from nvidia.dali import fn, math, pipeline_def, types

from peers import prepare
from peers.loaders._orders import batches_of_indices
from peers.loaders._pairs import decoded_pairs
from peers.workloads import COLOR_SIDE, PADDING, PATCH, SCALE, Job

THREADS = 2


def normalized(job: Job, image: Any, **crop: Any) -> Any:
    """Crop, flip, normalize and layout in DALI's single operator."""
    mean, std = [0.0], [255.0 if job.workload.dtype == "float32" else 1.0]
    if job.workload.normalized:
        mean, std = [255 * value for value in job.mean()], [255 * value for value in job.std()]
    dtype = types.FLOAT if job.workload.dtype == "float32" else types.UINT8
    layout = "CHW" if job.workload.layout == "NCHW" else "HWC"
    return fn.crop_mirror_normalize(image, mean=mean, std=std, dtype=dtype, output_layout=layout, **crop)


def coin() -> Any:
    return fn.random.coin_flip(probability=0.5)


def arrays(job: Job) -> tuple[Any, Any]:
    """Batches of H x W x C samples, and their labels."""
    read = prepare.mnist_arrays if job.workload.family == "mnist" else prepare.cifar_arrays
    images, labels = read(Path(job.scratch))
    images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    order = batches_of_indices(job, len(images))

    def gather() -> tuple[Any, Any]:
        rows = next(order)
        return images[rows], labels[rows][:, None]

    return fn.external_source(source=gather, num_outputs=2, batch=True, layout=["HWC", ""], no_copy=True)


def small(job: Job) -> tuple[Any, Any]:
    image, label = arrays(job)
    if job.workload.family == "mnist":
        return normalized(job, image), label
    place = {f"crop_pos_{axis}": fn.random.uniform(range=(0, 1)) for axis in "xy"}
    side = 32 + 2 * PADDING
    padded = fn.crop(image, crop=(side, side), out_of_bounds_policy="pad", fill_values=[0])
    return normalized(job, padded, crop=(32, 32), mirror=coin(), **place), label


def files(job: Job) -> tuple[Any, Any]:
    names, classes = prepare.image_files(Path(job.data))
    encoded, label = fn.readers.file(
        files=names, labels=classes, random_shuffle=True, initial_fill=len(names), seed=job.seed_of_rank(), name="files"
    )
    if job.workload.family == "imagenet":
        image = fn.decoders.image_random_crop(encoded, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3])
        image = fn.resize(image, size=[224, 224], interp_type=types.INTERP_LINEAR, antialias=True)
        return normalized(job, image, mirror=coin()), label
    image = fn.resize(fn.decoders.image(encoded), size=[COLOR_SIDE] * 2, interp_type=types.INTERP_LINEAR, antialias=True)
    image = fn.flip(image, horizontal=coin(), vertical=coin())
    by = [fn.random.uniform(range=(0.7, 1.3)) for _ in range(3)]
    gray = fn.random.coin_flip(probability=0.2)
    image = fn.color_twist(
        image,
        brightness=by[0],
        contrast=by[1],
        saturation=by[2] * (1 - gray),  # a saturation of 0 is gray
        hue=fn.random.uniform(range=(-36, 36)),
    )
    return normalized(job, image), label


def pairs(job: Job) -> tuple[Any, Any]:
    """Flips and a transposition: the same eight orientations as flips and quarter turns."""
    if job.workload.group == "cached":
        order, decoded = batches_of_indices(job, len(prepare.pair_files(Path(job.scratch)))), decoded_pairs(Path(job.scratch))

        def gather() -> tuple[Any, Any]:
            rows = next(order)
            return [decoded[row][0] for row in rows], [decoded[row][1] for row in rows]

        images = fn.external_source(source=gather, num_outputs=2, batch=True, layout="HWC", no_copy=True)
    else:
        files = prepare.pair_files(Path(job.scratch))
        options = {"random_shuffle": True, "initial_fill": 100, "seed": job.seed}
        images = [fn.decoders.image(fn.readers.file(files=[pair[which] for pair in files], **options)[0]) for which in (0, 1)]
    room = images[0].shape()[:2] - (PATCH - 1)
    start = fn.cast(math.floor(fn.random.uniform(range=(0.0, 0.9999999), shape=[2]) * room), dtype=types.INT32)
    across, down, turn = coin(), coin(), fn.random.coin_flip(probability=0.5, dtype=types.BOOL)
    made = []
    for index, scale in ((0, 1), (1, SCALE)):
        patch = fn.slice(images[index], start=start * scale, shape=[PATCH * scale] * 2, axes=[0, 1])
        patch = fn.flip(patch, horizontal=across, vertical=down)
        if turn:
            turned = fn.transpose(patch, perm=[1, 0, 2], transpose_layout=False)
        else:
            turned = fn.copy(patch)
        made.append(normalized(job, turned))
    return made[0], made[1]


def plan(job: Job) -> tuple[Any, Any]:
    family = job.workload.family
    return small(job) if family in ("mnist", "cifar") else files(job)


def build(job: Job) -> Any:
    wanted = pairs if job.workload.family == "pairs" else plan
    options = {"batch_size": job.workload.batch, "num_threads": THREADS, "device_id": None, "prefetch_queue_depth": 2}
    made = pipeline_def(wanted, enable_conditionals=True)(job, seed=job.seed_of_rank(), **options)
    made.build()
    return made


def open_batches(job: Job) -> Iterator[Any]:
    made = build(job)

    def batches() -> Iterator[Any]:
        while True:
            yield tuple(np.asarray(output.as_tensor()) for output in made.run())

    return batches()
