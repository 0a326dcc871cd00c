"""Batches: a tuple or a dict of arrays, with attributes that describe the rows."""

from __future__ import annotations

import operator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ._arrays import Converter
from ._headrace import Batch as RawBatch
from ._headrace import DeviceBatch as RawDeviceBatch
from .errors import InvalidArgument
from .types import FieldSpec

META = ("valid", "sample_index", "replaced")


class _Rows:
    """The attributes of every batch besides its fields.

    epoch, number  the batch's epoch, and its number in the epoch
    private_copy   False only for zero_copy batches, which are read-only views
    """

    epoch: int
    number: int
    private_copy: bool
    _rows: tuple[RawBatch | RawDeviceBatch, Converter]  # the row arrays are made on first use, because most loops never use them

    @cached_property
    def valid(self) -> Any:
        """One bool per row: False for padding, and for duplicates that make all ranks' epochs equally long."""
        return self._row_array("valid")

    @cached_property
    def sample_index(self) -> Any:
        """One int64 per row: the sample's index in the source."""
        return self._row_array("sample_index")

    @cached_property
    def replaced(self) -> Any:
        """One bool per row: True if the row replaces a bad sample."""
        return self._row_array("replaced")

    def _row_array(self, name: str) -> Any:
        raw, convert = self._rows
        return convert(getattr(raw, name)())

    def to(self, device: Any, non_blocking: bool = False) -> Any:
        """The same batch with torch's tensors on `device`; the batch itself if they already are. For Lightning and Accelerate, which would
        otherwise turn it into a plain tuple or dict."""

        def sent(value: Any) -> Any:
            if isinstance(value, tuple):
                parts = tuple(sent(part) for part in value)
                return value if all(map(operator.is_, parts, value)) else parts
            if isinstance(value, dict):
                named = {name: sent(part) for name, part in value.items()}
                return value if all(named[name] is part for name, part in value.items()) else named
            if not hasattr(value, "to"):
                raise InvalidArgument(f"batch.to({device!r}): its fields are numpy arrays; use output='torch' or device= of the Loader")
            return value.to(device, non_blocking=non_blocking)

        moved = sent(dict(self)) if isinstance(self, dict) else tuple(sent(value) for value in self)  # type: ignore[attr-defined]
        kept = list(moved.values() if isinstance(moved, dict) else moved)
        if all(map(operator.is_, kept, self.values() if isinstance(self, dict) else self)):  # type: ignore[arg-type]
            return self
        batch = type(self)(moved)  # type: ignore[call-arg]
        batch.__dict__.update(self.__dict__)
        return batch

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickles that torch.load(weights_only=True) can read after add_safe_globals() for the two batch classes."""
        plain = dict(self) if isinstance(self, dict) else tuple(self)  # type: ignore[arg-type]
        return type(self), (plain,), self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        """The state for copies and pickles: the attributes, without the extension's object."""
        state = {name: getattr(self, name) for name in (*META, "epoch", "number", "private_copy")}
        return {name: value for name, value in self.__dict__.items() if name != "_rows"} | state


class TupleBatch(tuple[Any, ...], _Rows):
    """The fields in the stream's order: (image, label). With meta=True a dict of the row arrays follows. `epoch` is the batch's epoch, and
    `number` its number in the epoch. `private_copy` is False only for zero_copy batches, which are read-only views."""

    if not TYPE_CHECKING:  # type checkers report unknown attributes themselves

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"a batch has no attribute {name!r}: unpack its fields, as in `image, label = batch`, or use Loader(batch='dict')")

        def __getitem__(self, at: Any) -> Any:
            if isinstance(at, str):
                raise TypeError(f"batch[{at!r}]: this batch is a tuple; unpack its fields, as in `image, label = batch`, or use Loader(batch='dict')")
            return tuple.__getitem__(self, at)


class DictBatch(dict[str, Any], _Rows):
    """The fields by name, and with meta=True also the row arrays. It has the attributes of TupleBatch."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"{name}: the batch has {', '.join(self)}")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"a batch has no attribute {name!r}; its fields are items, as in batch[{next(iter(self), 'image')!r}]")


class Assembler:
    """Converts raw batches to the loop's batches; created once per loader."""

    def __init__(self, fields: tuple[FieldSpec, ...], output: str, form: str, meta: bool) -> None:
        self._names = [field.name for field in fields]
        self._convert = [Converter(field.dtype, output) for field in fields]
        self._form = form
        self._meta = meta
        self._row = Converter("int64", output)

    def __call__(self, raw: Any) -> TupleBatch | DictBatch:
        values = self._values(raw)
        batch: TupleBatch | DictBatch
        if self._meta:
            rows = {name: self._beside(self._row(getattr(raw, name)())) for name in META}
            batch = TupleBatch([*values, rows]) if self._form == "tuple" else DictBatch(zip(self._names, values, strict=True), **rows)
            batch.__dict__.update(rows)
        else:
            batch = TupleBatch(values) if self._form == "tuple" else DictBatch(zip(self._names, values, strict=True))
        batch.epoch, batch.number, batch.private_copy = raw.epoch, raw.batch, raw.private_copy
        batch._rows = (raw, self._row)
        return batch

    def _values(self, raw: RawBatch) -> list[Any]:
        values: list[Any] = []
        for convert, (data, offsets) in zip(self._convert, raw.take_fields(), strict=True):
            array = convert(data)
            values.append(array if offsets is None else (array, self._row(offsets)))
        return values

    def forget(self) -> None:
        """Drops values that were made for batches which the loop has not received yet."""

    def _beside(self, rows: Any) -> Any:
        """Moves a row array that joins the fields to their device; here they are in host memory."""
        return rows
