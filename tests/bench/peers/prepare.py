"""Writes the loaders' shared data into the scratch folder, once, from the folders of --data."""

from __future__ import annotations

import argparse
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

MNIST_REPEATS = 6


def once(path: Path, write: Callable[[Path], None]) -> Path:
    """Writes `path` by `write` under another name first, so that an interrupted run leaves no incomplete file."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{os.getpid()}-{path.name}")
        write(partial)
        partial.rename(path)
    return path


def positive(text: str) -> int:
    """A positive whole number, as an argument."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: not a whole number of 1 or more")
    return int(text)


def server_folder(run: int, name: str) -> Path:
    """The directory of a server of the run with this process id. It is not below the scratch folder, because socket paths must be short."""
    return Path(f"/tmp/headrace-peers-{run}-{name}")


def _read(folder: Path, name: str) -> bytes:
    packed = folder / f"{name}.gz"
    return gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / name).read_bytes()


def mnist(folder: Path, scratch: Path) -> None:
    """t10k repeated six times as IDX files: as many samples as the training set."""
    for name, header in (("t10k-images-idx3-ubyte", 16), ("t10k-labels-idx1-ubyte", 8)):

        def write(partial: Path, name: str = name, header: int = header) -> None:
            content = _read(folder, name)
            count = int.from_bytes(content[4:8], "big") * MNIST_REPEATS
            partial.write_bytes(content[:4] + count.to_bytes(4, "big") + content[8:header] + content[header:] * MNIST_REPEATS)

        once(scratch / "mnist" / name, write)


def mnist_arrays(scratch: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images of N x 1 x 28 x 28, labels."""
    images = np.fromfile(scratch / "mnist/t10k-images-idx3-ubyte", np.uint8)
    sides = [int.from_bytes(images[at : at + 4].tobytes(), "big") for at in (8, 12)]
    labels = np.fromfile(scratch / "mnist/t10k-labels-idx1-ubyte", np.uint8)[8:].astype(np.int64)
    return images[16:].reshape(-1, 1, *sides), labels


def cifar(folder: Path, scratch: Path) -> None:
    """From a folder per class of 32x32 pictures: CIFAR-10's binary batches, and the same as arrays."""
    from PIL import Image

    def write(partial: Path) -> None:
        classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
        files = [(file, label) for label, name in enumerate(classes) for file in sorted((folder / name).iterdir())]
        images = np.empty((len(files), 3, 32, 32), np.uint8)
        for row, (file, _) in enumerate(files):
            images[row] = np.asarray(Image.open(file).convert("RGB")).transpose(2, 0, 1)
        labels = np.array([label for _, label in files], np.uint8)
        partial.mkdir()
        np.save(partial / "images.npy", images)
        np.save(partial / "labels.npy", labels.astype(np.int64))
        rows = np.concatenate([labels[:, None], images.reshape(len(files), -1)], axis=1)
        for part, some in enumerate(np.array_split(np.random.default_rng(0).permutation(rows), 5)):
            some.tofile(partial / f"data_batch_{part + 1}.bin")
        (partial / "batches.meta.txt").write_text("\n".join(classes) + "\n")

    once(scratch / "cifar", write)


def cifar_arrays(scratch: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images of N x 3 x 32 x 32, labels."""
    return np.load(scratch / "cifar/images.npy"), np.load(scratch / "cifar/labels.npy")


def image_files(folder: Path) -> tuple[list[str], list[int]]:
    """Files and classes of a folder per class."""
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    found = [(str(file), label) for label, name in enumerate(classes) for file in sorted((folder / name).iterdir())]
    return [file for file, _ in found], [label for _, label in found]


def pair_files(scratch: Path) -> list[tuple[str, str]]:
    """Low and high resolution of each pair."""
    low = sorted((scratch / "pairs/lr").iterdir())
    return [(str(file), str(scratch / "pairs/hr" / file.name)) for file in low]


def pairs(folder: Path, scratch: Path) -> None:
    """From NAME_HR.png beside NAME_LR.png: a folder for each of them, with links of equal names."""

    def write(partial: Path) -> None:
        if not any(folder.glob("*_HR.png")):
            raise FileNotFoundError("it has no files NAME_HR.png and NAME_LR.png")
        for kind in ("HR", "LR"):
            (partial / kind.lower()).mkdir(parents=True)
            for file in sorted(folder.glob(f"*_{kind}.png")):
                (partial / kind.lower() / file.name.replace(f"_{kind}", "")).symlink_to(file.resolve())

    once(scratch / "pairs", write)


def imagenet(folder: Path, scratch: Path) -> None:
    """The folder is used as it is."""
    if not any(folder.glob("*/*")):
        raise FileNotFoundError(f"{folder} has no folder per class with images")


PREPARE = {"mnist": mnist, "cifar": cifar, "imagenet": imagenet, "pairs": pairs}
