"""headrace.pack() of common layouts: torchvision's pickles, HDF5, LMDB of pickles; and every kind of value."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import h5py
import headrace
import lmdb as lmdb_module
import lz4.frame
import numpy as np
import pytest
import torch
from headrace.errors import DatasetInvalid
from PIL import Image
from running import ROOT
from test_fields import AUGMENTED, SCALE
from test_pack import CROP, folder, good, inspect, lmdb, served
from test_pixel_sources import cifar, config  # noqa: F401  (a fixture)
from torchvision.datasets import CIFAR10, ImageFolder


def pack(dataset: Any, out: Path, **options: Any) -> headrace.Packed:
    return headrace.pack(dataset, out, **{"workers": 2, "progress": False, **options})


CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def cifar_pickles(folder: Path, images: Any, labels: Any, classes: list[str]) -> CIFAR10:
    """CIFAR-10's Python version in `folder`: images (n, 3, 32, 32) in five files; torchvision checks these files' own sums."""
    root = folder / "cifar-10-batches-py"
    root.mkdir()
    each = len(images) // 5

    def write(name: str, content: dict[str, Any]) -> str:
        data = pickle.dumps(content, protocol=2)
        (root / name).write_bytes(data)
        return hashlib.md5(data).hexdigest()

    def batch(name: str, first: int) -> list[str]:
        part = slice(first, first + each)
        return [name, write(name, {"data": images[part].reshape(-1, 3072), "labels": labels[part].tolist()})]

    class Fixture(CIFAR10):
        train_list = [batch(f"data_batch_{i + 1}", each * i) for i in range(5)]
        test_list = [batch("test_batch", 0)]
        meta = {
            "filename": "batches.meta",
            "key": "label_names",
            "md5": write("batches.meta", {"label_names": classes}),
        }

    return Fixture(str(folder), train=True)


@pytest.fixture
def pickles(cifar: dict[str, Any], tmp_path: Path) -> CIFAR10:  # noqa: F811
    """The images of the binary files in the Python version's form."""
    (Path(cifar["source"]["path"]) / "batches.meta.txt").write_text("\n".join(CLASSES) + "\n")
    return cifar_pickles(tmp_path, cifar["images"], cifar["labels"], CLASSES)


@pytest.mark.parametrize("compress", ["none", "lz4"])
def test_torchvisions_cifar10_gives_the_stream_of_the_binary_files(
    start_server: Any,
    cifar: dict[str, Any],  # noqa: F811
    pickles: CIFAR10,
    tmp_path: Path,
    compress: str,
) -> None:
    out = tmp_path / "cifar.lmdb"
    pack(pickles, out, compress=compress)
    transforms = [{"random_crop": {"size": 32, "padding": 4}}, "random_horizontal_flip"]
    digest, rows, classes = served(start_server, lmdb(out), transforms=transforms)
    assert (digest, rows, classes) == served(start_server, cifar["source"], transforms=transforms)
    assert list(classes) == CLASSES, "torchvision's own"
    # Images of one known size need no transforms.
    with headrace.Loader(start_server(config(lmdb(out), output={"layout": "NHWC"})).address, stream="train") as loader:
        for batch in loader:
            for image, label, index in zip(*batch, batch.sample_index, strict=True):
                expected, expected_label = pickles[int(index)]
                np.testing.assert_array_equal(image, np.asarray(expected))
                assert label == expected_label


def test_an_image_folders_files_or_pixels_give_its_stream(start_server: Any, image_folder: Path, tmp_path: Path) -> None:
    expected = served(start_server, folder(image_folder), transforms=CROP)
    pixels = ImageFolder(str(image_folder))
    files = [(Path(path).read_bytes(), label) for path, label in pixels.samples]
    pack(pixels, tmp_path / "pixels.lmdb", compress="zstd")
    pack(files, tmp_path / "files.lmdb", classes=pixels.classes)
    pack(files, tmp_path / "decoded.lmdb", classes=pixels.classes, store="decoded")
    for name in ("pixels", "files", "decoded"):
        assert served(start_server, lmdb(tmp_path / f"{name}.lmdb"), transforms=CROP) == expected
    assert inspect(tmp_path / "files.lmdb")["fields"][0]["content"] == "encoded image"


