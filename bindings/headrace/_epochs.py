"""Divides an iterable of batches into epochs with equal numbers of batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from ._arguments import whole
from .errors import DatasetInvalid, InvalidArgument

_END = object()


class Epochs:
    """Yields (epoch, number, batch), epoch after epoch, and can be iterated once. `epochs` None: without end.

    first     the first batch, until it is yielded
    batches   the number of batches in each epoch
    """

    def __init__(self, iterable: Iterable[Any], epochs: int | None, batches: int | None) -> None:
        if not hasattr(iterable, "__iter__") and not hasattr(iterable, "__getitem__"):
            raise InvalidArgument(f"expected a DataLoader or another iterable of batches, found {type(iterable).__name__}")
        self._iterable = iterable
        self._endless = batches is not None  # then epochs are independent of the iterable's passes
        self._iterator = iter(iterable)
        if self._iterator is iterable and epochs is None and batches is None:
            epochs = 1  # an iterator has no second pass
        self.epochs = epochs
        if batches is None:
            try:
                batches = len(iterable)  # type: ignore[arg-type]
            except TypeError:
                raise InvalidArgument("the iterable has no len(): give `batches`, the number of batches in an epoch") from None
        self.first = next(self._iterator, _END)
        if self.first is _END:
            raise DatasetInvalid("the iterable is empty: epoch 0 has no batch")
        self.batches = whole("batches", batches, 1)

    def _next(self, epoch: int, number: int) -> Any:
        if (epoch, number) == (0, 0):
            first, self.first = self.first, _END
            return first
        if number == 0 and not self._endless:
            self._iterator = iter(self._iterable)
        batch = next(self._iterator, _END)
        if batch is _END and self._endless:
            self._iterator = iter(self._iterable)
            batch = next(self._iterator, _END)
        if batch is _END:
            once = "; it can be iterated over only once: share a list or a DataLoader" if epoch and number == 0 else ""
            raise DatasetInvalid(f"epoch {epoch} ended after {number} of {self.batches} batches{once}")
        return batch

    def release(self) -> None:
        """Drops the iterable, which ends a DataLoader's workers."""
        self._iterable, self._iterator, self.first = (), iter(()), _END

    def __iter__(self) -> Iterator[tuple[int, int, Any]]:
        epoch = 0
        while self.epochs is None or epoch < self.epochs:
            for number in range(self.batches):
                yield epoch, number, self._next(epoch, number)
            if not self._endless and next(self._iterator, _END) is not _END:
                raise DatasetInvalid(
                    f"epoch {epoch} has more than {self.batches} batches, which is its len(): give `batches`, the number of batches in an epoch"
                )
            epoch += 1


def samples_of(iterable: Any, batches: int, rows: int, samples: int | None) -> int:
    """The number of samples in an epoch: `samples` if given, else a DataLoader's own number if each of its passes is an epoch, else batches
    x rows."""
    if samples is None and getattr(iterable, "batch_size", None) == rows and getattr(iterable, "drop_last", None) is False:
        with contextlib.suppress(TypeError, AttributeError):
            samples = len(iterable.sampler) if len(iterable) == batches else None
    if samples is None or getattr(iterable, "drop_last", False):
        return batches * rows
    if not (batches - 1) * rows < samples <= batches * rows:
        raise InvalidArgument(f"samples={samples}: expected {(batches - 1) * rows + 1} to {batches * rows} samples in {batches} batches of {rows}")
    return samples
