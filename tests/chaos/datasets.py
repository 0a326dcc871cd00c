"""The datasets and the configuration of a chaos run: a folder of images, the same images as tar shards and as a packed set."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import python_tests  # noqa: F401
from headrace import _binary
from images import write_images

CLASSES, PER_CLASS = 4, 25  # 100 samples: no multiple of a batch at most world sizes


def write_shards(images: Path, folder: Path, count: int = 4) -> None:
    folder.mkdir()
    files = sorted(images.glob("*/*.jpg"))
    for shard in range(count):
        with tarfile.open(folder / f"{shard:04d}.tar", "w") as tar:
            for file in files[shard::count]:
                for suffix, data in (("cls", file.parent.name.removeprefix("class_").encode()), ("jpg", file.read_bytes())):
                    member = tarfile.TarInfo(f"{file.parent.name}-{file.stem}.{suffix}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def pack(images: Path, out: Path) -> None:
    subprocess.run([_binary.path(), "pack", str(images), str(out)], check=True, capture_output=True, timeout=120)


def write_all(folder: Path, seed: int) -> None:
    images = write_images(folder / "images", CLASSES, PER_CLASS, seed)
    write_shards(images, folder / "shards")
    pack(images, folder / "packed.lmdb")


CROP = [{"random_resized_crop": {"size": 32}}, "random_horizontal_flip"]
RING = {"prefetch": 3, "max_leases": 3, "max_clients": 10}


def configuration(data: Path, directory: Path, disk_cache: Path | None, web: str) -> dict[str, Any]:
    """`web`: the URL of the shards, or the folder that has them."""
    io = {"threads": 4, "memory": "16MB"}  # the default is half of the memory limit
    cache = {"disk_cache": {"path": str(disk_cache), "size": "1MB"}} if disk_cache else {}
    return {
        "server": {"directory": str(directory), "threads": 2, "evict_after": "1s", "log_level": "debug", "metrics": {"port": 0}},
        "sources": {
            "folder": {"type": "image_folder", "path": str(data / "images"), "io": {**io, **cache}},
            "tar": {"type": "webdataset", "path": str(data / "shards" / "{0000..0003}.tar"), "label": "cls"},
            "packed": {"type": "lmdb", "path": str(data / "packed.lmdb")},
            "web": {"type": "webdataset", "path": f"{web}/{{0000..0003}}.tar", "label": "cls", "io": io},
        },
        "streams": {
            "folder": {"source": "folder", "batch_size": 8, "seed": 1, "transforms": CROP, "ring": RING},
            "wide": {"extends": "folder", "batch_size": 16, "output": {"dtype": "float32"}},
            "tar": {"source": "tar", "batch_size": 5, "seed": 2, "transforms": [*CROP, {"normalize": {"mean": [0.5] * 3, "std": [0.5] * 3}}], "ring": RING},
            "packed": {"source": "packed", "batch_size": 4, "seed": 3, "delivery": "shard", "transforms": CROP, "ring": RING},
            "web": {"source": "web", "batch_size": 8, "seed": 4, "transforms": CROP, "ring": RING},
        },
    }


def write_configuration(path: Path, configured: dict[str, Any]) -> Path:
    path.write_text(json.dumps(configured))  # which is YAML
    return path
