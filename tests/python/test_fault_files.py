"""A server's files fail for a while or for good, are removed, changed or damaged while they are served."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import headrace
import pytest
from conftest import ServerFactory
from headrace.errors import StreamFailed
from images import write_images
from PIL import Image
from running import Server, headrace_binary
from shims import Shared, preload

# read(2) and its kin fail with EIO for one file: as often as the number says, or always if it is negative.
SHIM = r"""
static int fails(int fd) {
  static long* left;
  if (!left) left = shared("EIO_LEFT");
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  if (strcmp(path, getenv("EIO_FILE")) != 0) return 0;
  long now = __atomic_load_n(left, __ATOMIC_SEQ_CST);
  while (now > 0 && !__atomic_compare_exchange_n(left, &now, now - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  if (now == 0) return 0;
  errno = EIO;
  return 1;
}
#define FAILING(name, parameters, arguments)                             \
  ssize_t name parameters {                                              \
    static ssize_t(*real) parameters;                                    \
    if (!real) real = (ssize_t(*) parameters)dlsym(RTLD_NEXT, #name);    \
    return fails(fd) ? -1 : real arguments;                              \
  }
FAILING(read, (int fd, void* buffer, size_t bytes), (fd, buffer, bytes))
FAILING(pread, (int fd, void* buffer, size_t bytes, off_t at), (fd, buffer, bytes, at))
FAILING(pread64, (int fd, void* buffer, size_t bytes, off64_t at), (fd, buffer, bytes, at))
"""

CROP = [{"random_resized_crop": {"size": 32}}]


def digest(loader: headrace.Loader) -> str:
    state = headrace.Digest()
    for batch in loader:
        assert not batch.replaced.any()
        state.add(batch)
    return state.hexdigest()


def tar_of(folder: Path, out: Path) -> Path:
    """A WebDataset shard of the folder's images."""
    members = out.parent / "members"
    members.mkdir()
    for number, image in enumerate(sorted(folder.glob("*/*.jpg"))):
        shutil.copy(image, members / f"{number:05d}.jpg")
        (members / f"{number:05d}.cls").write_text(image.parent.name[-1])
    subprocess.run(["tar", "--sort=name", "-cf", out, "-C", members, "."], check=True)
    return out


@pytest.mark.parametrize("kind", ["image_folder", "webdataset"])
def test_a_transient_error_is_retried_and_one_that_lasts_stops_the_stream_by_name(
    start_server: ServerFactory, quiet_config: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    images = write_images(tmp_path / "images", classes=3, per_class=20)
    failing = images / "class_1" / "0005.jpg"
    if kind == "webdataset":
        failing = tar_of(images, tmp_path / "shard.tar")
        quiet_config["sources"] = {"images": {"type": "webdataset", "path": str(failing)}}
    else:
        quiet_config["sources"]["images"]["path"] = str(images)
    left = Shared(tmp_path / "left")
    env = {"LD_PRELOAD": preload(tmp_path, SHIM), "EIO_LEFT": str(left.path), "EIO_FILE": str(failing.resolve())}
    server = start_server(quiet_config, env=env)
    with headrace.Loader(server.address, stream="train", batch_timeout=60) as loader:
        expected = digest(loader)
        for times in (1, 2, 3):  # of 4 attempts
            left.value = times
            loader.set_epoch(0)
            for _ in range(3):  # rows of the first ones may have been made before
                digest(loader)
            assert left.value == 0, "the errors were met"
        loader.set_epoch(0)
        assert digest(loader) == expected
        before = headrace.stats(server.address)["streams"]["train"]
        assert before["replaced"] == 0 and not before["errors"]

        left.value = -1
        with pytest.raises(StreamFailed) as failed:
            for _ in range(4):
                digest(loader)
    assert str(failing) in str(failed.value) and "Input/output error" in str(failed.value), str(failed.value)
    assert "after 4 attempts" in str(failed.value)
    assert headrace.stats(server.address)["streams"]["train"]["replaced"] == 0, "never replaced by another sample"
    server.check_alive()


def remove(path: Path) -> str:
    path.unlink()
    return "vanished since the dataset was opened"


def lengthen(path: Path) -> str:
    with path.open("ab") as file:
        file.write(b"more")
    return "it was changed since the dataset was opened"


def shorten(path: Path) -> str:
    os.truncate(path, path.stat().st_size // 2)
    return "it was changed since the dataset was opened"


def make_a_pipe(path: Path) -> str:
    os.mkfifo(path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)
    return "is no longer a regular file"


def make_a_loop(path: Path) -> str:
    path.with_suffix(".new").symlink_to(path.name)
    path.with_suffix(".new").rename(path)  # a loop
    return "cannot be opened"


@pytest.mark.parametrize("change", [remove, lengthen, shorten, make_a_pipe, make_a_loop])
def test_an_image_that_changes_while_it_is_served_stops_its_stream_by_name(
    start_server: ServerFactory, quiet_config: dict[str, Any], image_folder: Path, tmp_path: Path, change: Any
) -> None:
    changing = shutil.copytree(image_folder, tmp_path / "changing")
    quiet_config["sources"]["changing"] = {"type": "image_folder", "path": str(changing)}
    quiet_config["streams"]["changing"] = {"source": "changing", "batch_size": 8, "transforms": CROP}
    server = start_server(quiet_config)
    victim = changing / "class_1" / "0007.jpg"
    with headrace.Loader(server.address, stream="changing", batch_timeout=60) as loader:
        digest(loader)
        said = change(victim)
        with pytest.raises(StreamFailed) as failed:
            for _ in range(4):
                digest(loader)
    assert f"{victim}: " in str(failed.value) and said in str(failed.value), str(failed.value)
    with headrace.Loader(server.address, stream="train") as healthy:
        digest(healthy)
    server.check_alive()


def packed(folder: Path, out: Path) -> Path:
    subprocess.run([headrace_binary(), "pack", folder, out, "--store", "encoded", "--quiet"], check=True, capture_output=True, timeout=60)
    return out


def serve_packed(start_server: ServerFactory, config: dict[str, Any], database: Path) -> Server:
    sources = {"packed": {"type": "lmdb", "path": str(database), "verify": True}}
    train = {"source": "packed", "batch_size": 8, "transforms": CROP}
    return start_server({**config, "sources": sources, "streams": {"train": train}})


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_database_that_is_removed_or_replaced_is_served_on_from_its_mapping(
    start_server: ServerFactory, quiet_config: dict[str, Any], image_folder: Path, tmp_path: Path, how: str
) -> None:
    database = packed(image_folder, tmp_path / "images.lmdb")
    other = packed(write_images(tmp_path / "other", classes=3, per_class=20, seed=9), tmp_path / "other.lmdb")
    server = serve_packed(start_server, quiet_config, database)
    with headrace.Loader(server.address, stream="train") as loader:
        expected = digest(loader)
        if how == "removed":
            shutil.rmtree(database)
        else:
            (other / "data.mdb").replace(database / "data.mdb")
        for _ in range(3):
            digest(loader)
        loader.set_epoch(0)
        assert digest(loader) == expected
    server.check_alive()


def test_a_record_that_is_overwritten_while_it_is_served_stops_its_stream_by_name(
    start_server: ServerFactory, quiet_config: dict[str, Any], image_folder: Path, tmp_path: Path
) -> None:
    database = packed(image_folder, tmp_path / "images.lmdb")
    server = serve_packed(start_server, quiet_config, database)
    picture = (image_folder / "class_1" / "0007.jpg").read_bytes()
    with headrace.Loader(server.address, stream="train") as loader:
        digest(loader)
        with (database / "data.mdb").open("r+b") as file:
            file.seek((database / "data.mdb").read_bytes().index(picture) + 200)
            file.write(bytes(100))
        damaged = f"DATASET_INVALID: {database}: the record of sample 27 is damaged: its checksum is wrong; `headrace verify {database}`"
        with pytest.raises(StreamFailed, match=re.escape(damaged)):
            for _ in range(4):
                digest(loader)
    server.check_alive()


@pytest.mark.parametrize("policy", ["keep", "bad"])
def test_an_image_that_libjpeg_repairs_is_counted_and_kept_or_replaced(
    start_server: ServerFactory, basic_config: dict[str, Any], tmp_path: Path, policy: str
) -> None:
    images = write_images(tmp_path / "images", classes=3, per_class=20)
    for name in ("class_0/0003.jpg", "class_2/0011.jpg"):
        picture = Image.open(images / name)
        picture.load()
        picture.save(images / name, progressive=True)
        data = (images / name).read_bytes()
        scans = [at for at in range(len(data)) if data[at : at + 2] == b"\xff\xda"]
        (images / name).write_bytes(data[: scans[3]] + b"\xff\xd9")
        Image.open(images / name).load()  # PIL accepts it, too
    basic_config["sources"]["images"]["path"] = str(images)
    basic_config["streams"]["train"]["warnings"] = policy
    server = start_server(basic_config)
    with headrace.Loader(server.address, stream="train") as loader:
        for _ in range(2):
            assert sum(int(batch.replaced.sum()) for batch in loader) == (2 if policy == "bad" else 0)
    stream = headrace.stats(server.address)["streams"]["train"]
    assert set(stream["errors"]) == {"warning"} and stream["errors"]["warning"] >= 4
    assert 'headrace_sample_errors_total{stream="train",reason="warning"}' in server.metrics()
    assert stream["bad_samples"]["distinct"] == (2 if policy == "bad" else 0)
