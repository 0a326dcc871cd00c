"""Types and shapes for raw bytes. numpy has no bfloat16: ml_dtypes' type where it is installed, else the bits as uint16."""

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
    """The array at `at` in `data`, and where the next one begins. A copy."""
    kind = numpy_dtype(dtype)
    size = kind.itemsize * prod(shape)
    return np.frombuffer(data[at : at + size], kind).reshape(shape).copy(), at + size


class Converter:
    """Makes one field's arrays of the extension's, which has bfloat16 as uint16; chosen once per loader, because it runs for
    each batch."""

    def __init__(self, dtype: str, output: str) -> None:
        self._view: Any = None
        self._from_numpy: Any = None
        self._torch_dtype: Any = None
        if output == "torch":
            import torch

            self._from_numpy = torch.from_numpy
            if dtype == "bfloat16":  # torch.from_numpy knows none: the bits go through int16
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
