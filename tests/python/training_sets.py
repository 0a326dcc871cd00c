"""Creates small datasets that can be learnt, in the formats of the training examples: digits, colored shapes, pairs of drawings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from running import ROOT

sys.path.insert(0, str(ROOT / "tests/bench"))

from training.files import CIFAR_TEST, CIFAR_TRAIN, write_cifar, write_mnist, write_pairs  # noqa: E402

Array = np.ndarray[Any, Any]


def digits(count: int, random: np.random.Generator) -> tuple[Array, Array]:
    """28 x 28, gray: a digit at a random position, with noise."""
    labels = random.integers(0, 10, count)
    images = np.empty((count, 28, 28), np.uint8)
    font = ImageFont.load_default(size=18)
    for image, label in zip(images, labels, strict=True):
        drawn = Image.new("L", (28, 28))
        ImageDraw.Draw(drawn).text(random.integers(6, 13, 2).tolist(), str(label), 255, font, anchor="lt")
        image[:] = np.clip(np.asarray(drawn) + random.normal(0, 40, (28, 28)), 0, 255)
    return images, labels


def shapes(count: int, random: np.random.Generator) -> tuple[Array, Array]:
    """3 x 32 x 32: class 2 s + c is a shape s of color c, of random size and position."""
    labels = random.integers(0, 10, count)
    images = np.empty((count, 3, 32, 32), np.uint8)
    for image, label in zip(images, labels, strict=True):
        drawn = Image.new("RGB", (32, 32), tuple(random.integers(0, 90, 3).tolist()))
        pen = ImageDraw.Draw(drawn)
        color = ((230, 120, 80), (80, 120, 230))[label % 2]
        radius = int(random.integers(6, 10))
        x, y = random.integers(radius, 32 - radius, 2).tolist()
        box = (x - radius, y - radius, x + radius, y + radius)
        match label // 2:
            case 0:
                pen.ellipse(box, color)
            case 1:
                pen.rectangle(box, color)
            case 2:
                pen.regular_polygon((x, y, radius), 3, fill=color)
            case 3:
                pen.ellipse(box, outline=color, width=2)
            case _:
                pen.line(((x - radius, y), (x + radius, y)), color, 3)
                pen.line(((x, y - radius), (x, y + radius)), color, 3)
        image[:] = np.clip(np.asarray(drawn) + random.normal(0, 12, (32, 32, 3)), 0, 255).transpose(2, 0, 1)
    return images, labels


def drawings(count: int, random: np.random.Generator) -> Iterator[tuple[Image.Image, Image.Image]]:
    """Low and high resolution of scale 4, 80 x 96 and 320 x 384: sharp edges everywhere."""
    for _ in range(count):
        high = Image.new("RGB", (320, 384), tuple(random.integers(0, 255, 3).tolist()))
        pen = ImageDraw.Draw(high)
        for _ in range(120):
            corners = random.integers(0, 384, 2) + random.integers(-50, 50, (3, 2))
            pen.polygon([tuple(corner) for corner in corners.tolist()], tuple(random.integers(0, 255, 3).tolist()))
        yield high.resize((80, 96), Image.Resampling.BICUBIC), high


def write_sets(data: Path, seed: int = 0, *, mnist: tuple[int, int], cifar: tuple[int, int], pairs: tuple[int, int]) -> Path:
    """Writes each dataset with the given numbers of training and test samples."""
    random = np.random.default_rng(seed)
    for part, count in zip(("train", "t10k"), mnist, strict=True):
        write_mnist(data, part, *digits(count, random))
    for files, count in zip((CIFAR_TRAIN, CIFAR_TEST), cifar, strict=True):
        write_cifar(data, files, *shapes(count, random))
    for part, count in zip(("train", "test"), pairs, strict=True):
        write_pairs(data, part, drawings(count, random))
    return data
