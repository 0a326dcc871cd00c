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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import _pack_command
from .errors import DatasetInvalid, EnvironmentFailed, InvalidArgument


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise EnvironmentFailed("Parquet files are read by pyarrow, which is not installed: pip install pyarrow") from error


class ParquetDataset:
    """The rows of Parquet files as a dataset for pack(): dicts by column.

    files      in the order in which their rows are packed; all have the same columns
    columns    the columns to read; None: all
    label      the column of classes, which becomes `label`; None: the only one that Hugging Face's metadata calls a ClassLabel, else the
               column `label`, if there is one

    `classes` has the names of the classes, or is None if the metadata has none.
    """

    def __init__(self, files: Sequence[str | Path], columns: Sequence[str] | None = None, label: str | None = None) -> None:
        if isinstance(files, str | Path) or not files:
            raise InvalidArgument(f"files={files!r}: expected a list of Parquet files")
        self._files = [os.fspath(file) for file in files]
        groups = []  # (file, row group within the file, rows)
        schema: Any = None
        for number, file in enumerate(self._files):
            read = self._opened(file)
            if schema is None:
                schema = read.schema_arrow
            elif not read.schema_arrow.equals(schema):
                raise DatasetInvalid(f"{file}: its columns differ from those of {self._files[0]}: expected {_names(schema)}, found {_names(read.schema_arrow)}")
            groups += [(number, group, read.metadata.row_group(group).num_rows) for group in range(read.num_row_groups)]
        self._groups = [(file, group) for file, group, _ in groups]
        self._ends = list(itertools.accumulate(rows for _, _, rows in groups))
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
        self._read: tuple[int, int, Any] | None = None  # process, row group, its rows

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        group = bisect.bisect_right(self._ends, index)
        row = index - (self._ends[group - 1] if group else 0)
        rows = self._rows(group)
        return {"label" if name == self._label else name: self._value(name, rows.column(name)[row].as_py(), index) for name in self._columns}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_read": None}

    def _rows(self, group: int) -> Any:
        # Read again in a forked process, without threads, which a fork does not copy.
        if self._read is None or self._read[:2] != (os.getpid(), group):
            file, within = self._groups[group]
            rows = self._opened(self._files[file]).read_row_group(within, columns=self._columns, use_threads=False)
            self._read = os.getpid(), group, rows
        return self._read[2]

    @staticmethod
    def _opened(file: str) -> Any:
        pyarrow, parquet = _pyarrow()
        try:
            return parquet.ParquetFile(file)
        except (OSError, pyarrow.ArrowException) as error:
            raise DatasetInvalid(f"{file}: cannot be read as a Parquet file: {error}") from error

    @staticmethod
    def _value(name: str, value: Any, index: int) -> Any:
        if not isinstance(value, dict) or not value.keys() <= {"bytes", "path"}:
            return value
        if value.get("bytes") is None:
            raise DatasetInvalid(f"sample {index}, column {name!r}: it has no bytes, only the path {value.get('path')!r}: embed the files, as push_to_hub() does")
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
