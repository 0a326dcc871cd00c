"""Converts a DataLoader's batches to named fields: arrays stay as they are; lists of strings or of arrays become values and offsets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ._given import DTYPES, array_given
from .errors import DatasetInvalid, InvalidArgument

_NAME = re.compile(r"[a-z][a-z0-9_]{0,46}\Z")
_BYTES = np.dtype(np.uint8)


def _array(value: Any) -> tuple[str, np.ndarray[Any, Any]] | None:
    return array_given(value, from_devices=False)


@dataclass
class Values:
    """One field of one batch. Ragged fields have `offsets`, and `parts` are the values of each row; otherwise `parts` is the batch's
    array."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    rows: int
    parts: list[Any]
    offsets: np.ndarray[Any, Any] | None = None

    @property
    def kind(self) -> str:
        return "ragged " * (self.offsets is not None) + f"{self.dtype} {self.shape}"

    @property
    def count(self) -> int:
        """The number of values: rows, or the sum of the rows' lengths."""
        return self.rows if self.offsets is None else int(self.offsets[-1])

    def copy_to(self, memory: Any, at: int, offsets_at: int) -> None:
        kind = np.dtype(np.uint16 if self.dtype == "bfloat16" else self.dtype)
        target = np.frombuffer(memory, kind, self.count * prod(self.shape), at).reshape(self.count, *self.shape)
        if self.offsets is None:
            np.copyto(target, self.parts[0])
            return
        np.frombuffer(memory, np.int64, self.rows + 1, offsets_at)[:] = self.offsets
        for part, begin, end in zip(self.parts, self.offsets[:-1], self.offsets[1:], strict=True):
            target[begin:end] = part


def _dense(name: str, dtype: str, array: np.ndarray[Any, Any]) -> Values:
    if dtype not in DTYPES:
        raise InvalidArgument(f"field `{name}` has dtype {dtype}, expected one of {', '.join(DTYPES)}")
    if array.ndim == 0:
        raise InvalidArgument(f"field `{name}` is a single number, expected a row for each sample of the batch")
    if 0 in array.shape:
        raise InvalidArgument(f"field `{name}` has the shape {array.shape}, which is empty")
    return Values(name, dtype, array.shape[1:], array.shape[0], [array])


def _ragged(name: str, rows: list[Any], dtype: str) -> Values:
    shapes = {row.shape[1:] for row in rows}
    if any(row.ndim == 0 for row in rows) or len(shapes) > 1:
        raise InvalidArgument(
            f"field `{name}`: rows of a ragged field may differ only in their first dimension, found the shapes "
            f"{sorted({row.shape for row in rows})[:4]}"
        )
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return Values(name, dtype, shapes.pop(), len(rows), rows, offsets)


def _text(name: str, rows: Sequence[Any]) -> Values:
    encoded = [row.encode() if isinstance(row, str) else row for row in rows]
    return _ragged(name, [np.frombuffer(row, _BYTES) if row else np.empty(0, _BYTES) for row in encoded], "uint8")


def _is_text(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(row, str | bytes) for row in value)


def _leaf(name: str, value: Any, ragged: Mapping[str, int | None]) -> Values | None:
    if _is_text(value):
        return _text(name, value)
    array = _array(value)
    if name in ragged:
        rows = [_array(row) for row in value] if isinstance(value, list | tuple) else []
        dtypes = {row and row[0] for row in rows}
        if len(dtypes) != 1 or None in dtypes:
            raise InvalidArgument(f"field `{name}` is in `ragged`: expected a list with one array for each sample, all of one dtype")
        return _ragged(name, [row[1] for row in rows if row], str(dtypes.pop()))
    if array is not None:
        return _dense(name, *array)
    if isinstance(value, list | tuple) and value and all(isinstance(row, int | float | bool) for row in value):
        numbers = np.asarray(value)
        return _dense(name, numbers.dtype.name, numbers)
    return None


def _items(value: Any, names: Sequence[str] | None, lead: str) -> Iterator[tuple[str, Any]] | None:
    """The named parts of a dict, a named tuple, a tuple or a list."""
    if isinstance(value, Mapping):
        return ((lead + str(key), each) for key, each in value.items())
    if not isinstance(value, list | tuple):
        return None
    known = names or getattr(value, "_fields", None) or [f"{'' if lead else 'field'}{i}" for i in range(len(value))]
    if len(known) != len(value):
        raise InvalidArgument(f"names={list(known)}: expected {len(value)} names, one for each field of a batch, found {len(known)}")
    return ((lead + str(name), each) for name, each in zip(known, value, strict=True))


def fields_of(batch: Any, names: Sequence[str] | None, ragged: Mapping[str, int | None]) -> list[Values]:
    """The fields in the batch's order. A nested dict or tuple (one level) gives fields named `part_name`. Raises InvalidArgument for values
    that cannot be fields."""
    out: list[Values] = []
    single = names[0] if names and len(names) == 1 else "data"
    whole = None if isinstance(batch, Mapping) else _leaf(single, batch, ragged)
    parts = iter([(single, batch)]) if whole is not None else _items(batch, names, "")
    if parts is None:
        raise InvalidArgument(f"a batch is of type {type(batch).__name__}, expected an array, a tensor, or a dict, tuple or list of them")
    for name, part in parts:
        leaf = _leaf(name, part, ragged)
        inner = [(name, part, leaf)] if leaf is not None else [
            (below, each, _leaf(below, each, ragged)) for below, each in _items(part, None, f"{name}_") or [(name, part)]
        ]
        for below, each, values in inner:
            if values is None:
                raise InvalidArgument(
                    f"field `{below}` is of type {type(each).__name__}, expected an array, a tensor, or a list of strings or numbers; "
                    "for a list of arrays, name the field in `ragged`"
                )
            if not _NAME.match(below):
                raise InvalidArgument(f"field name {below!r}: expected 1 to 47 characters of a-z, 0-9 and _, beginning with a letter")
            out.append(values)
    if not out:
        raise InvalidArgument("a batch has no fields")
    if len({values.name for values in out}) < len(out):
        raise InvalidArgument(f"two fields of a batch have the same name: {[values.name for values in out]}")
    return out


def rows_of(fields: list[Values]) -> int:
    first = fields[0]
    for other in fields:
        if other.rows != first.rows:
            raise DatasetInvalid(
                f"field `{first.name}` has {first.rows} rows, `{other.name}` has {other.rows}: expected the same number in all fields; "
                "if the rows of a column differ in size, add its name to ragged="
            )
    return first.rows
