"""Too little memory, no locked memory, and a disk that is really full: a named error, or the way around it."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import headrace
import lmdb
import pytest
import yaml
from conftest import ServerFactory
from images import write_images
from running import headrace_binary
from test_trust import Serve, config, serve
from users import NOBODY, common, needs_root

__all__ = ["common", "serve"]

MB = 1 << 20


@contextmanager
def cgroup(limit: int) -> Iterator[Callable[[], None]]:
    """Yields what a child calls to join a new memory cgroup with that limit. Skips the test where none can be made."""
    first, second = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    root, file = (first, "memory.limit_in_bytes") if first.is_dir() else (second, "memory.max")
    own = root / f"headrace-test-{os.getpid()}"
    try:
        own.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error}")
    try:
        try:
            (own / file).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"the memory of a cgroup cannot be limited: {error}")

        def join() -> None:
            (own / "cgroup.procs").write_text(str(os.getpid()))

        yield join
    finally:
        with suppress(OSError):
            own.rmdir()


def large_ring(folder: Path) -> Path:
    """A ring of some 300 MB for the first client."""
    path = folder / "large.yaml"
    path.write_text(
        f"server: {{directory: {folder}/run, metrics: off, threads: 1}}\n"
        "sources: {rows: {type: synthetic, count: 1000, bytes: 2000000}}\n"
        "streams: {train: {source: rows, batch_size: 16}}\n"
    )
    return path


def refused_start(config: Path, preexec: Callable[[], None]) -> tuple[float, float]:
    """What is needed and what is left, in MB, as `serve` says when it does not start."""
    done = subprocess.run([headrace_binary(), "serve", config], capture_output=True, text=True, timeout=60, preexec_fn=preexec, check=False)
    assert done.returncode == 3, f"{done.returncode}: {done.stderr}"
    assert "NOT_ENOUGH_MEMORY" in done.stderr
    said = re.search(r"NOT_ENOUGH_MEMORY: .*? (?:needs?|mapping) ([\d.]+) (KB|MB|GB).*? ([\d.]+) (KB|MB|GB)", done.stderr)
    assert said, done.stderr
    unit = {"KB": 1e-3, "MB": 1.0, "GB": 1e3}
    return float(said[1]) * unit[said[2]], float(said[3]) * unit[said[4]]


@pytest.mark.parametrize("limit", [200 * MB, 420 * MB], ids=["for no client", "for one client"])
def test_a_ring_that_exceeds_the_limit_of_the_address_space_ends_the_start_with_both_sizes(tmp_path: Path, limit: int) -> None:
    """The larger one leaves room for the slots of the first client, but not for the mapping of all."""
    needed, available = refused_start(large_ring(tmp_path), lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert available < needed and available < limit / 1e6


@needs_root
def test_a_ring_that_exceeds_the_cgroup_ends_the_start_with_both_sizes(tmp_path: Path) -> None:
    with cgroup(100 * MB) as join:
        needed, available = refused_start(large_ring(tmp_path), join)
    assert available < needed and available < 105


WITHOUT_LOCKED_MEMORY = """
import resource, sys
import headrace
resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
for device in (None, "host"):
    with headrace.Loader(sys.argv[1], stream="train", device=device, output="numpy") as loader:
        for epoch in range(2):
            digest = headrace.Digest()
            for batch in loader:
                digest.add(batch)
            print(device, digest.hexdigest())
"""


@needs_root
def test_trainers_without_locked_memory_get_the_same_batches(serve: Serve) -> None:
    """Root may lock any amount, so they run as another user. What a GPU's driver refuses is tested in C++: CopyEngine.Stages..."""
    server = serve(config(allow={"uids": [NOBODY]}))

    def epochs(**who: Any) -> str:
        command = [sys.executable, "-c", WITHOUT_LOCKED_MEMORY, server.address]
        done: subprocess.CompletedProcess[str] = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, **who)
        assert done.returncode == 0, done.stderr
        return done.stdout

    unlimited = epochs()
    assert len(unlimited.splitlines()) == 4
    nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "env": {**os.environ, "HOME": "/nonexistent"}}
    assert epochs(**nobody) == unlimited


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", path], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def enlarge(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=200m", disk], check=True)


