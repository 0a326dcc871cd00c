"""Images of one size need no crop. Those of different sizes do, and the error names two of them."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
import yaml
from conftest import ServerFactory
from PIL import Image
from running import headrace_binary

SIZE = (50, 37)  # width, height
DIFFERENT = "images have different sizes (cat/000.jpg: 50x37, dog/005.jpg: 33x60, width x height): end `transforms` with random_resized_crop"


def write(folder: Path, ending: str, count: int = 10, other: dict[int, tuple[int, int]] | None = None) -> Path:
    """`other`: the sizes of some images, by number. The second half of the images is of another class."""
    random = np.random.default_rng(4)
    for index in range(count):
        width, height = (other or {}).get(index, SIZE)
        path = folder / ("cat" if index < count // 2 else "dog") / f"{index:03d}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)
    return folder


def config_of(source: dict[str, Any], **stream: Any) -> dict[str, Any]:
    own = {"source": "images", "batch_size": 5, "shuffle": False, "output": {"layout": "NHWC"}, **stream}
    return {"server": {"threads": 1, "metrics": "off"}, "sources": {"images": source}, "streams": {"s": own}}


def check(path: Path, config: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    path.write_text(yaml.safe_dump(config))
    return subprocess.run([headrace_binary(), "check", str(path)], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_a_folder_of_one_size_is_served_without_transforms(start_server: ServerFactory, tmp_path: Path, ending: str) -> None:
    folder = write(tmp_path / "images", ending)
    config = config_of({"type": "image_folder", "path": str(folder)})
    server = start_server(config)
    wanted = np.stack([np.asarray(Image.open(path).convert("RGB")) for path in sorted(folder.rglob("*.*"))])
    with headrace.Loader(server.address, stream="s", batch="dict") as loader:
        assert np.array_equal(np.concatenate([np.array(batch["image"]) for batch in loader]), wanted)
    checked = check(tmp_path / "c.yaml", config)
    assert checked.returncode == 0, checked.stderr
    assert "image uint8, batch x 37 x 50 x 3" in checked.stdout
    maker = headrace.Maker(tmp_path / "c.yaml", "s", batch="dict")
    assert np.array_equal(np.array(maker.batch(0, 1)["image"]), wanted[5:])


def test_shards_of_one_size_need_no_transforms(tmp_path: Path) -> None:
    folder = write(tmp_path / "images", "png")
    with tarfile.open(tmp_path / "a.tar", "w") as shard:
        for path in sorted(folder.rglob("*.png")):
            shard.add(path, path.name)
    checked = check(tmp_path / "c.yaml", config_of({"type": "webdataset", "path": str(tmp_path / "a.tar"), "label": "none"}))
    assert checked.returncode == 0, checked.stderr
    assert "image uint8, batch x 37 x 50 x 3" in checked.stdout


def test_images_of_different_sizes_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "images", "jpg", other={index: (33, 60) for index in range(5, 10)})
    source = {"type": "image_folder", "path": str(folder)}
    for transforms in ([], ["random_horizontal_flip"]):
        checked = check(tmp_path / "c.yaml", config_of(source, transforms=transforms))
        assert checked.returncode == 2
        assert DIFFERENT in checked.stderr
    with pytest.raises(headrace.errors.ConfigInvalid, match="images have different sizes"):
        headrace.Maker(tmp_path / "c.yaml", "s")
    assert check(tmp_path / "c.yaml", config_of(source, transforms=[{"center_crop": {"size": 8}}])).returncode == 0
    proposed = subprocess.run([headrace_binary(), "check", str(folder)], capture_output=True, text=True, timeout=60)
    assert proposed.returncode == 0 and "random_resized_crop" in proposed.stdout


def test_only_images_that_are_not_square_cannot_be_turned(tmp_path: Path) -> None:
    source = {"type": "image_folder", "path": str(write(tmp_path / "images", "png"))}
    checked = check(tmp_path / "c.yaml", config_of(source, transforms=["random_rotate90"]))
    assert checked.returncode == 2
    assert "random_rotate90: turns [37, 50] into [50, 37]" in checked.stderr


def test_a_late_image_of_another_size_is_a_bad_sample(start_server: ServerFactory, tmp_path: Path) -> None:
    folder = write(tmp_path / "images", "png", count=40, other={1: (90, 70)})
    config = config_of({"type": "image_folder", "path": str(folder)}, max_bad=0.5)
    told = "cat/001.png: unsupported (90 x 70 pixels, expected 50 x 37 (width x height) like the others: add a resize or crop to `transforms`)"
    checked = check(tmp_path / "c.yaml", config)
    assert checked.returncode == 0, checked.stderr
    assert told in checked.stdout
    server = start_server(config)
    with headrace.Loader(server.address, stream="s", batch="dict", meta=True) as loader:
        assert sum(int(np.sum(batch["replaced"])) for batch in loader) == 1
    assert told in server.output()
