"""Arrays over raw bytes. numpy has no bfloat16, so it becomes ml_dtypes' type if that is installed, else its bits as uint16."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np


def _bfloat16() -> Any:
    try:
        import ml_dtypes  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return np.dtype(np.uint16)
    return np.dtype(ml_dtypes.bfloat16)


def numpy_dtype(name: str) -> Any:
    return _bfloat16() if name == "bfloat16" else np.dtype(name)


def array_of(data: bytes, at: int, dtype: str, shape: tuple[int, ...]) -> tuple[Any, int]:
    """A copy of the array at byte `at` in `data`, and the byte at which the next one begins."""
    kind = numpy_dtype(dtype)
    size = kind.itemsize * prod(shape)
    return np.frombuffer(data[at : at + size], kind).reshape(shape).copy(), at + size


class Converter:
    """Converts one field's arrays from the extension's, in which bfloat16 is uint16. Created once per loader, because it runs for each
    batch."""

    def __init__(self, dtype: str, output: str) -> None:
        self._view: Any = None
        self._from_numpy: Any = None
        self._torch_dtype: Any = None
        if output == "torch":
            import torch

            self._from_numpy = torch.from_numpy
            if dtype == "bfloat16":  # torch.from_numpy does not support bfloat16: convert the bits as int16
                self._view, self._torch_dtype = np.dtype(np.int16), torch.bfloat16
        elif dtype == "bfloat16":
            self._view = numpy_dtype(dtype)
        if output == "jax":
            import jax.numpy  # type: ignore[import-not-found, unused-ignore]

            self._from_numpy = jax.numpy.asarray

    def __call__(self, array: Any) -> Any:
        if self._view is not None:
            array = array.view(self._view)
        if self._from_numpy is None:
            return array
        tensor = self._from_numpy(array)
        return tensor if self._torch_dtype is None else tensor.view(self._torch_dtype)
