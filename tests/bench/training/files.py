"""Writes sets as the training examples read them (bindings/examples): MNIST's and CIFAR-10's own files, folders of pairs."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Array = np.ndarray[Any, Any]


def write_mnist(data: Path, part: str, images: Array, labels: Array) -> None:
    """`part`: train or t10k. `images`: uint8 (n, 28, 28)."""
    raw = data / "MNIST/raw"
    raw.mkdir(parents=True, exist_ok=True)
    for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
        header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        (raw / name).write_bytes(header + array.astype(np.uint8).tobytes())


def write_cifar(data: Path, files: Iterable[str], images: Array, labels: Array) -> None:
    """`images`: uint8 (n, 3, 32, 32), divided over `files`."""
    folder = data / "cifar-10-batches-bin"
    folder.mkdir(parents=True, exist_ok=True)
    records = np.concatenate([labels[:, None].astype(np.uint8), images.reshape(len(images), -1)], axis=1)
    names = list(files)
    for name, rows in zip(names, np.array_split(records, len(names)), strict=True):
        (folder / name).write_bytes(rows.tobytes())


CIFAR_TRAIN = [f"data_batch_{part}.bin" for part in range(1, 6)]
CIFAR_TEST = ["test_batch.bin"]


def write_pairs(data: Path, part: str, pairs: Iterable[tuple[Image.Image, Image.Image]]) -> None:
    """`part`: train or test. `pairs`: low and high resolution."""
    for number, pair in enumerate(pairs):
        for side, image in zip(("lr", "hr"), pair, strict=True):
            folder = data / "pairs" / part / side
            folder.mkdir(parents=True, exist_ok=True)
            image.save(folder / f"{number:04d}.png")
