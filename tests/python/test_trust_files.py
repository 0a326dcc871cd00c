"""Files that another user plants at paths where the server writes and reads its own."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import headrace
import pytest
import yaml
from images import write_images
from running import Server
from test_webdataset import write_shards
from users import NOBODY, Common, common, needs_root, owned

__all__ = ["common"]


def labels(common: Common, config: dict[str, Any], name: str) -> list[int]:
    server = Server(config, common.folder(name), binary=common.binary).wait_ready()
    try:
        with headrace.Loader(server.address, stream="train") as loader:
            return [int(label) for _, batch in loader for label in batch]
    finally:
        server.stop()


@pytest.fixture
def sharded(common: Common) -> dict[str, Any]:
    shards = common.folder("shards", mode=0o1777)
    pattern = write_shards(write_images(common.path / "images", 2, 4), shards, "train", tarfile.GNU_FORMAT, "cls", count=1)
    return {
        "server": {"threads": 1, "metrics": "off"},
        "sources": {"shards": {"type": "webdataset", "path": pattern}},
        "streams": {
            "train": {"source": "shards", "batch_size": 8, "shuffle": False, "transforms": [{"center_crop": {"size": 16}}]}
        },
    }


@needs_root
def test_a_folder_that_this_user_may_not_read_is_named(common: Common) -> None:
    write_images(common.path / "images", 1, 1)
    common.path.joinpath("images").chmod(0o700)

    def check(path: Path) -> str:
        done = subprocess.run([str(common.binary), "check", str(path)], user=NOBODY, capture_output=True, text=True, check=False)
        assert done.returncode == 3
        return done.stderr

    for path in (common.path / "images", common.path / "images" / "class_0"):
        assert f"{path}: Permission denied; give this user the right to read it" in check(path)
    assert "no such file or folder" in check(common.path / "nothing")


@needs_root
def test_an_index_that_another_user_planted_is_not_used(common: Common, sharded: dict[str, Any]) -> None:
    right = labels(common, sharded, "first")
    assert right == [0, 0, 0, 0, 1, 1, 1, 1]
    shards = common.path / "shards"
    (shard,), (index,) = shards.glob("*.tar"), shards.glob(".*.index")
    # The index's key consists of the shard's name, size and time: so write other labels of the same length, then restore the shard.
    content, status = shard.read_bytes(), shard.stat()
    exchanged = {b"0": b"1", b"1": b"0"}
    other = bytearray(content)
    for at in range(0, len(content), 512):
        if content[at + 1 : at + 512] == bytes(511) and content[at : at + 1] in exchanged:
            other[at : at + 1] = exchanged[content[at : at + 1]]
    for data in (bytes(other), content):
        shard.write_bytes(data)
        os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))
        if data != content:
            index.unlink()
            assert labels(common, sharded, "planting") == [1, 1, 1, 1, 0, 0, 0, 0]
    owned(index, NOBODY, 0o644)
    assert labels(common, sharded, "last") == right
    assert index.stat().st_uid == 0, "the server's own index has replaced it"


def test_an_index_is_not_written_through_a_link(common: Common, sharded: dict[str, Any]) -> None:
    labels(common, sharded, "first")
    (index,) = (common.path / "shards").glob(".*.index")
    index.unlink()
    precious = common.path / "precious"
    precious.write_text("mine")
    folder = common.folder("second")
    config = folder / "headrace.yaml"
    config.write_text(yaml.safe_dump({**sharded, "server": {**sharded["server"], "directory": str(folder / "run")}}))
    # The server has the shell's pid, which is in the temporary file's name.
    command = f'ln -s {precious} {index}.$$.tmp; ln -s {precious} {index}; exec {common.binary} serve {config} --ready-fd 1'
    server = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None and server.stdout.readline().startswith(b"ready")
    finally:
        server.terminate()
        server.communicate()
    assert precious.read_text() == "mine"
    assert index.is_file() and not index.is_symlink()


@needs_root
def test_a_disk_cache_in_another_users_folder_is_refused(common: Common, sharded: dict[str, Any]) -> None:
    cache = common.folder("cache", NOBODY, 0o777)
    sharded["sources"]["shards"]["io"] = {"disk_cache": {"path": str(cache), "size": "1GB"}}
    server = Server(sharded, common.folder("server"), binary=common.binary)
    assert server.popen.wait(20) == 3
    assert f"disk cache {cache} belongs to user {NOBODY} (mode 0777), expected user 0; give it to user 0 alone" in server.output()
    assert not list(cache.iterdir())


def test_pack_does_not_write_through_a_link(common: Common) -> None:
    write_images(common.path / "images", 2, 2)
    out, precious = common.folder("out"), common.path / "precious"
    precious.write_text("mine")
    (out / "data.mdb").symlink_to(precious)
    packed = subprocess.run(
        [common.binary, "pack", str(common.path / "images"), str(out)], capture_output=True, text=True, timeout=60
    )
    assert packed.returncode == 3
    assert "data.mdb is a symbolic link; name a new folder" in packed.stderr
    assert Path(precious).read_text() == "mine"
