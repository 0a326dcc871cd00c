"""Sets of decoded images, served: IDX and CIFAR files against their own bytes, PIL and torch."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from PIL import Image


def write_idx(path: Path, values: np.ndarray[Any, np.dtype[np.uint8]]) -> Path:
    data = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.fixture
def digits(tmp_path: Path) -> dict[str, Any]:
    """70 gray images of 28 x 28 as IDX files."""
    random = np.random.default_rng(3)
    images = random.integers(0, 256, (70, 28, 28), dtype=np.uint8)
    labels = random.integers(0, 10, 70, dtype=np.uint8)
    labels[:10] = np.arange(10)
    write_idx(tmp_path / "images-idx3-ubyte.gz", images)
    write_idx(tmp_path / "labels-idx1-ubyte", labels)
    source = {"type": "idx", "images": str(tmp_path / "images-idx3-ubyte.gz"), "labels": str(tmp_path / "labels-idx1-ubyte")}
    return {"images": images, "labels": labels, "source": source}


def config(source: dict[str, Any], **stream: Any) -> dict[str, Any]:
    return {
        "server": {"threads": 1, "metrics": "off"},
        "sources": {"set": source},
        "streams": {"train": {"source": "set", "batch_size": 16, **stream}},
    }


def test_gray_images_keep_their_one_channel_and_their_bytes(start_server: Any, digits: dict[str, Any]) -> None:
    with headrace.Loader(start_server(config(digits["source"])).address, stream="train") as loader:
        seen = []
        for batch in loader:
            assert batch[0].shape[1:] == (1, 28, 28)
            np.testing.assert_array_equal(batch[0][:, 0], digits["images"][batch.sample_index])
            np.testing.assert_array_equal(batch[1], digits["labels"][batch.sample_index])
            seen += batch.sample_index.tolist()
        assert sorted(seen) == list(range(70))
        assert loader.classes == tuple(str(i) for i in range(10))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_gray_images_are_normalized_by_one_mean_and_std(start_server: Any, digits: dict[str, Any], layout: str) -> None:
    stream = {"transforms": [{"normalize": {"mean": [0.1307], "std": [0.3081]}}], "output": {"dtype": "float32", "layout": layout}}
    with headrace.Loader(start_server(config(digits["source"], **stream)).address, stream="train") as loader:
        for batch in loader:
            pixels = digits["images"][batch.sample_index].astype(np.float32) / np.float32(255)
            expected = (pixels - np.float32(0.1307)) / np.float32(0.3081)
            image = batch[0][:, 0] if layout == "NCHW" else batch[0][..., 0]
            np.testing.assert_array_equal(image, expected)


def test_gray_images_are_resized_as_pil_resizes_its_mode_l(start_server: Any, digits: dict[str, Any]) -> None:
    stream = {"transforms": [{"resize": {"size": [20, 37]}}, "random_vertical_flip"]}
    address = start_server(config(digits["source"], **stream)).address
    with headrace.Loader(address, stream="train") as loader:
        flips = 0
        for batch in loader:
            for image, index in zip(batch[0][:, 0], batch.sample_index, strict=True):
                expected = np.asarray(Image.fromarray(digits["images"][index]).resize((37, 20), Image.Resampling.BILINEAR))
                flipped = not (image == expected).all()
                np.testing.assert_array_equal(image[::-1] if flipped else image, expected)
                flips += flipped
        assert 15 < flips < 55


def test_training_and_validation_come_from_one_idx_set(start_server: Any, digits: dict[str, Any]) -> None:
    source = {**digits["source"], "split": {"fractions": {"train": 0.8, "val": 0.2}}}
    both = config(source, part="train")
    both["streams"]["val"] = {"source": "set", "part": "val", "batch_size": 16, "shuffle": False}
    address = start_server(both).address
    seen: dict[str, list[int]] = {}
    for stream in ("train", "val"):
        with headrace.Loader(address, stream=stream) as loader:
            seen[stream] = [int(i) for batch in loader for i in batch.sample_index]
    assert (len(seen["train"]), len(seen["val"])) == (56, 14)
    assert sorted(seen["train"] + seen["val"]) == list(range(70))


@pytest.fixture
def cifar(tmp_path: Path) -> dict[str, Any]:
    """CIFAR-10's five training files, of 12 images each."""
    random = np.random.default_rng(4)
    images = random.integers(0, 256, (60, 3, 32, 32), dtype=np.uint8)
    labels = random.integers(0, 10, 60, dtype=np.uint8)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    records = np.concatenate([labels[:, None], images.reshape(60, 3072)], axis=1)
    for file in range(5):
        (folder / f"data_batch_{file + 1}.bin").write_bytes(records[12 * file : 12 * file + 12].tobytes())
    return {"images": images, "labels": labels, "source": {"type": "cifar", "path": str(folder)}}


def test_cifar_is_augmented_as_torchvision_would_with_the_parameters_that_were_drawn(start_server: Any, cifar: dict[str, Any]) -> None:
    stream = {"transforms": [{"random_crop": {"size": 32, "padding": 4}}, "random_horizontal_flip"]}
    address = start_server(config(cifar["source"], **stream)).address
    with headrace.Loader(address, stream="train") as loader:
        position = 0
        for batch in loader:
            for image, label, index in zip(*batch, batch.sample_index, strict=True):
                sample = headrace.sample(address, "train", 0, position)
                crop, flip = sample.parameters
                padded = np.pad(cifar["images"][index], ((0, 0), (4, 4), (4, 4)))
                expected = padded[:, crop["top"] : crop["top"] + 32, crop["left"] : crop["left"] + 32]
                np.testing.assert_array_equal(image, expected[:, :, ::-1] if flip["applied"] else expected)
                assert label == cifar["labels"][index]
                position += 1
        assert position == 60


def test_normalize_with_three_channels_is_refused_for_gray_images(start_server: Any, digits: dict[str, Any], tmp_path: Path) -> None:
    stream = {"transforms": [{"normalize": {"mean": [0.5] * 3, "std": [0.5] * 3}}], "output": {"dtype": "float32"}}
    with pytest.raises(AssertionError, match=r"expected 1 number \(gray images\) in each of mean and std, one per channel, found 3"):
        start_server(config(digits["source"], **stream))
