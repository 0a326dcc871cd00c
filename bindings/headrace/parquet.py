"""Parquet files with images, as Hugging Face publishes datasets: packs them into one database that the server reads.

    python -m headrace.parquet train-*.parquet train.lmdb

A column of images has the bytes of JPEG or PNG files: either binary values, or Hugging Face's structs of `bytes` and `path`. If it was
stopped or killed, the same command continues it. Needs pyarrow.
"""

from __future__ import annotations

import argparse
import bisect
import importlib
import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import _pack_command
from .errors import DatasetInvalid, EnvironmentFailed, InvalidArgument


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise EnvironmentFailed("Parquet files are read by pyarrow, which is not installed: pip install pyarrow") from error


# What is in memory of a row group: a batch of its rows, by the sizes that the file states, and a buffer for each column.
_BATCH_BYTES, _BATCH_ROWS, _BUFFER_BYTES = 4 << 20, 1024, 1 << 20


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
    label      the column of classes, which becomes `label`; None: the only one that Hugging Face's metadata calls a ClassLabel, else the
               column `label`, if there is one

    `classes` has the names of the classes, or is None if the metadata has none. `pack_blocks` has the number of rows of each row group.
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

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        group = bisect.bisect_right(self._ends, index)
        row = index - (self._ends[group - 1] if group else 0)
        file, within = self._groups[group]
        where = f"{self._files[file]}, row group {within}, row {row}"
        try:
            values = self._group(group, row).row(row)
        except DatasetInvalid:
            raise
        except Exception as error:
            why = " ".join(str(error).split())  # pyarrow's have several lines
            raise DatasetInvalid(f"{where}: cannot be read: {type(error).__name__}: {why}") from error
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


def _names(schema: Any) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m headrace.parquet", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="+", help="Parquet files, in the order in which their rows are packed")
    parser.add_argument("--label", metavar="NAME", help="the column of classes (default: the only ClassLabel, or `label`)")
    return _pack_command.run(parser, lambda given: ParquetDataset(given.files, given.columns, given.label), arguments)


if __name__ == "__main__":
    sys.exit(main())
