"""Batches: a tuple or a dict of arrays, with what is known of their rows as attributes."""

from __future__ import annotations

from typing import Any

from ._arrays import Converter
from ._headrace import Batch as RawBatch
from .types import FieldSpec

META = ("valid", "sample_index", "replaced")


class _Rows:
    """What every batch tells besides its fields; each array has one entry per row.

    valid          bool: False for padding, and for duplicates that make all ranks' epochs equally long
    sample_index   int64: which sample of the source it is
    replaced       bool: stands in for a bad sample
    epoch, number  which batch of which epoch this is
    private_copy   False only for zero_copy batches: views for reading only
    """

    valid: Any
    sample_index: Any
    replaced: Any
    epoch: int
    number: int
    private_copy: bool


class TupleBatch(tuple[Any, ...], _Rows):
    """The fields in the stream's order: (image, label). With meta=True a dict of the row arrays follows."""


class DictBatch(dict[str, Any], _Rows):
    """The fields by name. With meta=True the row arrays are in it, too."""


class Assembler:
    """Raw batches to what the loop gets; made once per loader."""

    def __init__(self, fields: tuple[FieldSpec, ...], output: str, form: str, meta: bool) -> None:
        self._names = [field.name for field in fields]
        self._convert = [Converter(field.dtype, output) for field in fields]
        self._form = form
        self._meta = meta
        self._row_bool = Converter("bool", output)
        self._row_int = Converter("int64", output)

    def __call__(self, raw: RawBatch) -> TupleBatch | DictBatch:
        values: list[Any] = []
        for convert, (data, shape, offsets) in zip(self._convert, raw.take_fields(), strict=True):
            array = convert(data, shape)
            values.append(array if offsets is None else (array, self._row_int(offsets, offsets.shape)))
        valid, index, replaced = raw.take_valid(), raw.take_sample_index(), raw.take_replaced()
        rows = {
            "valid": self._row_bool(valid, valid.shape),
            "sample_index": self._row_int(index, index.shape),
            "replaced": self._row_bool(replaced, replaced.shape),
        }
        batch: TupleBatch | DictBatch
        if self._form == "tuple":
            batch = TupleBatch([*values, rows] if self._meta else values)
        else:
            batch = DictBatch(zip(self._names, values, strict=True))
            if self._meta:
                batch.update(rows)
        batch.valid, batch.sample_index, batch.replaced = rows["valid"], rows["sample_index"], rows["replaced"]
        batch.epoch, batch.number, batch.private_copy = raw.epoch, raw.batch, raw.private_copy
        return batch
