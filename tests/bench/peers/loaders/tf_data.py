"""tf.data, a private pool of two threads. Small images are gathered by the batch; `cache()` holds decoded pairs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from peers import prepare  # noqa: E402
from peers.loaders._orders import scale_and_shift  # noqa: E402
from peers.workloads import COLOR_SIDE, PADDING, PATCH, SCALE, Job  # noqa: E402

THREADS = 2


def chance(probability: float = 0.5) -> Any:
    return tf.random.uniform(()) < probability


def normalized(job: Job, image: Any) -> Any:
    """Images of H x W x 3 with values of 0 to 255, uint8 or float32."""
    if job.workload.normalized:
        scale, shift = (values.reshape(-1) for values in scale_and_shift(job))
        image = tf.cast(image, tf.float32) * scale - shift
    elif image.dtype != tf.uint8:
        image = tf.saturate_cast(tf.round(image), tf.uint8)
    return tf.transpose(image, (2, 0, 1)) if job.workload.layout == "NCHW" else image


def small(job: Job) -> Any:
    read = prepare.mnist_arrays if job.workload.family == "mnist" else prepare.cifar_arrays
    images, labels = read(Path(job.scratch))
    scale, shift = scale_and_shift(job)
    classes = tf.constant(labels)
    if job.workload.family == "mnist":
        pixels = tf.constant(images)
    else:  # pixels one below the other: a crop is a gather of them
        padded = np.pad(images, ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING)))
        side = padded.shape[-1]
        pixels = tf.constant(np.ascontiguousarray(padded.transpose(0, 2, 3, 1)).reshape(-1, 3))

    def cropped(rows: Any) -> Any:
        count, within = tf.shape(rows)[0], tf.range(32)
        down, right = (tf.random.uniform((count, 1), 0, 2 * PADDING + 1, tf.int32) + within for _ in range(2))
        right = tf.where(tf.random.uniform((count, 1)) < 0.5, tf.reverse(right, [1]), right)
        first = tf.cast(rows, tf.int32)[:, None, None] * (side * side)
        return tf.transpose(tf.gather(pixels, first + down[:, :, None] * side + right[:, None, :]), (0, 3, 1, 2))

    def gather(rows: Any) -> Any:
        batch = tf.gather(pixels, rows) if job.workload.family == "mnist" else cropped(rows)
        if job.workload.normalized:
            batch = tf.cast(batch, tf.float32) * scale - shift
        return batch, tf.gather(classes, rows)

    world = job.workload.trainers
    rows = tf.data.Dataset.range(len(labels)).shard(world, job.rank) if world > 1 else tf.data.Dataset.range(len(labels))
    rows = rows.shuffle(len(labels) // world, seed=job.seed).repeat()
    return rows.batch(job.workload.batch, drop_remainder=True).map(gather, THREADS)


def image(job: Job, file: Any, label: Any) -> Any:
    content = tf.io.read_file(file)
    if job.workload.family == "imagenet":
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.image.extract_jpeg_shape(content),
            tf.zeros((1, 0, 4)),
            area_range=(0.08, 1.0),
            aspect_ratio_range=(3 / 4, 4 / 3),
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.concat([begin[:2], size[:2]], 0)
        pixels = tf.image.decode_and_crop_jpeg(content, window, channels=3, dct_method="INTEGER_ACCURATE")
        pixels = tf.image.resize(pixels, (224, 224), antialias=True)
        return normalized(job, tf.cond(chance(), lambda: tf.reverse(pixels, [1]), lambda: pixels)), label
    pixels = tf.image.decode_jpeg(content, channels=3, dct_method="INTEGER_ACCURATE")
    pixels = tf.image.resize(pixels, (COLOR_SIDE, COLOR_SIDE), antialias=True) / 255
    for axis in (0, 1):
        pixels = tf.cond(chance(), lambda axis=axis: tf.reverse(pixels, [axis]), lambda: pixels)  # noqa: B023
    pixels = tf.clip_by_value(pixels * tf.random.uniform((), 0.7, 1.3), 0, 1)
    gray = tf.reduce_mean(tf.image.rgb_to_grayscale(pixels))
    pixels = tf.clip_by_value(gray + (pixels - gray) * tf.random.uniform((), 0.7, 1.3), 0, 1)
    pixels = tf.image.random_hue(tf.image.random_saturation(pixels, 0.7, 1.3), 0.1)
    maybe_gray = tf.cond(chance(0.2), lambda: tf.repeat(tf.image.rgb_to_grayscale(pixels), 3, 2), lambda: pixels)
    return normalized(job, maybe_gray * 255), label


def patches(job: Job, low: Any, high: Any) -> Any:
    top, left = (tf.random.uniform((), 0, tf.shape(low)[axis] - PATCH + 1, tf.int32) for axis in (0, 1))
    flips, turns = [chance(), chance()], tf.random.uniform((), 0, 4, tf.int32)
    made = []
    for pixels, scale in ((low, 1), (high, SCALE)):
        patch = pixels[top * scale : (top + PATCH) * scale, left * scale : (left + PATCH) * scale]
        for axis in (0, 1):
            patch = tf.cond(flips[axis], lambda p=patch, a=axis: tf.reverse(p, [a]), lambda p=patch: p)
        patch = tf.transpose(tf.ensure_shape(tf.image.rot90(patch, turns), (PATCH * scale, PATCH * scale, 3)), (2, 0, 1))
        made.append(tf.cast(patch, tf.float32) * (1 / 255) if job.workload.dtype == "float32" else patch)
    return tuple(made)


def pairs(job: Job) -> Any:
    files = prepare.pair_files(Path(job.scratch))
    data = tf.data.Dataset.from_tensor_slices(([low for low, _ in files], [high for _, high in files]))

    def decoded(*pair: Any) -> Any:
        return tuple(tf.image.decode_png(tf.io.read_file(file), channels=3) for file in pair)

    if job.workload.group == "cached":
        data = data.map(decoded, THREADS).cache().shuffle(len(files)).repeat()
    else:
        data = data.shuffle(len(files)).repeat().map(decoded, THREADS)
    data = data.map(lambda low, high: patches(job, low, high), THREADS)
    return data.batch(job.workload.batch, drop_remainder=True)


def batched(job: Job) -> Any:
    """Batches without end."""
    if job.workload.family in ("mnist", "cifar"):
        return small(job)
    if job.workload.family == "pairs":
        return pairs(job)
    names, labels = prepare.image_files(Path(job.data))
    data = tf.data.Dataset.from_tensor_slices((names, labels)).shuffle(len(names)).repeat()
    return data.map(lambda file, label: image(job, file, label), THREADS).batch(job.workload.batch, drop_remainder=True)


def set_up(job: Job) -> Any:
    """Limits the threads of this process; returns the options of its pipelines."""
    tf.random.set_seed(job.seed_of_rank())
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    options = tf.data.Options()
    options.threading.private_threadpool_size = THREADS
    options.threading.max_intra_op_parallelism = 1
    return options


def open_batches(job: Job) -> Iterator[Any]:
    options = set_up(job)
    return iter(batched(job).prefetch(2).with_options(options).as_numpy_iterator())
