"""WebDataset shards, served: tars as Python writes them, against the same images as a folder."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import headrace
import pytest
from test_pixel_sources import config


def write_shards(image_folder: Path, folder: Path, name: str, format: int, how: str, count: int = 2) -> str:
    """`image_folder`'s images in its order, divided among `count` shards; gives the pattern."""
    folder.mkdir(exist_ok=True, parents=True)
    images = sorted(image_folder.glob("*/*.jpg"))
    classes = sorted({image.parent.name for image in images})
    per_shard = -(-len(images) // count)
    for shard in range(count):
        with tarfile.open(folder / f"{name}-{shard:04d}.tar", "w", format=format) as tar:

            def add(member: str, data: bytes, tar: tarfile.TarFile = tar) -> None:
                info = tarfile.TarInfo(member)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))

            for image in images[shard * per_shard : (shard + 1) * per_shard]:
                # Longer than a header has room for, and not ASCII.
                key = f"{'long' * 40}/{image.parent.name}-ü-{image.stem}"
                label = classes.index(image.parent.name)
                if how == "cls":
                    add(f"{key}.cls", str(label).encode())
                else:
                    add(f"{key}.json", json.dumps({"caption": "a picture", "label": label}).encode())
                add(f"{key}.jpg", image.read_bytes())
    return str(folder / f"{name}-{{0000..{count - 1:04d}}}.tar")


def stream_of(address: str) -> list[tuple[bytes, int, int]]:
    with headrace.Loader(address, stream="train") as loader:
        return [
            (image.tobytes(), int(label), int(index))
            for batch in loader
            for image, label, index in zip(*batch, batch.sample_index, strict=True)
        ]


@pytest.mark.parametrize(("format", "how"), [(tarfile.GNU_FORMAT, "cls"), (tarfile.PAX_FORMAT, "json")])
def test_shards_give_the_stream_that_the_image_folder_gives(
    start_server: Any, image_folder: Path, tmp_path: Path, format: int, how: str
) -> None:
    pattern = write_shards(image_folder, tmp_path / "shards", "train", format, how)
    source = {"type": "webdataset", "path": pattern, "label": "cls" if how == "cls" else "json.label"}
    stream = {"seed": 7, "transforms": [{"random_resized_crop": {"size": 32}}, "random_horizontal_flip"]}
    folder = {"type": "image_folder", "path": str(image_folder)}
    expected = stream_of(start_server(config(folder, **stream)).address)
    address = start_server(config(source, **stream)).address
    assert stream_of(address) == expected
    name = headrace.sample(address, "train", 0, 0).name
    assert name.startswith("train-000") and "-ü-" in name
    # With the cached index, which is beside the shards.
    assert len(list((tmp_path / "shards").glob(".headrace-*.index"))) == 1
    assert stream_of(start_server(config(source, **stream)).address) == expected


def test_a_folder_that_is_not_writable_has_its_index_in_the_cache_of_the_user(
    start_server: Any, image_folder: Path, tmp_path: Path
) -> None:
    pattern = write_shards(image_folder, tmp_path / "shards", "train", tarfile.GNU_FORMAT, "cls")
    source = {"type": "webdataset", "path": str(Path(pattern).parent)}
    stream = {"transforms": [{"center_crop": {"size": 8}}]}
    # A folder where the index would be cannot be replaced by a file, not even by root.
    start_server(config(source, **stream)).stop()
    (index,) = (tmp_path / "shards").glob(".headrace-*.index")
    index.unlink()
    (index / "in the way").mkdir(parents=True)
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    start_server(config(source, **stream), env=environment)
    assert len(list((tmp_path / "cache" / "headrace").glob("*.index"))) == 1
    off = {**source, "index_cache": "off"}
    start_server(config(off, **stream), env={"XDG_CACHE_HOME": str(tmp_path / "none")})
    assert not (tmp_path / "none").exists()


def test_sets_without_labels_have_batches_of_images_alone(start_server: Any, image_folder: Path, tmp_path: Path) -> None:
    pattern = write_shards(image_folder, tmp_path / "shards", "train", tarfile.GNU_FORMAT, "cls", count=1)
    source = {"type": "webdataset", "path": [pattern.replace("{0000..0000}", "0000")], "label": "none"}
    server = start_server(config(source, transforms=[{"center_crop": {"size": 8}}]))
    with headrace.Loader(server.address, stream="train") as loader:
        batches = list(loader)
        assert {len(batch) for batch in batches} == {1}
        assert sum(len(batch[0]) for batch in batches) == 60
    assert "members that are not served, by extension: 60 cls" in server.log.read_text()


def test_a_truncated_shard_is_refused_by_name_and_offset(start_server: Any, image_folder: Path, tmp_path: Path) -> None:
    pattern = write_shards(image_folder, tmp_path / "shards", "train", tarfile.GNU_FORMAT, "cls")
    shard = tmp_path / "shards" / "train-0001.tar"
    shard.write_bytes(shard.read_bytes()[: 3 * 512 + 700])
    with pytest.raises(AssertionError, match=r"train-0001.tar: is (truncated|damaged or truncated)"):
        start_server(config({"type": "webdataset", "path": pattern}, transforms=[{"center_crop": {"size": 8}}]))
