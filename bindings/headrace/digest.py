"""A digest of the batches that a loop received."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._headrace import Xxh3
from .batch import META, DictBatch, TupleBatch
from .errors import InvalidArgument


def _parts_of(value: Any, valid: Any) -> list[Any]:
    """The arrays to hash: a dense field's values, or a ragged field's row lengths and values."""
    if not isinstance(value, tuple):
        return [_bytes_of(value, valid)]
    values, offsets = value
    lengths = np.diff(np.asarray(offsets))
    return [_bytes_of(lengths, valid), _bytes_of(values, np.repeat(valid, lengths))]


def _bytes_of(array: Any, valid: Any) -> Any:
    rows = array if valid.all() else array[valid]
    if not isinstance(rows, np.ndarray):  # a torch tensor, perhaps bfloat16, which numpy does not have
        import torch

        return rows.contiguous().reshape(-1).view(torch.uint8).numpy()
    return np.ascontiguousarray(rows).reshape(-1).view(np.uint8)


class Digest:
    """An XXH3 hash of the valid rows of batches, field by field. Two loops have equal digests if they received the same bytes in the same
    order."""

    def __init__(self) -> None:
        self._state = Xxh3()

    def add(self, batch: TupleBatch | DictBatch) -> None:
        """Adds a batch."""
        if not isinstance(batch, TupleBatch | DictBatch):
            raise InvalidArgument(f"expected a batch of a headrace.Loader, found {type(batch).__name__}")
        values: Any = [batch[name] for name in batch if name not in META] if isinstance(batch, dict) else batch
        valid = np.asarray(batch.valid)
        for value in values:
            if isinstance(value, dict):  # the row arrays of meta=True
                continue
            for part in _parts_of(value, valid):
                self._state.update(part)

    def hexdigest(self) -> str:
        """The hash of all batches so far, as hexadecimal digits."""
        return self._state.hexdigest()