def headrace_(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([headrace_binary(), *arguments], capture_output=True, text=True, timeout=100, check=False)


def test_packing_onto_a_disk_that_is_full_is_named_and_resumes_when_there_is_room(small_disk: Path, tmp_path: Path) -> None:
    images = write_images(tmp_path / "images", classes=3, per_class=100)
    out = small_disk / "packed.lmdb"
    pack: list[str | Path] = ["pack", images, out, "--store", "decoded", "--resize", "96", "--quiet"]
    full = headrace_(*pack)
    assert full.returncode == 3, full.stderr
    assert "no room to write on: " in full.stderr and "make room, then run the same headrace pack again" in full.stderr
    assert "Traceback" not in full.stderr and full.returncode > 0
    half = json.loads(headrace_("inspect", out, "--json").stdout)
    assert not half["complete"] and half["packed"] < 300
    half_packed = tmp_path / "half.yaml"
    half_packed.write_text(yaml.safe_dump(config_of(out)))
    refused = headrace_("serve", half_packed, "--set", f"server.directory={tmp_path}/run")
    assert refused.returncode == 3 and "packing was not finished" in refused.stderr, "never silently short"

    again = headrace_(*pack)
    assert again.returncode == 3 and "no room to write on: " in again.stderr, "as before, while the disk is full"
    enlarge(small_disk)
    assert headrace_(*pack).returncode == 0
    whole = json.loads(headrace_("inspect", out, "--json").stdout)
    assert whole["complete"] and whole["count"] == 300
    verified = headrace_("verify", out, "--decode")
    assert "none damaged" in verified.stdout, verified.stderr


def config_of(database: Path) -> dict[str, Any]:
    return {
        "server": {"metrics": "off", "threads": 1},
        "sources": {"packed": {"type": "lmdb", "path": str(database)}},
        "streams": {"train": {"source": "packed", "batch_size": 8, "transforms": [{"center_crop": {"size": 32}}]}},
    }


def test_a_database_of_which_all_readers_are_taken_is_served(start_server: ServerFactory, image_folder: Path, tmp_path: Path) -> None:
    """LMDB has a table of readers, of 126 unless a program asks for more. The server needs none of them."""
    out = tmp_path / "packed" / "images.lmdb"
    out.parent.mkdir()
    assert headrace_("pack", image_folder, out, "--quiet").returncode == 0
    environment = lmdb.open(str(out), max_readers=126)
    try:
        readers = [environment.begin() for _ in range(126)]
        with pytest.raises(lmdb.ReadersFullError):
            environment.begin()
        with headrace.Loader(start_server(config_of(out)).address, stream="train") as loader:
            assert sorted(int(index) for batch in loader for index in batch.sample_index) == list(range(60))
        for reader in readers:
            reader.abort()
    finally:
        environment.close()


def test_a_disk_cache_on_a_full_disk_is_marked_full_and_every_sample_is_served(
    start_server: ServerFactory, basic_config: dict[str, Any], small_disk: Path, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "images", classes=3, per_class=20)
    for number, image in enumerate(sorted(images.glob("*/*.jpg"))):  # 60 x 200 KB: what follows a JPEG's end is ignored
        image.write_bytes(image.read_bytes() + random.Random(number).randbytes(200_000))
    io = {"threads": 2, "disk_cache": {"path": str(small_disk / "cache"), "size": "100MB"}}
    basic_config["sources"]["images"] = {"type": "image_folder", "path": str(images), "io": io}
    server = start_server(basic_config)
    with headrace.Loader(server.address, stream="train") as loader:
        for _ in range(2):
            seen = sorted(int(index) for batch in loader for index in batch.sample_index)
            assert seen == list(range(60)), "each sample, from the folder or from the cache"
    metrics = server.metrics()
    assert re.search(r"^headrace_cache_full\{[^}]*\} 1$", metrics, re.MULTILINE), metrics
    assert re.search(r"^headrace_cache_write_errors_total\{[^}]*\} [1-9]", metrics, re.MULTILINE), metrics
    assert headrace.stats(server.address)["streams"]["train"]["replaced"] == 0
    assert "No space left on device" in server.output()
