"""The runs of test_examples.py for the files of configs/ whose sources are not folders of images, or are made of other sources."""

from __future__ import annotations

import csv
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
import yaml
from examples import ALL, ANIMALS, Example, colors, example, photos
from far_server import FarServer
from images import write_images
from PIL import Image
from test_basicsr import write_pairs
from test_pixel_sources import write_idx
from test_webdataset import write_shards


@example
def mnist(it: Example) -> None:
    images = np.random.default_rng(3).integers(0, 256, (700, 28, 28), dtype=np.uint8)
    labels = np.arange(700, dtype=np.uint8) % 10
    (it.here / "mnist").mkdir()
    for name, count in (("train", 700), ("t10k", 70)):
        write_idx(it.here / f"mnist/{name}-images-idx3-ubyte.gz", images[:count])
        write_idx(it.here / f"mnist/{name}-labels-idx1-ubyte.gz", labels[:count])
    with it.served() as address:
        for stream, sizes in (("train", [300, 300, 100]), ("test", [70])):
            with headrace.Loader(address, stream=stream) as loader:
                batches = list(loader)
            assert [len(batch[1]) for batch in batches] == sizes
            for batch in batches:
                at = batch.sample_index
                np.testing.assert_array_equal(batch[1], labels[at])
                expected = (images[at, None] / np.float32(255) - np.float32(0.1307)) / np.float32(0.3081)
                np.testing.assert_array_equal(batch[0], expected.astype(np.float32))
        assert at.tolist() == list(range(70))


