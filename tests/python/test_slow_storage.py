"""Slow storage: the same batches with reading ahead and with a local disk cache, and their metrics."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import headrace
import pytest
import yaml
from headrace.digest import Digest
from running import Server, headrace_binary

SLOW = {"delay": "20ms"}


def config(folder: Path, io: dict[str, Any] | None, **stream: Any) -> dict[str, Any]:
    crop = {"random_resized_crop": {"size": 24}}
    source: dict[str, Any] = {"type": "image_folder", "path": str(folder)}
    if io is not None:
        source["io"] = io
    return {
        "server": {"threads": 2},
        "sources": {"images": source},
        "streams": {
            name: {"source": "images", "batch_size": 8, "seed": seed, "transforms": [crop], **stream}
            for seed, name in enumerate(["train", "other"])
        },
    }


def digest(server: Server, epochs: int = 2) -> list[str]:
    """The batches of some epochs of both streams."""
    out = []
    for stream in ("train", "other"):
        seen = Digest()
        with headrace.Loader(server.address, stream=stream) as loader:
            for epoch in range(epochs):
                loader.set_epoch(epoch)
                for batch in loader:
                    seen.add(batch)
        out.append(seen.hexdigest())
    return out


def outcomes(server: Server, stream: str = "train") -> dict[str, int]:
    found = re.findall(
        rf'headrace_read_ahead_samples_total{{stream="{stream}",outcome="(\w+)"}} (\d+)', server.metrics()
    )
    return {outcome: int(count) for outcome, count in found}


def disk_cache(server: Server) -> dict[str, float]:
    """The figures of the disk cache, which must be equal in the metrics and the statistics."""
    found = re.findall(r'^headrace_cache_(\w+){source="images",kind="disk"} (\S+)$', server.metrics(), re.MULTILINE)
    shown = {name.removesuffix("_total"): float(value) for name, value in found}
    (told,) = headrace.stats(server.address)["caches"]
    assert (told.pop("source"), told.pop("kind")) == ("images", "disk")
    assert set(shown) == set(told)
    assert all(shown[name] <= value for name, value in told.items()), "none of them falls"
    return shown


@pytest.mark.parametrize("stream", [{}, {"sampler": "balanced"}, {"delivery": "shard", "shuffle": False}])
def test_what_is_read_ahead_gives_the_same_batches(start_server: Any, image_folder: Path, stream: dict[str, Any]) -> None:
    plain = start_server(config(image_folder, None, **stream))
    assert outcomes(plain) == {}, "nothing is read ahead without `io`"
    slow = start_server(config(image_folder, {"threads": 16, **SLOW}, **stream))
    assert digest(slow) == digest(plain)
    seen = outcomes(slow)
    assert seen["hit"] + seen["wait"] >= 120, "two epochs of 60 samples"
    assert seen["miss"] == seen["dropped"] == 0
    metrics = slow.metrics()
    assert 'headrace_io_threads{source="images"} 16' in metrics
    reads = float(re.findall(r'headrace_io_reads_total{stream="train"} (\S+)', metrics)[0])
    seconds = float(re.findall(r'headrace_io_read_seconds_total{stream="train"} (\S+)', metrics)[0])
    assert reads >= 60, "few more: a sample that two batches in the window need is read once"
    assert seconds >= 0.02 * reads
    assert "io.delay adds 20 ms to each read" in slow.output()


def test_a_small_memory_and_a_single_thread_give_the_same_batches(start_server: Any, image_folder: Path) -> None:
    plain = start_server(config(image_folder, None))
    tight = start_server(config(image_folder, {"threads": 1, "read_ahead": 1, "memory": "1MB"}))
    without = start_server(config(image_folder, {"read_ahead": 0, "delay": "1ms"}))
    assert digest(tight) == digest(without) == digest(plain)
    assert outcomes(without) == {}


def test_a_server_ends_while_reads_are_under_way(start_server: Any, image_folder: Path) -> None:
    server = start_server(config(image_folder, {"delay": "2s", "threads": 4}))
    with headrace.Loader(server.address, stream="train"):
        pass
    assert server.stop() == 0


def test_the_disk_cache_serves_what_it_has_and_what_it_lacks(start_server: Any, image_folder: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    shutil.copytree(image_folder, images)
    expected = digest(start_server(config(images, None)))
    cache = tmp_path / "cache"
    cached = {"disk_cache": {"path": str(cache), "size": "10MB"}}
    first = start_server(config(images, cached))
    assert digest(first) == expected
    files = sorted(cache.glob("*/*/*"))
    assert len(files) == 60
    shown = disk_cache(first)
    assert shown["misses"] >= 60 and shown["hits"] >= 60
    assert sum(path.stat().st_size for path in files) <= shown["bytes"] < shown["budget_bytes"] == 10_000_000
    assert shown["damaged"] == shown["write_errors"] == shown["full"] == 0
    first.kill()
    # Samples in the cache are not read again; missing and damaged ones are.
    files[3].unlink()
    files[4].write_bytes(files[4].read_bytes()[:-5])
    kept = b"".join(file.read_bytes() for file in files[:3] + files[5:])
    gone = [path for path in images.glob("*/*.jpg") if f"{path.parent.name}/{path.name}".encode() in kept]
    assert len(gone) == 58
    for path in gone:
        path.write_bytes(bytes(path.stat().st_size))
    second = start_server(config(images, cached))
    assert digest(second) == expected
    assert len(sorted(cache.glob("*/*/*"))) == 60
    shown = disk_cache(second)
    assert shown["damaged"] >= 1 and 2 <= shown["misses"] < 10 and shown["hits"] >= 110


def test_the_disk_cache_keeps_within_its_size(start_server: Any, image_folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    io = {"disk_cache": {"path": str(cache), "size": "1MB"}}
    big = tmp_path / "images"
    shutil.copytree(image_folder, big)
    for index, path in enumerate(sorted(big.glob("*/*.jpg"))):
        path.write_bytes(path.read_bytes() + bytes(60_000 + index))  # what follows a JPEG's end is ignored
    server = start_server(config(big, io))
    assert digest(server) == digest(start_server(config(big, None)))
    held = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    assert 800_000 < held <= 1_000_000
    assert "full: its samples stay" in server.output()
    shown = disk_cache(server)
    assert shown["full"] == 1 and shown["hits"] > 0 and held <= shown["bytes"] <= shown["budget_bytes"] == 1_000_000


def test_check_says_what_is_wrong_with_io(image_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config(image_folder, {"threads": 0, "delay": "1h"})))
    run = subprocess.run([headrace_binary(), "check", str(file)], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "sources.images.io.threads: 0" in run.stdout + run.stderr
    odd = tmp_path / "odd"
    (odd / "users").mkdir(parents=True)  # where the cache has a file
    for path, words in (("/dev/null/cache", "/dev/null/cache: cannot be made"), (odd, f"{odd}/users: Is a directory")):
        file.write_text(yaml.safe_dump(config(image_folder, {"disk_cache": {"path": str(path), "size": "1GB"}})))
        run = subprocess.run([headrace_binary(), "check", str(file)], capture_output=True, text=True, check=False)
        assert run.returncode == 3
        told = run.stdout + run.stderr
        assert f"disk cache {words}" in told and "give a folder on a local disk that this user may write to (io.disk_cache.path)" in told


def test_a_source_made_of_one_with_io_is_read_ahead_as_that_says(start_server: Any, image_folder: Path) -> None:
    shown = config(image_folder, {"threads": 16, **SLOW})
    shown["sources"]["part"] = {"type": "subset", "of": "images", "first": 40}
    for stream in shown["streams"].values():
        stream["source"] = "part"
    slow = start_server(shown)
    del shown["sources"]["images"]["io"]
    assert digest(slow) == digest(start_server(shown))
    assert outcomes(slow)["hit"] + outcomes(slow)["wait"] >= 80


def test_a_server_ends_without_the_reads_that_do_not_come_back(start_server: Any, image_folder: Path) -> None:
    server = start_server(config(image_folder, {"delay": "10s"}))
    with headrace.Loader(server.address, stream="train", batch_timeout=0.5) as loader, pytest.raises(headrace.Error):
        next(iter(loader))
    assert server.stop() == 0
    assert "stopped without a thread that did not end within 2 s, most often because a read" in server.output()
