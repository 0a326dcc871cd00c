"""The benchmark of the training examples (tests/bench/training): its splits and its table, on synthetic files."""

from __future__ import annotations

import gzip
import struct
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from running import ROOT

sys.path.insert(0, str(ROOT / "tests/bench"))

from training import real_sets, report  # noqa: E402


def archive(folder: Path, name: str, files: dict[str, Image.Image]) -> None:
    """A tar of images, as their names say."""
    with tarfile.open(folder / name, "w") as tar:
        for path, image in files.items():
            image.save(folder / Path(path).name, quality=95)
            tar.add(folder / Path(path).name, path)


def gray(value: int, size: int = 32) -> Image.Image:
    return Image.new("RGB", (size, size), (value, value, value))


def test_test_samples_are_held_out_of_the_whole_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_sets, "MNIST_TRAIN", 7)
    monkeypatch.setattr(real_sets, "CIFAR_HELD_OUT", 4)
    monkeypatch.setattr(real_sets, "PAIRS_HELD_OUT", 2)
    images = np.repeat(np.arange(10, dtype=np.uint8), 784)
    for kind, header, values in (("images-idx3", (0x803, 10, 28, 28), images), ("labels-idx1", (0x801, 10), np.arange(10, dtype=np.uint8))):
        packed = struct.pack(f">{len(header)}I", *header) + values.tobytes()
        (tmp_path / f"t10k-{kind}-ubyte.gz").write_bytes(gzip.compress(packed))
    classes = [f"class{label}" for label in range(2)]
    archive(
        tmp_path,
        "cifar10-train-jpg.tar",
        {f"train/{name}/{label}{i}.jpg": gray(100 * label + 10 * i) for label, name in enumerate(classes) for i in range(8)},
    )
    archive(
        tmp_path,
        "bsd100-x4-pairs.tar",
        {f"set/img_{i}_{side}.png": gray(20 * i, size) for i in range(5) for side, size in (("HR", 64), ("LR", 16))},
    )
    data = tmp_path / "data"
    real_sets.write_all(tmp_path, data)

    raw = data / "MNIST/raw"
    assert [list((raw / f"{part}-labels-idx1-ubyte").read_bytes()[8:]) for part in ("train", "t10k")] == [[*range(7)], [7, 8, 9]]
    assert (raw / "t10k-images-idx3-ubyte").read_bytes() == struct.pack(">4I", 0x803, 3, 28, 28) + images[7 * 784 :].tobytes()
    parts = {}
    for part, files in (("train", real_sets.CIFAR_TRAIN), ("test", real_sets.CIFAR_TEST)):
        records = np.concatenate([np.fromfile(data / "cifar-10-batches-bin" / name, np.uint8) for name in files]).reshape(-1, 3073)
        parts[part] = [(int(row[0]), int(row[1])) for row in records]
    assert [[10 * (i + 10 * label) for i in (6, 7)] for label in range(2)] == [
        [value for found, value in parts["test"] if found == label] for label in range(2)
    ]
    assert sorted(parts["train"]) == [(label, 100 * label + 10 * i) for label in range(2) for i in range(6)]
    for side in ("lr", "hr"):
        held = [[Image.open(path).getpixel((0, 0)) for path in sorted((data / "pairs" / part / side).iterdir())] for part in ("train", "test")]
        assert held == [[(20 * i,) * 3 for i in (0, 1, 2)], [(20 * i,) * 3 for i in (3, 4)]]


def test_the_table_has_medians_and_ranges_over_the_seeds() -> None:
    lines = [
        {"seconds_per_epoch": s, "wait_share": w, "cpu": c, "last": {"accuracy": a, "samples": 4000, "test_samples": 2000}}
        for s, w, c, a in ((1.5, 0.1, 30.2, 0.95), (9.0, 0.2, 99.0, 0.94), (1.4, 0.0, 20.0, 0.96))
    ]
    case = report.Case("mnist_mlp", ("--epochs", "10"), ranks=2)
    about = {"cores": 2, "cpu": "a CPU", "gpu": None, "python": "3", "torch": "2", "date": "today", "commit": "abc", "load": 1.0}
    text = report.markdown({case: {"Headrace": lines, "DataLoader": lines[:1]}}, about, 120)
    assert "| Headrace | 1.50 | 10.0% | 95.00% (94.00 to 96.00) | 30 |\n| DataLoader | 1.50 | 10.0% | 95.00% | 30 |\n" in text
    assert "### `mnist_mlp --epochs 10, 2 ranks`\n\n8,000 samples an epoch, 2,000 to test; " in text
    assert "; an accuracy measured on so few samples has a standard error of 0.49 percentage points; 3 seeds." in text
    assert real_sets.DATA_USED["mnist_mlp"] in text and "srcnn" not in text