def write_cifar(folder: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    images = np.random.default_rng(4).integers(0, 256, (550, 3, 32, 32), dtype=np.uint8)
    labels = np.arange(550, dtype=np.uint8) % 10
    records = np.concatenate([labels[:, None], images.reshape(550, 3072)], axis=1)
    folder.mkdir()
    for file in range(5):
        (folder / f"data_batch_{file + 1}.bin").write_bytes(records[110 * file : 110 * file + 110].tobytes())
    shutil.copy(folder / "data_batch_1.bin", folder / "test_batch.bin")
    return images, labels


@example
def resident(it: Example) -> None:
    write_cifar(it.here / "cifar-10-batches-bin")
    with it.served() as address:
        for stream in ("train", "test"):
            with headrace.Loader(address, stream=stream) as sent, headrace.Loader(address, stream=stream, device="host", output="numpy") as made:
                for one, other in zip(sent, made, strict=True):
                    for array, again in zip(one, other, strict=True):
                        np.testing.assert_array_equal(array, again)


@example
def cifar10(it: Example) -> None:
    images, labels = write_cifar(it.here / "cifar-10-batches-bin")
    with it.served() as address:
        with headrace.Loader(address, stream="train") as loader:
            (batch,) = list(loader)
            assert batch[0].shape == (512, 3, 32, 32) and len(set(batch.sample_index)) == 512
            np.testing.assert_array_equal(batch[1], labels[batch.sample_index])
        with headrace.Loader(address, stream="test") as loader:
            (batch,) = list(loader)
            np.testing.assert_array_equal(batch[0], images[:110])
            np.testing.assert_array_equal(batch[1], labels[:110])


@example
def basicsr(it: Example) -> None:
    write_pairs(it.here)
    (it.here / "gt.lmdb").rename(it.here / "DF2K_HR_sub.lmdb")
    (it.here / "lq.lmdb").rename(it.here / "DF2K_bicubic_X4_sub.lmdb")
    with it.served() as address, headrace.Loader(address, stream="train", batch="dict") as loader:
        (batch,) = list(loader)
        assert batch["gt"].shape == (10, 3, 192, 192) and batch["gt"].dtype == np.float32
        np.testing.assert_array_equal(batch["gt"], batch["lq"].repeat(4, 2).repeat(4, 3))


@example
def superresolution(it: Example) -> None:
    random = np.random.default_rng(2)
    for folder in ("hr", "lr"):
        (it.here / folder).mkdir()
    for index in range(20):
        low = random.integers(0, 256, (50 + index, 60, 3), dtype=np.uint8)
        Image.fromarray(low).save(it.here / f"lr/{index:04d}.png")
        Image.fromarray(low.repeat(3, 0).repeat(3, 1)).save(it.here / f"hr/{index:04d}.png")
    with it.served() as address:
        with headrace.Loader(address, stream="train", batch="dict") as loader:
            batches = list(loader)
            assert [batch["lr"].shape for batch in batches] == [(16, 3, 48, 48), (4, 3, 48, 48)]
            for batch in batches:
                np.testing.assert_array_equal(batch["hr"], batch["lr"].repeat(3, 2).repeat(3, 3))
        with headrace.Loader(address, stream="srcnn", batch="dict") as loader:
            (batch,) = list(loader)
            assert batch["hr"].shape == batch["input"].shape == (20, 1, 33, 33)
            for luma in (batch["hr"], batch["input"]):
                assert 16 / 255 - 1e-6 <= luma.min() < luma.max() <= 235 / 255 + 1e-6
            assert np.abs(batch["hr"] - batch["input"]).mean() < 0.2, "the same part of one image, less sharp"


@example
def manifest(it: Example) -> None:
    photos(it.here / "pictures")
    tags = [["big", "wet"][: number % 3] for number in range(20)]
    rows = [
        {"file": f"pictures/{ANIMALS[label]}/{n:03d}.png", "animal": ANIMALS[label], "age": n, "caption": f"{label}, {n}", "tags": tags[n]}
        for label, n in ALL
    ]
    for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
        with (it.here / f"train{suffix}").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], delimiter=delimiter)
            writer.writeheader()
            writer.writerows(row | {"tags": "|".join(row["tags"])} for row in rows)
    (it.here / "val.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[::5]))
    for suffix in (".csv", ".tsv"):
        with it.served(sources__train_set__path=it.here / f"train{suffix}") as address:
            for stream, due in (("train", rows), ("val", rows[::5])):
                with headrace.Loader(address, stream=stream, batch="dict") as loader:
                    assert loader.classes == ANIMALS
                    (batch,) = list(loader)
                    text, ends = batch["caption"]
                    for i, index in enumerate(batch.sample_index):
                        assert (ANIMALS[batch["label"][i]], batch["age"][i]) == (due[index]["animal"], due[index]["age"])
                        assert bytes(text[ends[i] : ends[i + 1]]).decode() == due[index]["caption"]
                        assert batch["tags"][i].tolist() == [int(tag in due[index]["tags"]) for tag in ("big", "wet")]
                        assert colors(batch["image"])[i] == (batch["label"][i], batch["age"][i])
                    assert sorted(batch.sample_index) == list(range(len(due)))


@example
def webdataset(it: Example) -> None:
    images = write_images(it.here / "images", classes=3, per_class=20)
    paths = {
        f"sources__{name}_set__path": write_shards(images, it.here / "shards", name, tarfile.GNU_FORMAT, "cls") for name in ("train", "val")
    }
    with it.served(**paths) as address:
        for stream in ("train", "val"):
            with headrace.Loader(address, stream=stream) as loader:
                (batch,) = list(loader)
            assert batch[0].shape == (60, 3, 224, 224)
            np.testing.assert_array_equal(batch[1], np.repeat([0, 1, 2], 20)[batch.sample_index])
        assert batch.sample_index.tolist() == list(range(60))


@example
def npy(it: Example) -> None:
    random = np.random.default_rng(5)
    images, labels = random.integers(0, 256, (50, 12, 10, 3), dtype=np.uint8), np.arange(50) % 7
    features = random.standard_normal((50, 4, 2), dtype=np.float32)
    (it.here / "arrays").mkdir()
    for name, values in (("images", images), ("labels", labels), ("features", features)):
        np.save(it.here / f"arrays/{name}.npy", values)
    np.savez_compressed(it.here / "arrays/test.npz", x_test=images, y_test=labels)
    with it.served() as address:
        with headrace.Loader(address, stream="train", batch="dict") as loader:
            (batch,) = list(loader)
            at = batch.sample_index
            np.testing.assert_array_equal(batch["features"], features[at])
            np.testing.assert_array_equal(batch["label"], labels[at])
            plain = images[at].transpose(0, 3, 1, 2)
            flipped = (batch["image"] != plain).any(axis=(1, 2, 3))
            np.testing.assert_array_equal(batch["image"], np.where(flipped[:, None, None, None], plain[..., ::-1], plain))
        with headrace.Loader(address, stream="test") as loader:
            (batch,) = list(loader)
            np.testing.assert_array_equal(batch[0], images.transpose(0, 3, 1, 2))
            np.testing.assert_array_equal(batch[1], labels)


# --- sources made of sources


@example
def composed(it: Example) -> None:
    photos(it.here / "photos")
    photos(it.here / "more_photos", ("emu", "hound", "wolf"), each=10)
    with it.served() as address:
        seen: dict[str, list[tuple[int, int]]] = {}
        for stream in ("train", "quick", "val"):
            with headrace.Loader(address, stream=stream) as loader:
                assert loader.classes == ANIMALS
                seen[stream] = [pair for images, labels in loader for pair in zip(labels.tolist(), [c for c, _ in colors(images)], strict=True)]
    assert {stream: len(rows) for stream, rows in seen.items()} == {"train": 54 + 90, "quick": 7, "val": 6}
    assert all(label == color for label, color in seen["val"])
    # Besides the photos' own classes: emus are the other folder's first class; hounds and wolves became dogs.
    others = [(label, color) for label, color in seen["train"] if label != color]
    assert others.count((2, 0)) == others.count((1, 2)) == 30
    assert len(others) == 60


@example
def inputs(it: Example) -> None:
    for side in ("left", "right"):
        (it.here / side).mkdir()
        for i in range(10):
            Image.new("RGB", (80, 70), (i, 0, side == "left")).save(it.here / side / f"{i}.png")
        (it.here / f"{side}.txt").write_text("".join(f"{side}/{i}.png\n" for i in range(10)))
    np.save(it.here / "angles.npy", np.arange(10, dtype=np.float32))
    with it.served() as address, headrace.Loader(address, stream="train", batch="dict") as loader:
        (batch,) = list(loader)
        assert batch["left"].shape == batch["right"].shape == (10, 3, 64, 64)
        assert sorted(batch["angle"]) == list(range(10))
        np.testing.assert_array_equal(batch["left"][:, 0, 0, 0], batch["angle"])
        np.testing.assert_array_equal(batch["right"][:, 0, 9, 9], batch["angle"])
        assert (batch["left"][:, 2] == 1).all() and (batch["right"][:, 2] == 0).all()


@example
def remote(it: Example) -> None:
    images = write_images(it.here / "web" / "bucket" / "photos", classes=3, per_class=20)
    write_shards(images, it.here / "web", "train", tarfile.GNU_FORMAT, "cls")
    seen = {}
    with FarServer(it.here / "web") as web, pytest.MonkeyPatch.context() as environment:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
            environment.delenv(name, raising=False)
        environment.setenv("XDG_CACHE_HOME", str(it.here / "cache"))
        environment.setenv("AWS_ENDPOINT_URL", web.url)
        kept = {"sources__shards__io__disk_cache__path": it.here / "kept"}
        here = {"sources__shards__path": str(it.here / "web/train-{0000..0001}.tar"), "sources__photos__path": images}
        there = {"sources__shards__path": f"{web.url}/train-{{0000..0001}}.tar", "sources__photos__path": "s3://bucket/photos"}
        config = yaml.safe_load(it.file.read_text())
        del config["sources"]["photos"]["s3"]
        (it.here / "here.yaml").write_text(yaml.safe_dump(config))
        for file, place in ((it.here / "here.yaml", here), (it.file, there)):
            it.file = file
            with it.served(**kept, **place) as address:
                for stream in ("train", "val"):
                    with headrace.Loader(address, stream=stream) as loader:
                        batches = [(batch[0].tobytes(), batch[1].tolist()) for batch in loader]
                    assert sorted(label for _, labels in batches for label in labels) == [0] * 20 + [1] * 20 + [2] * 20
                    assert seen.setdefault(stream, batches) == batches, "the other folder has the same data"
        assert any("train-0001.tar" in line for line in web.requests)
    assert len(list((it.here / "kept").glob("*/*/*"))) in (60, 120)
