"""Pairs of low and high resolution: reading them, and aligned patches, flips and quarter turns of them, in numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from peers import prepare
from peers.workloads import PATCH, SCALE, Job


def decode(content: bytes) -> Any:
    """A PNG's pixels, H x W x 3."""
    import cv2  # imported here, because only loaders of pairs need it

    cv2.setNumThreads(0)
    return cv2.cvtColor(cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def decoded_pairs(scratch: Path) -> list[tuple[Any, Any]]:
    return [(decode(Path(low).read_bytes()), decode(Path(high).read_bytes())) for low, high in prepare.pair_files(scratch)]


class PairTransform:
    """(H x W x 3, 4H x 4W x 3) to patches of 3 x 48 x 48 and 3 x 192 x 192; float32 as fractions of 255."""

    def __init__(self, job: Job) -> None:
        self._float = job.workload.dtype == "float32"

    def _cut(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        """Views."""
        low, high = pair
        top = np.random.randint(low.shape[0] - PATCH + 1)
        left = np.random.randint(low.shape[1] - PATCH + 1)
        horizontal, vertical, turns = np.random.randint(2), np.random.randint(2), np.random.randint(4)
        made = []
        for image, scale in ((low, 1), (high, SCALE)):
            side = PATCH * scale
            patch = image[top * scale : top * scale + side, left * scale : left * scale + side]
            patch = patch[:: -1 if vertical else 1, :: -1 if horizontal else 1]
            made.append(np.rot90(patch, turns).transpose(2, 0, 1))
        return made[0], made[1]

    def __call__(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        low, high = (np.ascontiguousarray(patch) for patch in self._cut(pair))
        if self._float:
            return low * np.float32(1 / 255), high * np.float32(1 / 255)
        return low, high

    def batch(self, pairs: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        """Written into the batch at once."""
        dtype = np.float32 if self._float else np.uint8
        batches = tuple(np.empty((len(pairs), 3, PATCH * scale, PATCH * scale), dtype) for scale in (1, SCALE))
        for row, pair in enumerate(pairs):
            for batch, patch in zip(batches, self._cut(pair), strict=True):
                batch[row] = patch
        if self._float:
            for batch in batches:
                batch *= np.float32(1 / 255)
        return batches[0], batches[1]
