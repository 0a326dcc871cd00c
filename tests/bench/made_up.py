"""Synthetic data for benchmarks without real data, in the formats that tests/bench/peers keeps in its scratch folder. Pictures are waves
with noise, whose JPEGs have about as many bytes per pixel as photographs. Pillow writes JPEGs and PNGs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

JPEGS, PAIRS, SCALE = 256, 48, 4
JPEG_SIDE, JPEG_QUALITY = (375, 500), 90  # 100 KB each
PAIR_SIDE = (320, 480)  # of the high resolution, BSD100's


def _write_idx(path: Path, kind: bytes, values: np.ndarray[Any, Any]) -> None:
    path.write_bytes(b"\0\0" + kind + bytes([values.ndim]) + np.array(values.shape, ">i4").tobytes() + values.tobytes())


def mnist(scratch: Path) -> Path:
    """60,000 gray pictures."""
    random = np.random.default_rng(0)
    folder = scratch / "mnist"
    folder.mkdir(parents=True)
    _write_idx(folder / "t10k-images-idx3-ubyte", b"\x08", random.integers(0, 256, (60_000, 28, 28), np.uint8))
    _write_idx(folder / "t10k-labels-idx1-ubyte", b"\x08", random.integers(0, 10, 60_000, np.uint8))
    return folder


def cifar(scratch: Path) -> Path:
    """50,000 small color pictures, as CIFAR-10's binary batches."""
    random = np.random.default_rng(0)
    folder = scratch / "cifar"
    folder.mkdir(parents=True)
    for part in range(5):
        rows = random.integers(0, 256, (10_000, 1 + 3 * 32 * 32), np.uint8)
        rows[:, 0] %= 10
        rows.tofile(folder / f"data_batch_{part + 1}.bin")
    (folder / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n")
    return folder


def picture(height: int, width: int, random: np.random.Generator) -> np.ndarray[Any, Any]:
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    made = np.full((height, width, 3), 128, np.float32)
    for scale in (0.01, 0.04, 0.15):
        across, down = random.uniform(0.3, 1, (2, 3)).astype(np.float32) * scale
        phase = random.uniform(0, 6.3, 3).astype(np.float32)
        made += 30 * np.sin(x[..., None] * across + y[..., None] * down + phase)
    made += random.normal(0, 11, (height, width, 1)).astype(np.float32)
    return np.clip(made, 0, 255).astype(np.uint8)


def imagenet(scratch: Path) -> Path:
    """JPEGs in two class folders."""
    from PIL import Image

    random = np.random.default_rng(0)
    for i in range(JPEGS):
        file = scratch / "imagenet" / "ab"[i % 2] / f"{i:04}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(*JPEG_SIDE, random)).save(file, quality=JPEG_QUALITY)
    return scratch / "imagenet"


def pairs(scratch: Path) -> Path:
    """PNGs: low and high resolution."""
    from PIL import Image

    random = np.random.default_rng(0)
    for i in range(PAIRS):
        high = Image.fromarray(picture(*PAIR_SIDE, random))
        low = high.resize((high.width // SCALE, high.height // SCALE), Image.Resampling.BICUBIC)
        for kind, image in (("hr", high), ("lr", low)):
            file = scratch / "pairs" / kind / f"{i:04}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            image.save(file)
    return scratch / "pairs"


MAKERS: dict[str, Callable[[Path], Path]] = {"mnist": mnist, "cifar": cifar, "imagenet": imagenet, "pairs": pairs}
