"""Batches from the ring equal PIL's result for the same files: samples of a real server's batches are recomputed from the file, the sample
index and the drawn parameters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from conftest import ServerFactory
from PIL import Image
from running import ROOT

sys.path.insert(0, str(ROOT / "tests/pixels"))
import proof  # noqa: E402

MEAN, STD = proof.MEAN, proof.STD


def odd_folder(folder: Path) -> Path:
    """Two classes: real kinds that trainers meet in the wild."""
    random = np.random.default_rng(5)

    def noise(height: int, width: int, channels: int = 3) -> np.ndarray[Any, Any]:
        coarse = random.integers(0, 256, (max(1, height // 8), max(1, width // 8), channels), dtype=np.uint8)
        return np.asarray(Image.fromarray(coarse.squeeze()).resize((width, height), Image.Resampling.BICUBIC))

    for name in ("plain", "odd"):
        (folder / name).mkdir(parents=True)
    for i in range(12):
        Image.fromarray(noise(90 + 7 * i, 160 - 5 * i)).save(folder / "plain" / f"{i}.jpg", quality=80 + i)
    picture = Image.fromarray(noise(120, 90))
    picture.save(folder / "odd/progressive.jpg", progressive=True)
    picture.convert("L").save(folder / "odd/gray.jpg")
    picture.convert("CMYK").save(folder / "odd/cmyk.jpg")
    picture.convert("P").save(folder / "odd/palette.png")
    picture.convert("RGBA").save(folder / "odd/alpha.png")
    Image.fromarray(noise(1, 1)).save(folder / "odd/one_pixel.png")
    Image.fromarray(noise(3, 3000)).save(folder / "odd/very_wide.jpg")
    Image.fromarray(noise(50, 60, 1).astype(np.uint16) * 257).save(folder / "odd/gray16.png")
    return folder


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16"])
def test_every_row_of_two_epochs_equals_what_pil_makes_of_its_file(
    start_server: ServerFactory, tmp_path: Path, dtype: str
) -> None:
    folder = odd_folder(tmp_path / "images")
    files = sorted(folder.rglob("*.*"))
    transforms: list[Any] = [{"random_resized_crop": {"size": [40, 56]}}, "random_horizontal_flip"]
    chain: list[dict[str, Any]] = [{"op": "random_resized_crop", "size": [40, 56]}, {"op": "random_horizontal_flip"}]
    if dtype != "uint8":
        transforms.append({"normalize": {"mean": MEAN, "std": STD}})
        chain.append({"op": "normalize", "mean": MEAN, "std": STD})
    server = start_server(
        {
            "sources": {"images": {"type": "image_folder", "path": str(folder)}},
            "streams": {"s": {"source": "images", "batch_size": 6, "transforms": transforms, "output": {"dtype": dtype}}},
        }
    )
    seen: set[str] = set()
    rows = different = 0
    with headrace.Loader(server.address, stream="s", batch="dict", meta=True) as loader:
        for epoch in range(2):
            for k, batch in enumerate(loader):
                for i, index in enumerate(batch["sample_index"]):
                    shown = headrace.sample(server.address, "s", epoch, 6 * k + i)
                    assert shown.sample_index == index
                    path = folder / shown.name
                    assert batch["label"][i] == ["odd", "plain"].index(path.parent.name)
                    want = proof.expected_row(
                        proof.open_rgb(path), {"transforms": chain, "dtype": dtype}, shown.parameters
                    )
                    got = np.asarray(batch["image"][i])
                    different += int((got.view(want.dtype) != want).any(axis=0).sum())
                    seen.add(shown.name)
                    rows += 1
    assert len(seen) == len(files) == 20
    assert rows == 40
    assert different == 0, f"{different} pixels of {rows} rows differ"
