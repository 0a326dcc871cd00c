"""Parquet files with images, as Hugging Face publishes datasets: packs them into one database that the server reads.

    python -m headrace.parquet train-*.parquet train.lmdb

A column of images has the bytes of JPEG or PNG files: either binary values, or Hugging Face's structs of `bytes` and `path`. If it was
stopped or killed, the same command continues it. Needs pyarrow.

The column of classes has their numbers or their names. Names are numbered in sorted order; if all of them are whole numbers, each is its own
label, as in a manifest.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import importlib
import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import _pack_command
from .errors import DatasetInvalid, EnvironmentFailed, Error, InvalidArgument


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise EnvironmentFailed("Parquet files are read by pyarrow, which is not installed: pip install pyarrow") from error


# Memory holds one batch of a row group, and a buffer for each column. The sizes that the file states limit the rows of a batch.
_BATCH_BYTES, _BATCH_ROWS, _BUFFER_BYTES = 4 << 20, 1024, 1 << 20

# Above these limits a column of strings is not one of classes.
_MOST_CLASSES, _MOST_CLASS_BYTES = 100_000, 16 << 20
_MOST_NUMBERED = 1_000_000  # as in a manifest


class _RowGroup:
    """The rows of a row group in batches. Only later rows can be read: a batch replaces the one before it."""

    def __init__(self, number: int, batches: Iterator[Any]) -> None:
        self.process, self.number = os.getpid(), number
        self.begin = self._end = 0  # the rows of `_batch`
        self._batch: Any = None
        self._batches = batches

    def row(self, row: int) -> dict[str, Any]:
        while row >= self._end:
            self._batch = next(self._batches, None)
            if self._batch is None:
                raise EOFError(f"the rows end at row {self._end}")
            self.begin, self._end = self._end, self._end + self._batch.num_rows
        return {name: self._batch.column(name)[row - self.begin].as_py() for name in self._batch.schema.names}


class ParquetDataset:
    """The rows of Parquet files as a dataset for pack(): dicts by column. To read rows out of their order is slow.

    files      in the order in which their rows are packed; all have the same columns
    columns    the columns to read; None: all
    label      the column of classes, which becomes `label`: integers or strings; None: the only one that Hugging Face's metadata calls a
               ClassLabel, else the column `label`, if there is one

    `classes` has the names of the classes: those of the metadata, or the distinct strings, sorted. It is None if classes only have numbers.
    `pack_blocks` has the number of rows of each row group.
    """

    def __init__(self, files: Sequence[str | Path], columns: Sequence[str] | None = None, label: str | None = None) -> None:
        if isinstance(files, str | Path) or not files:
            raise InvalidArgument(f"files={files!r}: expected a list of Parquet files")
        self._files = [os.fspath(file) for file in files]
        self._groups: list[tuple[int, int]] = []  # file, row group within the file
        self.pack_blocks: list[int] = []
        schema: Any = None
        for number, file in enumerate(self._files):
            read = self._opened(file)
            if schema is None:
                schema = read.schema_arrow
            elif not read.schema_arrow.equals(schema):
                raise DatasetInvalid(f"{file}: its columns differ from those of {self._files[0]}: expected {_names(schema)}, found {_names(read.schema_arrow)}")
            self._groups += [(number, group) for group in range(read.num_row_groups)]
            self.pack_blocks += [read.metadata.row_group(group).num_rows for group in range(read.num_row_groups)]
        self._ends = list(itertools.accumulate(self.pack_blocks))
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features", {})
        classes = {name: feature for name, feature in features.items() if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"}
        for name in [*(columns or ()), *([label] if label else ())]:
            if name not in schema.names:
                raise InvalidArgument(f"{self._files[0]} has no column {name!r}; columns: {_names(schema)}")
        self._label = label or (next(iter(classes)) if len(classes) == 1 else "label")
        if label is None and len(classes) > 1 and "label" not in classes:
            raise InvalidArgument(f"{self._files[0]} has several columns of classes: choose one with label: {', '.join(classes)}")
        self._columns = [name for name in schema.names if columns is None or name in columns or name == label]
        _pack_command.check_label(self._columns, self._label, self._files[0])
        names = classes.get(self._label, {}).get("names")
        self.classes: list[str] | None = list(names) if names else None
        self._open: _RowGroup | None = None
        self._numbers: dict[str, int] | None = None  # of the classes, if the column has their names
        if self._label in self._columns:
            self._read_classes(schema.field(self._label).type, label is not None)

    def _read_classes(self, kind: Any, chosen: bool) -> None:
        types = _pyarrow()[0].types
        value = kind.value_type if types.is_dictionary(kind) else kind
        if str(value) in ("string", "large_string", "string_view"):
            names = sorted(self._distinct())
            if all(name.isascii() and name.isdigit() for name in names) and max(map(int, names), default=0) < _MOST_NUMBERED:
                self.classes, self._numbers = None, {name: int(name) for name in names}
            else:
                self.classes, self._numbers = names, {name: number for number, name in enumerate(names)}
        elif chosen and not types.is_integer(value):
            raise InvalidArgument(f"{self._files[0]}: column {self._label!r} has the type {kind}, expected integers or strings as classes: choose another column (label=, --label)")

    def _distinct(self) -> set[str]:
        """The distinct strings of the column of classes. Reads no other column."""
        found: set[str] = set()
        read: Any = None
        size, opened = 0, -1
        for file, within in self._groups:
            if file != opened:
                opened, read = file, self._opened(self._files[file])
            where = f"{self._files[file]}, row group {within}"
            row = 0
            with _reading(where):
                for batch in read.iter_batches(_BATCH_ROWS, row_groups=[within], columns=[self._label], use_threads=False):
                    values = batch.column(self._label)
                    new = set(values.unique().to_pylist()) - found
                    for none in new & {None, ""}:
                        found_at = row + values.to_pylist().index(none)
                        what = "null" if none is None else "an empty string"
                        raise DatasetInvalid(
                            f"{where}, row {found_at}: column {self._label!r} is {what}, expected the name of a class: "
                            "give the row a class or remove it, or choose the columns to pack without this one (columns=, --columns)"
                        )
                    found |= new
                    size += sum(len(name.encode()) for name in new)
                    row += batch.num_rows
                    if len(found) > _MOST_CLASSES or size > _MOST_CLASS_BYTES:
                        raise InvalidArgument(
                            f"{self._files[file]}: column {self._label!r} has more than {_MOST_CLASSES:,} distinct strings, or more than {_MOST_CLASS_BYTES >> 20} MiB of "
                            "them, which are too many for classes: choose another column (label=, --label), or choose the columns to pack without this one "
                            "(columns=, --columns); to pack it as text, rename it"
                        )
        return found

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        group = bisect.bisect_right(self._ends, index)
        row = index - (self._ends[group - 1] if group else 0)
        file, within = self._groups[group]
        where = f"{self._files[file]}, row group {within}, row {row}"
        with _reading(where):
            values = self._group(group, row).row(row)
        if self._numbers is not None:
            name = values[self._label]
            if name not in self._numbers:
                raise DatasetInvalid(f"{where}: column {self._label!r} is {name!r}, which was not there at first: the file changed while it was read; pack it again")
            values[self._label] = self._numbers[name]
        return {"label" if name == self._label else name: self._value(name, values[name], where) for name in self._columns}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": None}

    def _group(self, number: int, row: int) -> _RowGroup:
        # Opened again in a forked process, without threads, which a fork does not copy.
        if self._open is None or (self._open.process, self._open.number) != (os.getpid(), number) or row < self._open.begin:
            file, within = self._groups[number]
            read = self._opened(self._files[file])
            stated = read.metadata.row_group(within)
            rows = min(_BATCH_ROWS, max(1, stated.num_rows * _BATCH_BYTES // max(1, stated.total_byte_size)))
            self._open = _RowGroup(number, read.iter_batches(rows, row_groups=[within], columns=self._columns, use_threads=False))
        return self._open

    @staticmethod
    def _opened(file: str) -> Any:
        pyarrow, parquet = _pyarrow()
        try:
            return parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        except (OSError, pyarrow.ArrowException) as error:
            raise DatasetInvalid(f"{file}: cannot be read as a Parquet file: {error}") from error

    @staticmethod
    def _value(name: str, value: Any, where: str) -> Any:
        if not isinstance(value, dict) or not value.keys() <= {"bytes", "path"}:
            return value
        if value.get("bytes") is None:
            raise DatasetInvalid(f"{where}: column {name!r} has no bytes, only the path {value.get('path')!r}: embed the files, as push_to_hub() does")
        return value["bytes"]


@contextlib.contextmanager
def _reading(where: str) -> Iterator[None]:
    """Says where the files cannot be read, whatever pyarrow raises."""
    try:
        yield
    except Error:
        raise
    except Exception as error:
        why = " ".join(str(error).split())  # pyarrow's have several lines
        raise DatasetInvalid(f"{where}: cannot be read: {type(error).__name__}: {why}") from error


def _names(schema: Any) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m headrace.parquet", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="+", help="Parquet files, in the order in which their rows are packed")
    parser.add_argument("--label", metavar="NAME", help="the column of classes, integers or strings (default: the only ClassLabel, or `label`)")
    return _pack_command.run(parser, lambda given: ParquetDataset(given.files, given.columns, given.label), arguments)


if __name__ == "__main__":
    sys.exit(main())
