"""Real datasets end to end, if they are available: HEADRACE_DATA names a folder with MNIST's test files, CIFAR-10's training images as
JPEGs (cifar10-train-jpg.tar), BSD100's pairs of scale 4 (bsd100-x4-pairs.tar) and ImageNet images (imagenet-500.tar; test_real_packs.py).
Skipped without."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from PIL import Image

# A folder that is named but missing makes the tests fail: only the variable decides whether they run.
DATA = Path(os.environ.get("HEADRACE_DATA", "HEADRACE_DATA is not set"))
needs_data = pytest.mark.skipif("HEADRACE_DATA" not in os.environ, reason="set HEADRACE_DATA to the folder with the real sets")
pytestmark = needs_data

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


def config(source: dict[str, Any], **stream: Any) -> dict[str, Any]:
    return {
        "server": {"metrics": "off"},
        "sources": {"set": source},
        "streams": {"train": {"source": "set", "batch_size": 64, **stream}},
    }


def unpacked(name: str, folder: Path) -> Path:
    shutil.unpack_archive(DATA / name, folder)
    return folder


def epoch(address: str, names: tuple[str, ...]) -> dict[str, Any]:
    """A whole epoch in the source's order."""
    with headrace.Loader(address, stream="train", batch="dict") as loader:
        batches = list(loader)
    index = np.concatenate([batch.sample_index for batch in batches])
    assert sorted(index) == list(range(len(index)))
    return {name: np.concatenate([batch[name] for batch in batches])[np.argsort(index)] for name in names}


def test_mnist(start_server: Any) -> None:
    files = [DATA / f"t10k-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
    source = {"type": "idx", "images": str(files[0]), "labels": str(files[1])}
    seen = epoch(start_server(config(source)).address, ("image", "label"))
    images = np.frombuffer(gzip.decompress(files[0].read_bytes()), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    labels = np.frombuffer(gzip.decompress(files[1].read_bytes()), np.uint8, offset=8)
    assert len(images) == 10000
    np.testing.assert_array_equal(seen["image"], images)
    np.testing.assert_array_equal(seen["label"], labels)


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pixels, Any, list[str]]:
    """50,000 images as PIL decodes the JPEGs, CHW, and their classes."""
    root = unpacked("cifar10-train-jpg.tar", tmp_path_factory.mktemp("cifar")) / "train"
    names = sorted(folder.name for folder in root.iterdir())
    files = [(path, label) for label, name in enumerate(names) for path in sorted((root / name).iterdir())]
    images = np.stack([np.asarray(Image.open(path)).transpose(2, 0, 1) for path, _ in files])
    return images, np.array([label for _, label in files]), names


def write_binary(folder: Path, images: Pixels, labels: Any, names: list[str]) -> None:
    """CIFAR-10's binary version: five files."""
    records = np.concatenate([labels[:, None].astype(np.uint8), images.reshape(len(images), -1)], axis=1)
    for part, rows in enumerate(np.split(records, 5)):
        (folder / f"data_batch_{part + 1}.bin").write_bytes(rows.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(names))


def test_cifar_10_binary(start_server: Any, cifar: tuple[Pixels, Any, list[str]], tmp_path: Path) -> None:
    images, labels, names = cifar
    order = np.random.default_rng(0).permutation(len(images))
    write_binary(tmp_path, images[order], labels[order], names)
    seen = epoch(start_server(config({"type": "cifar", "path": str(tmp_path)})).address, ("image", "label"))
    np.testing.assert_array_equal(seen["image"], images[order])
    np.testing.assert_array_equal(seen["label"], labels[order])


def place_of(patch: Pixels, image: Pixels) -> list[tuple[int, int]]:
    """The position of `patch` in `image`, both HWC."""
    size = len(patch)
    windows = np.lib.stride_tricks.sliding_window_view(image, (size, size), axis=(0, 1))
    return [
        (int(y), int(x)) for y, x in np.argwhere((windows == patch.transpose(2, 0, 1)).all(axis=(2, 3, 4)))
    ]


@pytest.fixture(scope="module")
def bsd100(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], dict[str, list[Pixels]]]:
    """The folder, the names of its pairs, and their pixels by PIL: LR and HR, HWC."""
    root = unpacked("bsd100-x4-pairs.tar", tmp_path_factory.mktemp("bsd100")) / "image_SRF_4"
    names = sorted(path.name.removesuffix("_HR.png") for path in root.glob("*_HR.png"))
    pair = {
        kind: [np.asarray(Image.open(root / f"{name}_{kind}.png").convert("RGB")) for name in names]
        for kind in ("LR", "HR")
    }
    return root, names, pair


def test_bsd100_pairs_are_cut_alike(start_server: Any, bsd100: tuple[Path, list[str], dict[str, list[Pixels]]]) -> None:
    root, names, pair = bsd100
    fields = {kind.lower(): {"path": str(root), "names": f"{{}}_{kind}"} for kind in ("LR", "HR")}
    stream = {"transforms": [{"random_crop": {"size": 32}}], "output": {"layout": "NHWC"}, "batch_size": 8}
    with headrace.Loader(
        start_server(config({"type": "paired_folders", "fields": fields}, **stream)).address,
        stream="train",
        batch="dict",
    ) as loader:
        cut = [
            row for batch in loader for row in zip(batch.sample_index, batch["lr"], batch["hr"], strict=True)
        ]
    assert sorted(int(index) for index, _, _ in cut) == list(range(len(names))) and len(names) >= 100
    for index, lr, hr in cut:
        places = place_of(lr, pair["LR"][index])
        assert any(
            np.array_equal(hr, pair["HR"][index][4 * y : 4 * y + 128, 4 * x : 4 * x + 128]) for y, x in places
        ), names[index]
