"""`headrace pack` of every type of source: the packed set gives the same batches as the source."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from PIL import Image
from test_fields import AUGMENTED, write_pairs
from test_manifest import FIELDS, write_manifest, write_photos
from test_npy import arrays, save  # noqa: F401  (a fixture)
from test_pack import good, inspect, lmdb, run
from test_pixel_sources import config
from test_webdataset import write_shards


def epoch(start_server: Any, source: dict[str, Any], stream: dict[str, Any]) -> tuple[str, list[int], tuple[str, ...]]:
    """Its digest, its samples, its classes."""
    digest, indices = headrace.Digest(), []
    with headrace.Loader(start_server(config(source, seed=5, **stream)).address, stream="train", batch="dict") as loader:
        for batch in loader:
            digest.add(batch)
            indices += batch.sample_index.tolist()
        return digest.hexdigest(), indices, loader.classes


def check(start_server: Any, tmp_path: Path, source: dict[str, Any], stream: dict[str, Any], *options: str) -> Path:
    """Packs the source in each form that keeps its pixels. Returns the last packed set."""
    written = tmp_path / "source.yaml"
    written.write_text(json.dumps(config(source, **stream)))
    expected = epoch(start_server, source, stream)
    for number, how in enumerate(options or ("", "--compress lz4", "--compress zstd --store decoded")):
        out = tmp_path / f"packed{number}.lmdb"
        good("pack", written, out, *how.split())
        assert "none damaged" in good("verify", out, "--decode")
        assert epoch(start_server, lmdb(out, verify=True), stream) == expected, how
    return out


def test_a_manifest_with_every_kind_of_field(start_server: Any, tmp_path: Path) -> None:
    write_photos(tmp_path)
    source = {"type": "manifest", "path": str(write_manifest(tmp_path / "set.jsonl")), "fields": FIELDS}
    stream = {"batch_size": 4, "transforms": [{"center_crop": {"size": 8}}]}
    out = check(start_server, tmp_path, source, stream)
    contents = {field["name"]: field["content"] for field in inspect(out)["fields"]}
    assert contents["image"] == "pixels" and contents["boxes"] == contents["caption"] == "ragged values"


def test_webdataset_shards(start_server: Any, image_folder: Path, tmp_path: Path) -> None:
    pattern = write_shards(image_folder, tmp_path / "shards", "train", tarfile.GNU_FORMAT, "cls")
    stream = {"transforms": [{"random_resized_crop": {"size": 32}}]}
    check(start_server, tmp_path, {"type": "webdataset", "path": pattern}, stream)


def test_numpy_arrays(start_server: Any, tmp_path: Path, arrays: dict[str, Any]) -> None:  # noqa: F811
    check(start_server, tmp_path, {"type": "npy", "fields": save(tmp_path, arrays)}, {})
    features = {"type": "npy", "fields": {"features": str(tmp_path / "features.npy")}}
    (tmp_path / "features").mkdir()
    check(start_server, tmp_path / "features", features, {})


def test_pairs_of_folders(start_server: Any, tmp_path: Path) -> None:
    write_pairs(tmp_path)
    source = {"type": "paired_folders", "fields": {"hr": str(tmp_path / "hr"), "lr": str(tmp_path / "lr")}}
    check(start_server, tmp_path, source, {"batch_size": 4, "transforms": AUGMENTED})
    refused = run("pack", tmp_path / "source.yaml", tmp_path / "small.lmdb", "--resize", "16")
    assert refused.returncode == 2
    assert "matches another field pixel by pixel, so it cannot be resized alone" in refused.stderr
    del source["fields"]["lr"]
    derived = {"derive": {"lr": {"from": "hr", "factor": 4}}, "transforms": [{"random_crop": {"size": 12}}], "batch_size": 4}
    (tmp_path / "derived").mkdir()
    check(start_server, tmp_path / "derived", source, derived)


@pytest.mark.parametrize("mode", ["P", "L"])
def test_images_and_masks(start_server: Any, tmp_path: Path, mode: str) -> None:
    random = np.random.default_rng(1)
    for name in ("image", "mask"):
        (tmp_path / name).mkdir()
    for index in range(10):
        classes = random.integers(0, 21, (50, 60), dtype=np.uint8)
        mask = Image.fromarray(classes, mode)
        if mode == "P":
            mask.putpalette([int(value) for value in random.integers(0, 256, 768)])
        mask.save(tmp_path / "mask" / f"{index}.png")
        Image.fromarray(np.stack([classes] * 3, axis=2)).save(tmp_path / "image" / f"{index}.png")
    folders = {"image": str(tmp_path / "image"), "mask": {"path": str(tmp_path / "mask"), "mask": True}}
    stream = {"batch_size": 5, "transforms": [{"random_resized_crop": {"size": 32}}, "random_horizontal_flip"]}
    out = check(start_server, tmp_path, {"type": "paired_folders", "fields": folders}, stream)
    assert [field["content"] for field in inspect(out)["fields"]] == ["pixels", "encoded image"]


def test_packing_of_ragged_fields_resumes(start_server: Any, tmp_path: Path) -> None:
    """A part alone, whose longest rows are not the whole set's."""
    write_photos(tmp_path)
    fields = {name: FIELDS[name] for name in ("image", "boxes", "caption")}
    source = {
        "type": "manifest",
        "path": str(write_manifest(tmp_path / "set.jsonl")),
        "fields": fields,
        "split": {"fractions": {"train": 0.5, "val": 0.5}},
    }
    stream = {"batch_size": 2, "part": "val", "transforms": [{"center_crop": {"size": 8}}]}
    written = tmp_path / "both.yaml"
    written.write_text(json.dumps(config(source, **stream)))
    good("pack", written, tmp_path / "val.lmdb", "--part", "val")
    del stream["part"]
    packed = epoch(start_server, lmdb(tmp_path / "val.lmdb"), stream)
    assert packed == epoch(start_server, source, {**stream, "part": "val"})