def test_an_hdf5_file_is_packed_by_the_example(start_server: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    arrays = {
        "Pixels": random.integers(0, 256, (30, 9, 7, 3), dtype=np.uint8),
        "targets": np.arange(30) % 4,
        "features": random.standard_normal((30, 3, 2)).astype(">f4"),
        "weight": random.random(30),
    }
    with h5py.File(tmp_path / "set.h5", "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values, chunks=True, compression="gzip")
    command = [sys.executable, str(ROOT / "bindings/examples/pack_hdf5.py"), "set.h5", "set.lmdb", "--label", "targets"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "30 samples in set.lmdb" in done.stdout
    address = start_server(config(lmdb(tmp_path / "set.lmdb"), output={"layout": "NHWC"})).address
    with headrace.Loader(address, stream="train", batch="dict") as loader:
        for batch in loader:
            at = batch.sample_index
            np.testing.assert_array_equal(batch["pixels"], arrays["Pixels"][at])
            np.testing.assert_array_equal(batch["features"], arrays["features"][at])
            np.testing.assert_array_equal(batch["weight"], arrays["weight"][at])
            np.testing.assert_array_equal(batch["label"], arrays["targets"][at])


class PickledPairs:
    """Values are pickled (low, high) arrays in lz4 frames, keys ascii; opened by each worker for itself."""

    def __init__(self, path: Path) -> None:
        self._path, self._env = str(path), None
        with lmdb_module.open(self._path, readonly=True, lock=False) as env, env.begin() as txn:
            self._keys = list(txn.cursor().iternext(values=False))

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: int) -> Any:
        if self._env is None:
            self._env = lmdb_module.open(self._path, readonly=True, lock=False)
        with self._env.begin() as txn:
            return pickle.loads(lz4.frame.decompress(txn.get(self._keys[index])))


def test_pickled_pairs_of_an_lmdb_are_cut_and_turned_alike(start_server: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    with lmdb_module.open(str(tmp_path / "pairs"), map_size=1 << 26) as env, env.begin(write=True) as txn:
        for index in range(12):
            height, width = (int(side) for side in random.integers(20, 40, 2))
            low = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
            pair = (low, low.repeat(SCALE, axis=0).repeat(SCALE, axis=1))
            txn.put(f"{index:08d}".encode(), lz4.frame.compress(pickle.dumps(pair)))
    out = tmp_path / "pairs.lmdb"
    pack(PickledPairs(tmp_path / "pairs"), out, fields={"lr": "image", "hr": f"image x{SCALE}"}, compress="lz4")
    address = start_server(config(lmdb(out), transforms=AUGMENTED, batch_size=4, output={"layout": "NHWC"})).address
    different = set()
    with headrace.Loader(address, stream="train", batch="dict") as loader:
        assert loader.classes == ()
        for _ in range(3):
            for batch in loader:
                assert batch["lr"].shape[1:] == (16, 16, 3) and batch["hr"].shape[1:] == (64, 64, 3)
                assert np.array_equal(batch["hr"], batch["lr"].repeat(SCALE, axis=1).repeat(SCALE, axis=2))
                different.update(row.tobytes() for row in batch["lr"])
    assert len(different) == 36


ROWS = 10


def rows_of(start_server: Any, out: Path, **stream: Any) -> list[dict[str, Any]]:
    """One epoch in order, a dict per row; ragged values as one array a row."""
    shown = {"shuffle": False, "batch_size": 4, "output": {"layout": "NHWC"}, **stream}
    rows: list[dict[str, Any]] = []
    with headrace.Loader(start_server(config(lmdb(out), **shown)).address, stream="train", batch="dict") as loader:
        for batch in loader:
            for at in range(len(batch.sample_index)):
                rows.append(
                    {
                        name: value[0][value[1][at] : value[1][at + 1]] if isinstance(value, tuple) else value[at]
                        for name, value in batch.items()
                    }
                )
    return rows


DTYPES = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"]


def test_every_dtype_comes_as_it_was(start_server: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(6)

    def sample(index: int) -> dict[str, Any]:
        values = random.integers(0, 100, (2, 3, 2))
        out: dict[str, Any] = {f"np_{name}": (values % 2 if name == "bool" else values - index).astype(name) for name in DTYPES}
        out |= {f"torch_{name}": torch.from_numpy(value.copy()) for name, value in out.items()}
        out["torch_bfloat16"] = torch.from_numpy(values).to(torch.bfloat16)
        out["big_endian"] = values.astype(">i4")
        out["part"] = values.T[::2].astype(np.float32)
        return out | {"number": index, "real": index / 3, "yes": index % 2 == 0, "numpy_scalar": np.float32(index)}

    samples = [sample(index) for index in range(ROWS)]
    pack(samples, tmp_path / "set.lmdb", workers=0)
    rows = rows_of(start_server, tmp_path / "set.lmdb")
    assert len(rows) == ROWS
    for row, expected in zip(rows, samples, strict=True):
        bits = row.pop("torch_bfloat16")
        assert bits.tobytes() == expected.pop("torch_bfloat16").view(torch.int16).numpy().tobytes()
        assert row.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(row[name], np.asarray(value), name)
            assert np.asarray(row[name]).dtype == np.asarray(value).dtype.newbyteorder("="), name


def test_values_are_converted_to_the_requested_dtype_if_it_holds_them(start_server: Any, tmp_path: Path) -> None:
    sample = {
        "whole": np.array([2**24, -(2**63), 3 << 40]),
        "half": np.array([-2048, 65504], np.int32),
        "rounded": np.array([1 / 3, 1e-60, np.inf, -np.inf, np.nan]),
        "small": [0, 255],
        "yes": True,
        "none": np.zeros((0, 2)),
    }
    fields = {"whole": "float32 (3,)", "half": "float16 (2,)", "rounded": "float32 (5,)", "small": "uint8 (2,)", "yes": "int64"}
    pack([sample] * 2, tmp_path / "set.lmdb", fields={**fields, "none": "ragged float16 (2,)"}, workers=0)
    for row in rows_of(start_server, tmp_path / "set.lmdb"):
        for name, spelling in fields.items():
            expected = np.asarray(sample[name]).astype(spelling.split()[0])
            assert np.asarray(row[name]).dtype == expected.dtype
            np.testing.assert_array_equal(row[name], expected, name)
        assert row["none"].size == 0


def test_values_that_differ_in_length_text_and_bytes(start_server: Any, tmp_path: Path) -> None:
    fields = {
        "boxes": "ragged float32 (4,)",
        "tokens": "ragged int64",
        "caption": "text",
        "blob": "bytes",
        "pose": "float32 (2,)",
        "target": "label",
        "unused": None,
    }
    Entry = namedtuple("Entry", list(fields))
    samples = [
        Entry(
            np.full((i % 3, 4), i, np.float64),
            torch.arange(i),
            f"größer als {i}" * (i % 4),
            bytes(range(i)),
            [i, 0.5],
            np.int64(i % 2),
            object(),
        )
        for i in range(ROWS)
    ]
    pack(samples, tmp_path / "set.lmdb", fields=fields, classes=["even", "odd"])
    rows = rows_of(start_server, tmp_path / "set.lmdb")
    for i, row in enumerate(rows):
        assert set(row) == {"boxes", "tokens", "caption", "blob", "pose", "label"}
        assert row["boxes"].dtype == np.float32
        np.testing.assert_array_equal(row["boxes"], np.full((i % 3, 4), i))
        np.testing.assert_array_equal(row["tokens"], np.arange(i))
        assert bytes(row["caption"]).decode() == f"größer als {i}" * (i % 4)
        assert bytes(row["blob"]) == bytes(range(i))
        assert (row["pose"].tolist(), row["label"]) == ([i, 0.5], i % 2)
    described = {field["name"]: field for field in inspect(tmp_path / "set.lmdb")["fields"]}
    assert described["boxes"]["content"] == "ragged values"


def test_images_of_every_kind_and_size_are_their_pixels(start_server: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(8)
    pixels = [random.integers(0, 256, (9 + i, 12 - i, 3), dtype=np.uint8) for i in range(ROWS)]
    gray = [image[:, :, 0] for image in pixels]
    palette = [Image.fromarray(image).quantize(16) for image in pixels]
    classes = [image % 21 for image in gray]

    def sample(i: int) -> dict[str, Any]:
        return {
            "pil": Image.fromarray(pixels[i]),
            "array": pixels[i],
            "tensor": torch.from_numpy(pixels[i]).permute(2, 0, 1),
            "flipped": pixels[i][:, ::-1],
            "gray": Image.fromarray(gray[i]),
            "one": gray[i][:, :, None],
            "mixed": Image.fromarray(gray[i]) if i % 2 else Image.fromarray(pixels[i]),
            "palette": palette[i],
            "alpha": Image.fromarray(pixels[i]).convert("RGBA"),
            "mask": Image.fromarray(classes[i]) if i % 2 else torch.from_numpy(classes[i].astype(np.int64)),
        }

    out = tmp_path / "set.lmdb"
    pack([sample(i) for i in range(ROWS)], out)
    assert "none damaged" in good("verify", out, "--decode")
    rows = rows_of(start_server, out, transforms=[{"center_crop": {"size": 3}}])

    def cut(image: Any) -> Any:
        image = np.asarray(image)
        top, left = (round((side - 3) / 2) for side in image.shape[:2])
        return image[top : top + 3, left : left + 3]

    for i, row in enumerate(rows):
        for name in ("pil", "array", "tensor", "alpha"):
            np.testing.assert_array_equal(row[name], cut(pixels[i]), name)
        np.testing.assert_array_equal(row["flipped"], cut(pixels[i][:, ::-1]))
        np.testing.assert_array_equal(row["palette"], cut(palette[i].convert("RGB")))
        for name in ("gray", "one"):
            np.testing.assert_array_equal(row[name][:, :, 0], cut(gray[i]), name)
        np.testing.assert_array_equal(row["mixed"], cut(Image.fromarray(gray[i]).convert("RGB") if i % 2 else pixels[i]))
        np.testing.assert_array_equal(row["mask"], cut(classes[i]))


def test_torchs_datasets_need_no_names(start_server: Any, tmp_path: Path) -> None:
    features = torch.randn(ROWS, 3, 4)
    tensors = torch.utils.data.TensorDataset(features, torch.arange(ROWS) % 2)
    pack(torch.utils.data.Subset(tensors, range(2, ROWS)), tmp_path / "set.lmdb")
    rows = rows_of(start_server, tmp_path / "set.lmdb")
    assert [list(row) for row in rows] == [["field_0", "label"]] * 8
    np.testing.assert_array_equal(np.stack([row["field_0"] for row in rows]), features[2:].numpy())
    loader = torch.utils.data.DataLoader(tensors, batch_size=None, num_workers=1)
    pack(loader, tmp_path / "iterated.lmdb")
    assert inspect(tmp_path / "iterated.lmdb")["count"] == ROWS


def test_a_loader_whose_workers_live_on_lets_the_binary_end(tmp_path: Path) -> None:
    class Raises(torch.utils.data.TensorDataset):
        def __getitem__(self, index: int) -> Any:
            if index == 5:
                raise ValueError("no")
            return super().__getitem__(index)

    loader = torch.utils.data.DataLoader(Raises(torch.randn(ROWS, 3)), batch_size=None, num_workers=2, persistent_workers=True)
    with pytest.raises(DatasetInvalid, match="sample 5: the dataset raised ValueError"):
        pack(loader, tmp_path / "set.lmdb")
    assert inspect(tmp_path / "set.lmdb")["packed"] == 5
