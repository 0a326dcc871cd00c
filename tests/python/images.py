"""Folders of JPEGs for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def write_images(folder: Path, classes: int, per_class: int, seed: int = 0) -> Path:
    """Smooth random pictures of odd sizes, quality 90: `classes` sub-folders of `per_class` JPEGs."""
    random = np.random.default_rng(seed)
    for label in range(classes):
        (folder / f"class_{label}").mkdir(parents=True)
        for index in range(per_class):
            coarse = random.integers(0, 256, (6, 8, 3), dtype=np.uint8)
            size = (int(random.integers(60, 140)), int(random.integers(60, 140)))
            picture = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
            picture.save(folder / f"class_{label}" / f"{index:04d}.jpg", quality=90)
    return folder
