"""Packs the datasets of an HDF5 file, whose first dimension counts the samples, into one database that the server reads.

    python pack_hdf5.py train.h5 train.lmdb [--label targets]

If it was stopped or killed, the same command continues it.
"""

from __future__ import annotations

import argparse
from typing import Any

import h5py
import headrace


class Hdf5:
    """A dataset whose samples are dicts with one row of each array."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: h5py.File | None = None
        with h5py.File(path) as file:
            self.names = [name for name in file if isinstance(file[name], h5py.Dataset)]
            self._count = len(file[self.names[0]])

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self._file is None:  # opened on first use, because an open file must not be forked into workers
            self._file = h5py.File(self._path)
        return {name: self._file[name][index] for name in self.names}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", help="the HDF5 file")
    parser.add_argument("out", help="the folder of the database")
    parser.add_argument("--label", default="label", help="the name of the dataset with the classes (default: label)")
    arguments = parser.parse_args()
    dataset = Hdf5(arguments.file)
    with h5py.File(arguments.file) as file:
        images = {n for n in dataset.names if file[n].dtype == "uint8" and file[n].ndim == 4 and file[n].shape[3] in (1, 3)}
        fields = {
            name: "label"
            if name == arguments.label
            else "image"
            if name in images
            else f"{file[name].dtype.name} ({', '.join(map(str, file[name].shape[1:]))})"
            for name in dataset.names
        }
    done = headrace.pack(dataset, arguments.out, fields=fields, compress="lz4")
    print(f"{done.samples} samples in {done.path}, {done.file_bytes} bytes; fields: {fields}")
