"""`device: gpu` in the configuration: the loader's device, here the CPU backend, applies the end of the chain. The batches are the same
as those of the stream with `device: cpu`, bit for bit, for all draws and image sizes."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from headrace.errors import InvalidArgument
from PIL import Image
from running import Server

NORMALIZE = {"normalize": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}}
IMAGENET: list[Any] = [{"random_resized_crop": {"size": 32}}, "random_horizontal_flip", NORMALIZE]
JITTER = {"color_jitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}}


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """40 JPEGs and PNGs of many sizes; some are gray, and one is not an image."""
    random = np.random.default_rng(3)
    for i in range(40):
        folder = tmp_path / "set" / f"class{i % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        height, width = random.integers(8, 64, 2)
        noise = random.integers(0, 256, (height // 4 + 1, width // 4 + 1, 3), np.uint8)
        picture = Image.fromarray(noise).resize((int(width), int(height)), Image.Resampling.BICUBIC)
        if i % 7 == 0:
            picture = picture.convert("L")
        picture.save(folder / (f"{i:02}.png" if i % 5 == 0 else f"{i:02}.jpg"), quality=90)
    (tmp_path / "set" / "class1" / "broken.jpg").write_bytes(b"\xff\xd8 no picture")
    return tmp_path / "set"


def both(source: dict[str, Any], stream: dict[str, Any]) -> dict[str, Any]:
    """A configuration of two streams that differ in where images are finished."""
    plan = {"source": "set", "seed": 7, "batch_size": 8, **stream}
    streams = {"cpu": deepcopy(plan), "gpu": deepcopy(plan) | {"device": "gpu"}}
    return {"server": {"metrics": "off"}, "sources": {"set": source}, "streams": streams}


def batches(address: str, stream: str, epochs: int = 2, **how: Any) -> list[dict[str, np.ndarray]]:
    out = []
    with headrace.Loader(address, stream=stream, batch="dict", meta=True, **how) as loader:
        for _ in range(epochs):
            out += [{name: np.asarray(value).copy() for name, value in batch.items()} for batch in loader]
    return out


def check_same(server: Server) -> list[dict[str, np.ndarray]]:
    finished = batches(server.address, "cpu")
    left = batches(server.address, "gpu", device="host")
    assert len(left) == len(finished) > 0
    for number, (there, here) in enumerate(zip(left, finished, strict=True)):
        assert list(there) == list(here)
        for name, value in here.items():
            assert there[name].dtype == value.dtype, name
            np.testing.assert_array_equal(there[name], value, err_msg=f"batch {number}, {name}")
    return left


CHAINS: dict[str, list[Any]] = {
    "imagenet": IMAGENET,
    "evaluation": [{"resize": {"size": 40}}, {"center_crop": {"size": 32}}, NORMALIZE],
    "cifar": [{"resize": {"size": [32, 32]}}, {"random_crop": {"size": 32, "padding": 4}}, "random_horizontal_flip", NORMALIZE],
    "reflected": [{"random_crop": {"size": 300, "pad_if_needed": True, "padding_mode": "symmetric"}}, "random_vertical_flip"],
    "colors": [IMAGENET[0], JITTER, {"random_grayscale": {"p": 0.3}}, NORMALIZE],
    "turns": [IMAGENET[0], "random_rotate90", "to_y"],
    "erased": [IMAGENET[0], "random_horizontal_flip", {"random_erasing": {"p": 0.8, "value": [7, 8, 9]}}],
    "unknown to the device": [IMAGENET[0], "rand_augment", NORMALIZE],
    "unknown at first": ["trivial_augment_wide", *IMAGENET],
    "unknown at last": [*IMAGENET[:2], {"gaussian_blur": {"kernel_size": 3}}],
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize("chain", CHAINS)
def test_batches_are_those_of_the_server(photographs: Path, start_server: Any, chain: str, dtype: str) -> None:
    transforms = [step for step in CHAINS[chain] if dtype != "uint8" or step is not NORMALIZE]
    layout = "NHWC" if dtype == "float16" else "NCHW"
    stream = {"transforms": transforms, "output": {"dtype": dtype, "layout": layout}}
    server = start_server(both({"type": "image_folder", "path": str(photographs)}, stream))
    left = check_same(server)
    assert sum(int(batch["replaced"].sum()) for batch in left) == 2, "the broken one, once an epoch"


def test_torchs_tensors_and_small_prefetch_are_the_same(photographs: Path, start_server: Any) -> None:
    stream = {"transforms": IMAGENET, "output": {"dtype": "bfloat16"}, "batch_size": 1}
    config = both({"type": "image_folder", "path": str(photographs)}, stream)
    address = start_server(config).address
    with (
        headrace.Loader(address, stream="cpu", output="torch") as finished,
        headrace.Loader(address, stream="gpu", device="host", output="torch", prefetch=1) as left,
    ):
        for (image, label), (expected, right) in zip(left, finished, strict=True):
            assert image.equal(expected) and label.equal(right)


def test_batches_are_the_same_with_decoded_images_in_the_cache(photographs: Path, start_server: Any) -> None:
    source = {"type": "image_folder", "path": str(photographs), "cache": {"decoded": "16MB"}}
    stream = {"transforms": [{"resize": {"size": 48}}, *IMAGENET], "output": {"dtype": "float32"}}
    check_same(start_server(both(source, stream)))


def test_arrays_of_one_size_are_the_same(tmp_path: Path, start_server: Any) -> None:
    """Rows that the server only copies, a slice at a time."""
    random = np.random.default_rng(1)
    np.save(tmp_path / "image.npy", random.integers(0, 256, (50, 31, 27, 3), np.uint8))
    np.save(tmp_path / "label.npy", np.arange(50))
    source = {"type": "npy", "fields": {"image": str(tmp_path / "image.npy"), "label": str(tmp_path / "label.npy")}}
    transforms = ["random_horizontal_flip", JITTER, NORMALIZE]
    check_same(start_server(both(source, {"transforms": transforms, "output": {"dtype": "float32"}})))


def test_fields_that_are_no_images_come_as_they_are(photographs: Path, start_server: Any) -> None:
    """The device also computes a derived image, whose size differs from the original's."""
    stream = {
        "transforms": [{"random_crop": {"size": 16, "pad_if_needed": True}}, "random_horizontal_flip", "random_rotate90"],
        "derive": {"small": {"from": "image", "factor": 2}},
        "output": {"dtype": "float32"},
    }
    left = check_same(start_server(both({"type": "image_folder", "path": str(photographs)}, stream)))
    assert left[0]["small"].shape[1:] == (3, 16, 16)
    assert left[0]["image"].shape[1:] == (3, 32, 32)


