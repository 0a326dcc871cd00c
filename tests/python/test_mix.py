"""mixup and cutmix through a real server, against torchvision's own over the unmixed stream."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
import torch
from running import Server, headrace_binary
from torchvision.transforms import v2

BOTH = {"mixup": {"alpha": 0.4}, "cutmix": {"alpha": 1.0}, "p": 0.8}


def config(folder: Path, mix: Any, **stream: Any) -> dict[str, Any]:
    plain = {
        "source": "images",
        "batch_size": 8,
        "seed": 5,
        "transforms": [{"random_resized_crop": {"size": [24, 20]}}, {"normalize": {"mean": [0.5] * 3, "std": [0.25] * 3}}],
        "output": {"dtype": "float32"},
        **stream,
    }
    return {
        "server": {"threads": 2, "metrics": "off"},
        "sources": {"images": {"type": "image_folder", "path": str(folder)}},
        "streams": {"plain": plain, "mixed": {**plain, "mix": mix}},
    }


def epoch(server: Server, stream: str) -> tuple[np.ndarray, np.ndarray]:
    with headrace.Loader(server.address, stream=stream) as loader:
        batches = [(batch[0].copy(), batch[1].copy()) for batch in loader]
    return np.concatenate([images for images, _ in batches]), np.concatenate([labels for _, labels in batches])


def drawn(server: Server, position: int) -> dict[str, Any]:
    command = [headrace_binary(), "sample", "--address", server.address, "--stream", "mixed", "--index", str(position)]
    shown = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    (parameters,) = [line.partition(": ")[2] for line in shown.splitlines() if line.startswith("parameters: ")]
    last: dict[str, Any] = json.loads(parameters)[-1]
    return last


def expected(how: dict[str, Any], images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first of a pair, as torchvision mixes a batch of the two; labels one-hot."""
    if how["op"] == "mix":
        return images[0], labels[0]
    mixer = v2.MixUp(num_classes=3) if how["op"] == "mixup" else v2.CutMix(num_classes=3)
    box = [how.get(key, 0) for key in ("left", "top", "width", "height")]
    parameters = {
        "labels": labels,
        "batch_size": 2,
        "lam": how["lambda"],
        "lam_adjusted": how["lambda"],
        "box": (box[0], box[1], box[0] + box[2], box[1] + box[3]),
    }
    return mixer.transform(images, parameters)[0], mixer.transform(labels, parameters)[0]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_pairs_are_mixed_as_torchvision_mixes_a_batch_of_two(start_server: Any, image_folder: Path, layout: str) -> None:
    server = start_server(config(image_folder, BOTH, output={"dtype": "float32", "layout": layout}))
    images, labels = epoch(server, "plain")
    mixed, shares = epoch(server, "mixed")
    assert shares.shape == (60, 3) and shares.dtype == np.float32
    if layout == "NHWC":
        images, mixed = images.transpose(0, 3, 1, 2), mixed.transpose(0, 3, 1, 2)
    kinds = set()
    for position in range(60):
        how = drawn(server, position)
        kinds.add(how["op"])
        pair = [position, position ^ 1]
        assert how.get("partner", pair[1]) == pair[1]
        one_hot = torch.nn.functional.one_hot(torch.tensor(labels[pair]), 3).float()
        image, share = expected(how, torch.tensor(images[pair]), one_hot)
        np.testing.assert_array_equal(mixed[position], image.numpy(), err_msg=f"position {position}: {how}")
        np.testing.assert_array_equal(shares[position], share.numpy(), err_msg=f"position {position}: {how}")
    assert kinds == {"mix", "mixup", "cutmix"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_are_rounded_before_and_after_mixup(start_server: Any, image_folder: Path, dtype: str) -> None:
    mixup = {"mixup": {"alpha": 0.4}}
    server = start_server(config(image_folder, mixup, output={"dtype": dtype}))
    exact = start_server(config(image_folder, mixup))

    def epoch_of(stream: str) -> torch.Tensor:
        with headrace.Loader(server.address, stream=stream, output="torch") as loader:
            return torch.cat([images.clone() for images, _ in loader])

    plain, mixed = epoch_of("plain"), epoch_of("mixed")
    whole = torch.tensor(epoch(exact, "mixed")[0])
    assert plain.dtype == mixed.dtype == getattr(torch, dtype)
    apart = 0
    for position in range(60):
        how = drawn(server, position)
        pair = [position, position ^ 1]
        image, _ = expected(how, plain[pair].float(), torch.eye(3)[[0, 1]])
        assert torch.equal(mixed[position], image.to(mixed.dtype)), f"position {position}: {how}"
        once = whole[position].to(mixed.dtype)
        apart += int((once != mixed[position]).sum())
        larger = plain[pair].abs().amax(0).float().clamp(min=torch.finfo(mixed.dtype).tiny)
        unit = torch.finfo(mixed.dtype).eps * 2 ** torch.floor(torch.log2(larger))
        assert ((once.float() - mixed[position].float()).abs() <= unit).all(), f"position {position}: {how}"
    assert apart > 0, "some values are rounded twice"


def test_a_position_holds_the_same_in_batches_of_any_size_and_to_any_rank(start_server: Any, image_folder: Path) -> None:
    # Rows of 92 KB give slices of two rows; an odd batch begins with the second half of a pair.
    crop = {"transforms": [{"random_resized_crop": {"size": [96, 80]}}]}
    whole = epoch(start_server(config(image_folder, BOTH, batch_size=60, **crop)), "mixed")
    odd = epoch(start_server(config(image_folder, BOTH, batch_size=7, **crop)), "mixed")
    np.testing.assert_array_equal(odd[0], whole[0])
    np.testing.assert_array_equal(odd[1], whole[1])
    server = start_server(config(image_folder, BOTH, batch_size=5, delivery="shard", **crop))
    loaders = [headrace.Loader(server.address, stream="mixed", rank=rank, world_size=2) for rank in range(2)]
    for step, batches in enumerate(zip(*loaders, strict=True)):
        rows = np.concatenate([batch[0] for batch in batches])
        np.testing.assert_array_equal(rows, whole[0][10 * step : 10 * step + 10])
    assert step == 5
    for loader in loaders:
        loader.close()


def test_the_last_of_an_odd_epoch_takes_from_the_first(start_server: Any, image_folder: Path) -> None:
    cut = {"cutmix": {"alpha": 1.0}}
    part = {"split": {"fractions": {"odd": 0.75, "rest": 0.25}}}
    made = config(image_folder, cut, batch_size=64, part="odd")
    made["sources"]["images"].update(part)
    server = start_server(made)
    images, labels = epoch(server, "plain")
    mixed, shares = epoch(server, "mixed")
    if len(images) % 2 == 0:
        pytest.fail(f"{len(images)} images are no odd number: this tests nothing")
    last = len(images) - 1
    how = drawn(server, last)
    assert how["partner"] == 0
    rows, columns = slice(how["top"], how["top"] + how["height"]), slice(how["left"], how["left"] + how["width"])
    want = images[last].copy()
    want[:, rows, columns] = images[0][:, rows, columns]
    np.testing.assert_array_equal(mixed[last], want)
    assert shares[last].sum() == pytest.approx(1)
    assert shares[last][labels[last]] >= np.float32(how["lambda"]) - 1e-6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"output": {"dtype": "uint8"}, "transforms": [{"random_resized_crop": {"size": 24}}]}, "mix.mixup: gives fractions"),
        ({"mix": {"p": 0.5}}, "needs mixup, cutmix"),
        ({"mix": {"mixup": {"alpha": 0}}}, "alpha"),
        ({"mix": {"mixup": {"alpha": 1}, "num_classes": 2}}, "set mix.num_classes"),
    ],
)
def test_errors_name_what_cannot_be_mixed(tmp_path: Path, image_folder: Path, change: Any, message: str) -> None:
    made = config(image_folder, BOTH)
    made["streams"] = {"mixed": {**made["streams"]["mixed"], **change}}
    file = tmp_path / "bad.yaml"
    file.write_text(json.dumps(made))
    refused = subprocess.run([headrace_binary(), "check", str(file)], capture_output=True, text=True)
    assert refused.returncode != 0
    assert message in refused.stdout + refused.stderr
