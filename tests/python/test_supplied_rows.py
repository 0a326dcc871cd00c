"""Rows that a Maker makes without the data, of samples that another one reads, equal those of the other one."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import example_sources  # noqa: F401  (registers its runs)
import headrace
import numpy as np
import pytest
import yaml
from examples import RUNS, Example
from headrace.errors import InvalidArgument
from images import write_images
from PIL import Image
from running import headrace_binary
from test_maker import Compared, assert_equal_batches


def compare(file: Path, stream: str, elsewhere: Path | None = None, **options: Any) -> int:
    """Compares rows of two epochs. `elsewhere`: the configuration of the Maker without data. Returns the number of replaced rows."""
    here = headrace.Maker(file, stream, batch="dict", caches=False, **options)
    there = headrace.Maker(elsewhere or file, stream, threads=2, batch="dict", source=here.describe_source(), **options)
    assert there.info == here.info
    replaced = 0
    for epoch in (0, 3):
        for first in range(0, min(here.info.samples, 90), 9):
            count = min(9, here.info.samples - first)
            expected, made = here.rows(epoch, first, count), there.rows(epoch, first, count, here.samples(epoch, first, count))
            np.testing.assert_array_equal(made.replaced, expected.replaced)
            if expected.replaced.any():
                replaced += expected.replaced.sum()
                good = ~expected.replaced
                for name in expected:
                    np.testing.assert_array_equal(made[name][good], expected[name][good])
                np.testing.assert_array_equal(made.sample_index[good], expected.sample_index[good])
            else:
                assert_equal_batches(made, expected)
    return replaced


class SuppliedExample(Example):
    """Compares Makers, once the files of an example are there."""

    @contextmanager
    def served(self, **changed: object) -> Iterator[str]:
        changes = {**self.own(), **{name.replace("__", "."): value for name, value in changed.items()}}
        for name in yaml.safe_load(self.file.read_text())["streams"]:
            try:
                compare(self.file, name, set=changes)
            except InvalidArgument as error:
                assert "cannot be sent to another process" in error.message, error
                fields = [field.ragged for field in headrace.Maker(self.file, name, set=changes).info.fields]
                assert any(fields) or "mix" in error.message
        raise Compared
        yield ""


@pytest.mark.parametrize("name", sorted(set(RUNS) - {"feed"}))
def test_rows_of_every_example_are_the_same(name: str, tmp_path: Path) -> None:
    with pytest.raises(Compared):
        RUNS[name](SuppliedExample(name, tmp_path))


def random_chain(draws: random.Random) -> list[Any]:
    first: list[Any] = draws.choice(
        [[{"random_resized_crop": 40}], [{"resize": 60}, {"random_crop": {"size": 48}}], [{"center_crop": 32}], [{"resize": [30, 50]}]]
    )
    others: list[Any] = [
        "random_horizontal_flip",
        {"color_jitter": {"brightness": 0.4, "saturation": 0.3, "hue": 0.1}},
        {"random_grayscale": {"p": 0.5}},
        {"gaussian_blur": 5},
        {"random_erasing": {"p": 0.7}},
    ]
    return [*first, *(each for each in others if draws.random() < 0.5)]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder of 60 photos, of which two are bad, in three classes."""
    folder = write_images(tmp_path / "images", classes=3, per_class=20)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    files[3].write_bytes(b"no image")
    files[41].write_bytes(files[41].read_bytes()[:300])
    return folder


@pytest.mark.parametrize("seed", range(12))
def test_rows_of_random_chains_are_the_same(images: Path, tmp_path: Path, seed: int) -> None:
    draws = random.Random(seed)
    source: dict[str, Any] = {"type": "image_folder", "path": str(images)}
    if draws.random() < 0.5:
        subprocess.run([headrace_binary(), "pack", str(images), str(tmp_path / "images.lmdb")], check=True, timeout=60, capture_output=True)
        source = {"type": "lmdb", "path": str(tmp_path / "images.lmdb")}
    if draws.random() < 0.5:
        source["split"] = {"seed": 1, "fractions": {"train": 0.6, "val": 0.4}}
    stream = {
        "source": "photos", "seed": seed, "transforms": random_chain(draws), "max_bad": 0.5,
        "output": {"dtype": draws.choice(["uint8", "float32"]), "layout": draws.choice(["NCHW", "NHWC"])},
    }  # fmt: skip
    if "split" in source:
        stream["part"] = draws.choice(["train", "val"])
    files = []
    for name, there in (("here", source), ("there", {**source, "path": "/nowhere"})):
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(yaml.safe_dump({"sources": {"photos": there}, "streams": {"train": stream}}))
    replaced = compare(files[0], "train", files[1])
    assert replaced == 4 or "split" in source


def test_rows_of_pairs_of_images_are_the_same(tmp_path: Path) -> None:
    draws = np.random.default_rng(2)
    for i in range(20):
        low = draws.integers(0, 256, (50 + i, 60, 3), dtype=np.uint8)
        for folder, image in (("lr", low), ("hr", low.repeat(2, 0).repeat(2, 1))):
            (tmp_path / folder).mkdir(exist_ok=True)
            Image.fromarray(image).save(tmp_path / folder / f"{i:04d}.png")
    stream = {"source": "pairs", "transforms": [{"random_crop": {"size": 16}}, "random_horizontal_flip"]}
    files = []
    for name, folder in (("here", tmp_path), ("there", Path("/nowhere"))):
        pairs = {"type": "paired_folders", "fields": {"hr": str(folder / "hr"), "lr": str(folder / "lr")}}
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(yaml.safe_dump({"sources": {"pairs": pairs}, "streams": {"train": stream}}))
    assert compare(files[0], "train", files[1]) == 0


def test_samples_of_other_rows_are_refused(images: Path, tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text(f"sources: {{photos: {{type: image_folder, path: {images}}}}}\nstreams: {{train: {{source: photos, transforms: [center_crop: 24]}}}}")
    here = headrace.Maker(file, "train")
    there = headrace.Maker(file, "train", source=here.describe_source())
    samples = here.samples(0, 0, 4)
    assert samples.dtype == np.uint8 and samples.ndim == 1
    for wrong in (samples[:-1], samples[:10], np.append(samples, np.uint8(0))):
        with pytest.raises(InvalidArgument, match=r"pass what samples\(\) returned"):
            there.rows(0, 0, 4, wrong)
    with pytest.raises(InvalidArgument, match="this Maker reads no data"):
        there.batch(0, 0)
    with pytest.raises(InvalidArgument, match="leave the samples out"):
        here.rows(0, 0, 4, samples)
    with pytest.raises(InvalidArgument, match="5 rows from position 58"):
        here.samples(0, 58, 5)