def test_one_resumes_what_the_other_began(photographs: Path, start_server: Any) -> None:
    """A stream's fingerprint does not depend on whether server or device computes the images."""
    config = both({"type": "image_folder", "path": str(photographs)}, {"transforms": IMAGENET, "output": {"dtype": "float32"}})
    configs = {name: config | {"streams": {"train": config["streams"][name]}} for name in ("cpu", "gpu")}
    address = start_server(configs["cpu"]).address
    whole = batches(address, "train", epochs=1)
    with headrace.Loader(address, stream="train") as loader:
        for _ in zip(range(3), loader, strict=False):
            pass
        state = loader.state_dict()
    rest = batches(start_server(configs["gpu"]).address, "train", epochs=1, device="host", state=state)
    assert len(rest) == len(whole) - 3
    for there, here in zip(rest, whole[3:], strict=True):
        np.testing.assert_array_equal(there["image"], here["image"])


def test_a_loader_without_a_device_gets_an_error_that_says_what_to_do(photographs: Path, start_server: Any) -> None:
    config = both({"type": "image_folder", "path": str(photographs)}, {"transforms": IMAGENET, "output": {"dtype": "float32"}})
    address = start_server(config).address
    with pytest.raises(InvalidArgument, match=r"'gpu' has `device: gpu` .*field `image` can only be computed by a loader with a device.*device=\"cuda:0\".*`device: cpu`"):
        headrace.Loader(address, stream="gpu")
    assert {stream.name: stream.on_device for stream in headrace.streams(address)} == {"cpu": (), "gpu": ("image",)}
    left, finished = (headrace.sample(address, stream, epoch=1, index=5).fields["image"] for stream in ("gpu", "cpu"))
    np.testing.assert_array_equal(left, finished)


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        ({"transforms": [*IMAGENET, {"random_erasing": {"p": 1, "value": "random"}}]}, "the device writes constant values"),
        ({"transforms": IMAGENET, "mix": {"mixup": {"alpha": 0.2}, "num_classes": 4}}, "can only mix finished rows"),
    ],
)
def test_what_the_device_cannot_do_is_refused(photographs: Path, start_server: Any, stream: dict[str, Any], why: str) -> None:
    config = both({"type": "image_folder", "path": str(photographs)}, {**stream, "output": {"dtype": "float32"}})
    del config["streams"]["cpu"]
    with pytest.raises(AssertionError, match=f"(?s){why}.*`device: cpu`"):
        start_server(config)
