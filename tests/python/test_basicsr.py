"""Super-resolution pairs in BasicSR's databases give the same batches as the same files in folders."""

from __future__ import annotations

import ctypes
import io
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from PIL import Image


class _Value(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_char_p)]


def write_lmdb(folder: Path, entries: dict[str, bytes]) -> None:
    """Writes a database with liblmdb, which the server needs anyway."""
    lmdb = ctypes.CDLL("liblmdb.so.0")
    folder.mkdir(parents=True)
    env, txn, dbi = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint()

    def done(code: int) -> None:
        assert code == 0, code

    done(lmdb.mdb_env_create(ctypes.byref(env)))
    done(lmdb.mdb_env_set_mapsize(env, ctypes.c_size_t(1 << 26)))
    done(lmdb.mdb_env_open(env, str(folder).encode(), 0, 0o644))
    done(lmdb.mdb_txn_begin(env, None, 0, ctypes.byref(txn)))
    done(lmdb.mdb_dbi_open(txn, None, 0, ctypes.byref(dbi)))
    for key, value in entries.items():
        pair = [_Value(len(text), text) for text in (key.encode(), value)]
        done(lmdb.mdb_put(txn, dbi, ctypes.byref(pair[0]), ctypes.byref(pair[1]), 0))
    done(lmdb.mdb_txn_commit(txn))
    lmdb.mdb_env_close(env)


def write_basicsr(folder: Path, images: dict[str, np.ndarray[Any, Any]]) -> None:
    """Writes a database as BasicSR's make_lmdb_from_imgs does."""
    entries, lines = {}, []
    for name, pixels in images.items():
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "png", compress_level=1)
        entries[name] = file.getvalue()
        lines.append(f"{name}.png ({pixels.shape[0]},{pixels.shape[1]},3) 1\n")
    write_lmdb(folder, entries)
    (folder / "meta_info.txt").write_text("".join(lines))


def write_pairs(root: Path, count: int = 10, side: int = 60, scale: int = 4) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(2)
    lq = {f"{i:04d}_s001": random.integers(0, 256, (side + i, side + 2 * i, 3), dtype=np.uint8) for i in range(count)}
    write_basicsr(root / "lq.lmdb", lq)
    write_basicsr(root / "gt.lmdb", {name: image.repeat(scale, 0).repeat(scale, 1) for name, image in lq.items()})
    return lq


def test_patches_of_databases_are_those_of_folders(start_server: Any, tmp_path: Path) -> None:
    lq = write_pairs(tmp_path)
    for name, image in lq.items():
        for folder, pixels in (("lq", image), ("gt", image.repeat(4, 0).repeat(4, 1))):
            (tmp_path / folder).mkdir(exist_ok=True)
            Image.fromarray(pixels).save(tmp_path / folder / f"{name}.png", compress_level=1)
    seen = []
    for ending in ("", ".lmdb"):
        fields = {field: str(tmp_path / (field + ending)) for field in ("gt", "lq")}
        stream = {"source": "pairs", "batch_size": 4, "transforms": [{"random_crop": {"size": 24}}, "random_rotate90"]}
        config = {
            "server": {"threads": 2, "metrics": "off"},
            "sources": {"pairs": {"type": "paired_folders", "fields": fields}},
            "streams": {"train": {**stream, "output": {"layout": "NHWC"}}},
        }
        with headrace.Loader(start_server(config).address, stream="train", batch="dict") as loader:
            seen.append([{key: value.copy() for key, value in batch.items()} for batch in loader])
    assert sum(len(batch["gt"]) for batch in seen[1]) == 10
    for folders, databases in zip(*seen, strict=True):
        for field in ("gt", "lq"):
            np.testing.assert_array_equal(folders[field], databases[field])
        np.testing.assert_array_equal(databases["gt"], databases["lq"].repeat(4, 1).repeat(4, 2))


def test_a_pair_of_another_scale_is_named_with_both_sizes(start_server: Any, tmp_path: Path) -> None:
    lq = write_pairs(tmp_path, count=2)
    gt = {name: image.repeat(4 if name.startswith("0000") else 3, 0).repeat(4, 1) for name, image in lq.items()}
    write_basicsr(tmp_path / "odd.lmdb", gt)
    source = {"type": "paired_folders", "fields": {"gt": str(tmp_path / "odd.lmdb"), "lq": str(tmp_path / "lq.lmdb")}}
    stream = {"source": "pairs", "transforms": [{"random_crop": {"size": 24}}]}
    config = {"sources": {"pairs": source}, "streams": {"train": stream}}
    with pytest.raises(AssertionError, match=r"odd.lmdb/0001_s001.png has 248 x 183 pixels and its partner .* 62 x 61: at scale 4"):
        start_server(config)


def test_a_database_of_another_program_is_refused_with_what_to_do(start_server: Any, tmp_path: Path) -> None:
    write_lmdb(tmp_path / "caffe", {"00000000": b"\x08\x03"})
    stream = {"source": "s", "transforms": [{"random_crop": {"size": 24}}]}
    for source in ({"type": "paired_folders", "fields": {"x": str(tmp_path / "caffe")}}, {"type": "lmdb", "path": str(tmp_path / "caffe")}):
        with pytest.raises(AssertionError, match=r"so not BasicSR's: .* write the images into a folder|pack others again from their original files"):
            start_server({"sources": {"s": source}, "streams": {"train": stream}})
