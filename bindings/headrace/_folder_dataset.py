"""Folders that other loaders' libraries write and read, as datasets for pack()."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from . import _pack_command
from .errors import DatasetInvalid, EnvironmentFailed, Error, InvalidArgument


class FolderDataset:
    """The samples of a folder.

    folder     as its library wrote it, complete and on this machine
    columns    the columns to read; None: all
    label      the column of classes, which becomes `label`: integers
    """

    format: ClassVar[str]
    module: ClassVar[str]
    install: ClassVar[str]

    def __init__(self, folder: str | Path, columns: Sequence[str] | None = None, label: str | None = None) -> None:
        self._folder = os.fspath(folder)
        self._label = label
        self._opened: tuple[int, Any, int] | None = None  # process, the library's dataset, its length
        if not os.path.isdir(self._folder):
            raise DatasetInvalid(f"{self._folder} is not a folder on this machine: expected a {self.format} folder; download it first")
        first = self._read(0) if len(self) else None
        names = list(first) if isinstance(first, dict) else []
        for name in [*(columns or ()), *([label] if label else ())]:
            if name not in names:
                raise InvalidArgument(f"{self._folder} has no column {name!r}; columns: {', '.join(names) or 'none'}")
        if label and isinstance(first, dict) and isinstance(first[label], str | bytes):
            kind = type(first[label]).__name__
            raise InvalidArgument(f"{self._folder}: column {label!r} has values of type {kind}, expected integers as classes: write the folder with them, or pack the column without label= (--label)")
        self._columns = None if columns is None else {*columns, *([label] if label else ())}
        _pack_command.check_label(names if self._columns is None else self._columns, label, self._folder)

    def __len__(self) -> int:
        return self._dataset()[1]

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        sample = self._read(index)
        if not isinstance(sample, dict):
            return sample
        return {"label" if name == self._label else name: value for name, value in sample.items() if self._columns is None or name in self._columns}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def _dataset(self) -> tuple[Any, int]:
        # Each process opens its own: the libraries have threads and open files, which a fork does not copy.
        if self._opened is None or self._opened[0] != os.getpid():
            try:
                library = importlib.import_module(self.module)
            except ImportError as error:
                raise EnvironmentFailed(f"reading {self.format} folders needs {self.install}, which cannot be imported ({error}): run `pip install {self.install}`") from error
            with self._named(f"{self._folder} cannot be read as {self.format}"):
                opened = self._open(library)
                self._opened = os.getpid(), opened, len(opened)
        return self._opened[1:]

    def _read(self, index: int) -> Any:
        opened, _ = self._dataset()
        with self._named(f"{self._folder}: row {index} cannot be read as {self.format}"):
            return self._sample(opened, index)

    @staticmethod
    @contextlib.contextmanager
    def _named(what: str) -> Iterator[None]:
        """Names the folder in whatever the library raises: for damaged files this may be any exception."""
        try:
            yield
        except Error:
            raise
        except Exception as error:
            why = " ".join(str(error).split())
            raise DatasetInvalid(f"{what}: {type(error).__name__}: {why}") from error

    def _open(self, library: Any) -> Any:
        """The library's own dataset; files of JPEG and PNG stay as they are."""
        raise NotImplementedError

    def _sample(self, opened: Any, index: int) -> Any:
        return opened[index]


def command(dataset: type[FolderDataset], name: str, description: str | None, arguments: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m headrace.{name}", description=(description or "").split("\n")[0])
    parser.add_argument("folder", help=f"{dataset.format} folder on this machine")
    parser.add_argument("--label", metavar="NAME", help="the column of classes, integers (default: `label`)")
    return _pack_command.run(parser, lambda given: dataset(given.folder, given.columns, given.label), arguments)
