"""Samples of several images: pairs and masks with the same crops, and fields that are derived from others."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
import yaml
from headrace.errors import StreamFailed
from PIL import Image
from running import headrace_binary

SCALE = 4


def write_pairs(root: Path, count: int = 12, seed: int = 3, suffix: str = "") -> None:
    """hr: each pixel of lr as a square of SCALE x SCALE."""
    random = np.random.default_rng(seed)
    for name in ("hr", "lr/deep"):
        (root / name).mkdir(parents=True)
    (root / "hr" / "deep").mkdir()
    for index in range(count):
        height, width = (int(side) for side in random.integers(20, 40, 2))
        low = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        high = low.repeat(SCALE, axis=0).repeat(SCALE, axis=1)
        Image.fromarray(high).save(root / "hr" / "deep" / f"{index:04d}.png")
        Image.fromarray(low).save(root / "lr" / "deep" / f"{index:04d}{suffix}.png")


def pair_config(root: Path, **stream: Any) -> dict[str, Any]:
    return {
        "server": {"threads": 2, "metrics": "off"},
        "sources": {
            "pairs": {"type": "paired_folders", "fields": {"hr": str(root / "hr"), "lr": str(root / "lr")}}
        },
        "streams": {
            "train": {"source": "pairs", "batch_size": 4, "seed": 5, "output": {"layout": "NHWC"}, **stream}
        },
    }


AUGMENTED = [
    {"random_crop": {"size": [16, 16]}},
    "random_horizontal_flip",
    "random_vertical_flip",
    "random_rotate90",
]


def test_patches_of_a_pair_are_cut_and_turned_alike(start_server: Any, tmp_path: Path) -> None:
    write_pairs(tmp_path)
    address = start_server(pair_config(tmp_path, transforms=AUGMENTED)).address
    different = set()
    with headrace.Loader(address, stream="train", batch="dict") as loader:
        assert loader.classes == ()
        for _ in range(4):
            for batch in loader:
                assert set(batch) == {"hr", "lr"}
                assert batch["lr"].shape[1:] == (16, 16, 3) and batch["hr"].shape[1:] == (64, 64, 3)
                assert np.array_equal(batch["hr"], batch["lr"].repeat(SCALE, axis=1).repeat(SCALE, axis=2))
                different.update(row.tobytes() for row in batch["lr"])
    assert len(different) == 48, "each epoch another patch of each pair"


def test_turns_are_numpys_and_padding_follows_the_scale(start_server: Any, tmp_path: Path) -> None:
    write_pairs(tmp_path, count=8)
    crop = {"size": 44, "padding": 12, "pad_if_needed": True, "padding_mode": "reflect"}
    address = start_server(
        pair_config(tmp_path, shuffle=False, transforms=[{"random_crop": crop}, "random_rotate90"])
    ).address
    turns = set()
    for index in range(8):
        sample = headrace.sample(address, "train", 0, index)
        low = np.asarray(Image.open(tmp_path / "lr" / sample.name.replace("hr/", "")))
        (cut, turn) = sample.parameters["lr"]
        left, top, right, bottom = cut["padding"]
        padded = np.pad(low, ((top, bottom), (left, right), (0, 0)), mode="reflect")
        patch = padded[cut["top"] : cut["top"] + 44, cut["left"] : cut["left"] + 44]
        assert np.array_equal(sample.fields["lr"], np.rot90(patch, turn["turns"]))
        turns.add(turn["turns"])
        assert sample.parameters["hr"][0]["top"] == SCALE * cut["top"]
        assert sample.parameters["hr"][1] == turn
    assert len(turns) > 1


def test_a_mask_keeps_its_classes_and_goes_with_its_image(start_server: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    for name in ("image", "mask"):
        (tmp_path / name).mkdir()
    for index in range(10):
        classes = random.integers(0, 21, (50, 60), dtype=np.uint8)
        classes[random.integers(0, 50), :] = 255
        mask = Image.fromarray(classes, "P" if index % 2 else "L")
        if index % 2:
            mask.putpalette([int(value) for value in random.integers(0, 256, 768)])
        mask.save(tmp_path / "mask" / f"{index}.png")
        Image.fromarray(np.stack([classes] * 3, axis=2)).save(tmp_path / "image" / f"{index}.png")
    folders = {"image": str(tmp_path / "image"), "mask": {"path": str(tmp_path / "mask"), "mask": True}}
    normalize = {"normalize": {"mean": [0.0] * 3, "std": [1.0] * 3}}
    exact = [{"random_crop": {"size": 32}}, "random_horizontal_flip", normalize]
    resized = [{"random_resized_crop": {"size": 40}}, normalize]
    streams = {
        name: {"source": "voc", "batch_size": 5, "transforms": chain, "output": {"dtype": "float32"}}
        for name, chain in (("exact", exact), ("resized", resized))
    }
    address = start_server(
        {
            "server": {"metrics": "off"},
            "sources": {"voc": {"type": "paired_folders", "fields": folders}},
            "streams": streams,
        }
    ).address
    with headrace.Loader(address, stream="exact", batch="dict") as loader:
        for batch in loader:
            assert batch["mask"].dtype == np.uint8 and batch["mask"].shape == (5, 32, 32)
            assert np.array_equal(batch["mask"], np.rint(batch["image"][:, 0] * 255))
    with headrace.Loader(address, stream="resized", batch="dict") as loader:
        for batch in loader:
            assert batch["image"].shape == (5, 3, 40, 40)
            assert set(np.unique(batch["mask"])) <= {*range(21), 255}, "no interpolated class"


def test_what_is_derived_beside_a_pair_has_its_share_of_the_pairs_scale(start_server: Any, tmp_path: Path) -> None:
    write_pairs(tmp_path)
    derive = {"half": {"from": "hr", "factor": 2}, "small": {"from": "hr", "factor": 4}}
    address = start_server(pair_config(tmp_path, derive=derive, transforms=[{"random_crop": {"size": 10}}])).address
    with headrace.Loader(address, stream="train", batch="dict") as loader:
        batch = next(iter(loader))
    assert {name: batch[name].shape[2] for name in ("lr", "small", "half", "hr")} == {"lr": 10, "small": 10, "half": 20, "hr": 40}


def test_what_is_derived_does_not_hide_pairs_that_do_not_fit(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    for index, (high, low) in enumerate([(44, 10), (47, 11), (45, 11)]):
        Image.new("RGB", (high, high)).save(tmp_path / "hr" / "deep" / f"{index:04d}.png")
        Image.new("RGB", (low, low)).save(tmp_path / "lr" / "deep" / f"{index:04d}.png")
    for derive in ({"soft": {"from": "hr", "factor": 3, "enlarge": True}}, {"small": {"from": "hr", "factor": 4}}):
        config = pair_config(tmp_path, derive=derive, transforms=[{"random_crop": {"size": 3}}], shuffle=False)
        config["sources"]["pairs"]["fields"] = {
            name: {"path": str(tmp_path / name), "scale": scale} for name, scale in (("hr", SCALE), ("lr", 1))
        }
        told = check(tmp_path, config)
        assert "stream `train`: 3 of 12 samples are bad:\n" in told.stderr, told.stdout + told.stderr


def test_pairs_stay_aligned_beside_what_is_derived_by_another_factor(start_server: Any, tmp_path: Path) -> None:
    write_pairs(tmp_path)
    derive = {"soft": {"from": "hr", "factor": 3, "enlarge": True}}
    address = start_server(pair_config(tmp_path, derive=derive, transforms=[{"random_crop": {"size": 10}}])).address
    with headrace.Loader(address, stream="train", batch="dict") as loader:
        for batch in loader:
            assert batch["soft"].shape == batch["hr"].shape
            assert not batch.replaced.any()
            assert (batch["lr"].repeat(SCALE, axis=1).repeat(SCALE, axis=2) == batch["hr"]).all()


@pytest.mark.parametrize("interpolation", ["bicubic", "nearest"])
def test_derived_fields_are_pils_resize_of_the_whole_image(
    start_server: Any, tmp_path: Path, interpolation: str
) -> None:
    (tmp_path / "hr").mkdir()
    random = np.random.default_rng(2)
    for index in range(6):
        size = (int(random.integers(60, 80)), int(random.integers(60, 80)))
        coarse = Image.fromarray(random.integers(0, 256, (9, 9, 3), dtype=np.uint8))
        coarse.resize(size, Image.Resampling.BICUBIC).save(tmp_path / "hr" / f"{index}.png")
    config = pair_config(
        tmp_path,
        shuffle=False,
        derive={
            "lr": {"from": "hr", "factor": 3, "interpolation": interpolation},
            "blurred": {"from": "hr", "factor": 2, "interpolation": interpolation, "enlarge": True},
        },
        transforms=[{"random_crop": {"size": 16}}],
    )
    del config["sources"]["pairs"]["fields"]["lr"]
    address = start_server(config).address
    how = Image.Resampling[interpolation.upper()]
    for index in range(6):
        sample = headrace.sample(address, "train", 1, index)
        hr = Image.open(tmp_path / "hr" / sample.name)
        width, height = (side - side % 6 for side in hr.size)
        hr = hr.crop((0, 0, width, height))
        half = hr.resize((width // 2, height // 2), how)
        whole = {
            "hr": hr,
            "lr": hr.resize((width // 3, height // 3), how),
            "blurred": half.resize((width, height), how),
        }
        for field, scale in (("hr", 3), ("lr", 1), ("blurred", 3)):
            (cut,) = sample.parameters[field]
            assert (cut["top"], cut["left"]) == tuple(
                scale * sample.parameters["lr"][0][side] for side in ("top", "left")
            )
            side = 16 * scale
            expected = np.asarray(whole[field])[
                cut["top"] : cut["top"] + side, cut["left"] : cut["left"] + side
            ]
            assert np.array_equal(sample.fields[field], expected), field


def test_luma_is_bt601s(start_server: Any, tmp_path: Path) -> None:
    write_pairs(tmp_path, count=4)
    streams = {
        "bytes": {"fields": ["hr"], "transforms": [{"center_crop": {"size": 20}}, "to_y"]},
        "fractions": {
            "fields": ["hr"],
            "transforms": [
                {"center_crop": {"size": 20}},
                "to_y",
                {"normalize": {"mean": [0.5], "std": [0.5]}},
            ],
            "output": {"dtype": "float32"},
        },
        "colors": {"fields": ["hr"], "transforms": [{"center_crop": {"size": 20}}]},
    }
    config = pair_config(tmp_path)
    config["streams"] = {
        name: {"source": "pairs", "shuffle": False, "batch_size": 4, **stream}
        for name, stream in streams.items()
    }
    address = start_server(config).address

    def only(stream: str) -> Any:
        with headrace.Loader(address, stream=stream, batch="dict") as loader:
            (batch,) = loader
            assert set(batch) == {"hr"}
            return batch["hr"]

    red, green, blue = (only("colors")[:, channel].astype(float) for channel in range(3))
    luma = np.floor(16 + (65.481 * red + 128.553 * green + 24.966 * blue) / 255 + 0.5)
    assert only("bytes").shape == (4, 1, 80, 80), "in pixels of scale 1, which are of lr"
    assert np.array_equal(only("bytes")[:, 0], luma)
    assert np.allclose(only("fractions")[:, 0], (luma / 255 - 0.5) / 0.5, atol=1e-6)


def test_partners_may_be_in_one_folder(start_server: Any, tmp_path: Path) -> None:
    write_pairs(tmp_path)
    (tmp_path / "all").mkdir()
    for name in ("hr", "lr"):
        for path in (tmp_path / name / "deep").iterdir():
            path.rename(tmp_path / "all" / f"img_{path.stem}_{name.upper()}.png")
    config = pair_config(tmp_path, transforms=AUGMENTED)
    config["sources"]["pairs"]["fields"] = {
        name: {"path": str(tmp_path / "all"), "names": f"img_{{}}_{name.upper()}"} for name in ("hr", "lr")
    }
    with headrace.Loader(start_server(config).address, stream="train", batch="dict") as loader:
        for batch in loader:
            assert np.array_equal(batch["hr"], batch["lr"].repeat(SCALE, axis=1).repeat(SCALE, axis=2))
    config["sources"]["pairs"]["fields"]["lr"]["names"] = "{}_low"
    told = check(tmp_path, config)
    assert 'no image is called as `names: "{}_low"` says; one is img_00' in told.stderr


def check(tmp_path: Path, config: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(config))
    return subprocess.run([headrace_binary(), "check", str(path)], capture_output=True, text=True, timeout=60)


def test_a_pair_of_the_wrong_size_is_a_bad_sample(start_server: Any, tmp_path: Path) -> None:
    write_pairs(tmp_path)
    Image.new("RGB", (81, 80)).save(tmp_path / "hr" / "deep" / "0003.png")
    Image.new("RGB", (84, 80)).save(tmp_path / "hr" / "deep" / "0004.png")
    Image.new("RGB", (20, 20)).save(tmp_path / "lr" / "deep" / "0004.png")
    with headrace.Loader(
        start_server(pair_config(tmp_path, transforms=AUGMENTED, max_bad=0.5)).address, stream="train"
    ) as loader:
        assert sum(int(batch.replaced.sum()) for batch in loader) == 2
    strict = start_server(pair_config(tmp_path, transforms=AUGMENTED, on_error="fail", shuffle=False))
    with pytest.raises(StreamFailed), headrace.Loader(strict.address, stream="train") as loader:
        list(loader)
    log = strict.output()
    assert "deep/0003.png: mismatch (field `hr`: 81 x 80 pixels are not a multiple of the scale, 4)" in log or (
        "deep/0004.png: mismatch (`hr` has 84 x 80 pixels at scale 4, but `lr` has 20 x 20 pixels" in log
    )


def test_an_image_without_partner_is_reported_with_the_names_that_were_expected(tmp_path: Path) -> None:
    write_pairs(tmp_path, suffix="x4")
    config = pair_config(tmp_path, transforms=AUGMENTED)
    told = check(tmp_path, config)
    assert told.returncode == 3
    assert (
        "have no partner in" in told.stderr
        and "deep/0000.png" in told.stderr
        and "(12 in all)" in told.stderr
    )
    assert 'give field `lr` the option names: "{}x4"\n' in told.stderr
    config["sources"]["pairs"]["fields"]["lr"] = {"path": str(tmp_path / "lr"), "names": "{}x4"}
    assert check(tmp_path, config).returncode == 0
    (tmp_path / "lr" / "deep" / "0007x4.png").unlink()
    told = check(tmp_path, config)
    assert told.returncode == 3 and "deep/0007.png" in told.stderr


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (
            {"transforms": [{"random_crop": {"size": 16, "fields": ["hr", "low"]}}]},
            "transforms: there is no field `low`; fields: hr, lr",
        ),
        ({"transforms": AUGMENTED, "fields": ["image"]}, "fields: there is no field `image`; fields: hr, lr"),
        (
            {"transforms": AUGMENTED, "derive": {"lr": {"from": "hr", "factor": 2}}},
            "derive: the source has a field `lr` already",
        ),
        (
            {"transforms": AUGMENTED, "derive": {"x": {"from": "y", "factor": 2}}},
            "derive: `x` is derived from `y`, which is not an image of the source",
        ),
        (
            {"transforms": [{"random_crop": {"size": 16, "fields": ["hr"]}}]},
            "field `lr`: images have different sizes (deep/0000.png: ",
        ),
        (
            {"transforms": [{"random_crop": {"size": [16, 20]}}, "random_rotate90"]},
            "random_rotate90: turns [16, 20] into [20, 16]",
        ),
        (
            {"transforms": [{"random_crop": {"size": 90}}]},
            "pad_if_needed, or put a resize before it; these are its sizes divided by its scale, 4)",
        ),
    ],
)
def test_what_is_wrong_with_fields_is_named(tmp_path: Path, stream: dict[str, Any], words: str) -> None:
    write_pairs(tmp_path)
    told = check(tmp_path, pair_config(tmp_path, **stream))
    assert told.returncode in (2, 3)
    assert words in told.stderr
