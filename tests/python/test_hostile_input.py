"""Input that costs far more than its size: images, configurations and data files. Each is refused by name, soon, with little memory."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
import pytest
import yaml
from conftest import ServerFactory
from hostile_images import black_png, chunk, many_scans
from PIL import Image
from running import headrace_binary, http_get, wait_until

ROOM = 100 << 20  # bytes


def folder_of(path: Path, file: bytes, suffix: str, count: int) -> str:
    (path / "class_0").mkdir(parents=True)
    for i in range(count):
        (path / "class_0" / f"{i}.{suffix}").write_bytes(file)
    return str(path)


@pytest.mark.parametrize("kind", [b"zTXt", b"iCCP", b"iTXt"])
def test_a_png_with_a_bomb_in_its_metadata_is_refused(kind: bytes, tmp_path: Path) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (64, 64), (1, 2, 3)).save(picture, "PNG")
    bomb = zlib.compress(bytes(300 << 20), 9)
    head = {b"zTXt": b"Comment\0\0", b"iCCP": b"profile\0\0", b"iTXt": b"Comment\0\1\0\0\0"}[kind]
    bombed = chunk(kind, head + bomb)
    file = picture.getvalue()
    folder = folder_of(tmp_path / "bombs", file[:33] + bombed + file[33:], "png", 4)  # behind IHDR
    config = tmp_path / "bombs.yaml"
    stream = {"source": "data", "batch_size": 2, "transforms": [{"center_crop": 64}]}
    config.write_text(yaml.safe_dump({"sources": {"data": {"type": "image_folder", "path": folder}}, "streams": {"train": stream}}))
    _, output, peak = measured("check", "--all", str(config))
    assert "too_large (reached chunk/cache limits)" in output
    assert peak < ROOM, f"{peak >> 20} MB"


def test_a_jpeg_of_490_scans_does_not_delay_the_end(start_server: ServerFactory, quiet_config: dict[str, Any], tmp_path: Path) -> None:
    file = many_scans(side=9000, scans=490)
    assert len(file) < 1 << 20
    quiet_config["sources"]["images"]["path"] = folder_of(tmp_path / "scans", file, "jpg", 16)
    server = start_server(quiet_config)
    with headrace.Loader(server.address, stream="train", timeout=10):
        wait_until(lambda: "2 billion scans times pixels" in server.output(), "the first image to be refused", 60)
        begin = time.monotonic()  # the workers decode the next images
        assert server.stop() == 0
        assert time.monotonic() - begin < 5


def test_large_images_take_turns_under_a_memory_limit(start_server: ServerFactory, basic_config: dict[str, Any], tmp_path: Path) -> None:
    side = 5500  # 90 MB of pixels
    basic_config["sources"]["images"]["path"] = folder_of(tmp_path / "large", black_png(side, end=False), "png", 8)
    basic_config["server"]["threads"] = 4
    basic_config["streams"]["train"] |= {"batch_size": 4, "sharing": {"window": "0B"}}
    server = start_server(basic_config, env={"MALLOC_ARENA_MAX": "1"})  # each arena takes 64 MB of addresses
    mapped = int(Path(f"/proc/{server.popen.pid}/statm").read_text().split()[0]) * resource.getpagesize()
    limit = mapped + (220 << 20)
    resource.prlimit(server.popen.pid, resource.RLIMIT_AS, (limit, limit))
    with headrace.Loader(server.address, stream="train", timeout=60, batch_timeout=120) as loader:
        assert len(list(loader)) == len(loader) == 2
    assert "bad sample" not in server.output()


# In a process of its own, because a child's peak includes that of the process that starts it.
MEASURE = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def measured(*arguments: str) -> tuple[int, str, int]:
    """Exit status, output, and the peak of memory in bytes."""
    command = [sys.executable, "-c", MEASURE, headrace_binary(), *arguments]
    done = subprocess.run(command, capture_output=True, timeout=100, check=True)
    *output, last = done.stdout.decode(errors="replace").splitlines()
    status, peak = map(int, last.split())
    return status, "\n".join(output), peak


def checked(path: Path, source: dict[str, Any]) -> str:
    config = path / "hostile.yaml"
    config.write_text(yaml.safe_dump({"sources": {"data": source}, "streams": {"train": {"source": "data", "batch_size": 2}}}))
    status, output, peak = measured("check", str(config))
    assert status != 0 and "INTERNAL" not in output, output
    assert peak < ROOM, f"{peak >> 20} MB: {output}"
    return output


def test_a_gzip_bomb_is_refused_by_its_header(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "images.gz", "wb", compresslevel=1) as bomb:
        bomb.write(struct.pack(">IIII", 0x803, 10, 28, 28))
        for _ in range(1024):
            bomb.write(bytes(1 << 20))
    (tmp_path / "labels").write_bytes(struct.pack(">II", 0x801, 10) + bytes(10))
    told = checked(tmp_path, {"type": "idx", "images": str(tmp_path / "images.gz"), "labels": str(tmp_path / "labels")})
    assert "images.gz: expected at most 7857 bytes, found more" in told


@pytest.mark.parametrize("device", ["/dev/zero", "pipe"])
def test_endless_files_are_no_data_files(device: str, tmp_path: Path) -> None:
    if device == "pipe":
        device = str(tmp_path / "pipe")
        os.mkfifo(device)
    assert f"{device}: is not a file" in checked(tmp_path, {"type": "idx", "images": device, "labels": device})
    assert "is not a file" in checked(tmp_path, {"type": "manifest", "path": device})


@pytest.mark.parametrize("name", ["list.csv", "list.jsonl"])
def test_a_line_of_gigabytes_is_no_text(name: str, tmp_path: Path) -> None:
    with open(tmp_path / name, "wb") as file:
        file.write(b"image,label\n" if name.endswith("csv") else b"{}\n")
        file.truncate(10 << 30)
    assert "a line has more than 16 MiB" in checked(tmp_path, {"type": "manifest", "path": str(tmp_path / name)})


def test_invalid_utf8_in_a_number_is_named(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    (tmp_path / "list.csv").write_bytes(b"image,score\na.jpg,\xff\xfe\n")
    source = {"type": "manifest", "path": str(tmp_path / "list.csv"), "fields": {"image": {"column": "image"}, "score": {"kind": "value", "dtype": "float32"}}}
    assert "list.csv:2" in checked(tmp_path, source)


def test_a_large_configuration_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_text("streams:\n" + "  a: {source: b}\n" * 700_000)
    status, output, peak = measured("check", str(tmp_path / "large.yaml"))
    assert status != 0 and "CONFIG_INVALID" in output and peak < ROOM, output


def test_bench_names_the_failure_of_its_stream_at_once(quiet_config: dict[str, Any], tmp_path: Path) -> None:
    quiet_config["sources"]["images"]["path"] = folder_of(tmp_path / "bad", b"no image", "jpg", 4)
    config = tmp_path / "bench.yaml"
    config.write_text(yaml.safe_dump(quiet_config))
    begin = time.monotonic()
    status, output, _ = measured("bench", str(config), "--clients", "1", "--seconds", "20")
    assert status != 0 and "too many bad samples" not in output
    assert "4 of 4" in output or "are bad" in output, output
    assert time.monotonic() - begin < 15, "it waits neither for clients nor for the measurement"


@contextlib.contextmanager
def connections(url: str, count: int, said: bytes) -> Iterator[list[socket.socket]]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    all_of_them: list[socket.socket] = []
    try:
        for _ in range(count):
            all_of_them.append(socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))))
            all_of_them[-1].sendall(said)
        yield all_of_them
    finally:
        for each in all_of_them:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def seconds_until_healthy(url: str) -> float:
    begin = time.monotonic()
    assert http_get(url + "/healthz") == "ok\n"
    return time.monotonic() - begin


def test_health_is_answered_beside_1500_slow_requests(start_server: ServerFactory, basic_config: dict[str, Any]) -> None:
    url = start_server(basic_config).metrics_url
    with connections(url, 1500, b"GET /metrics HTTP/1.1\r\nHost: x"):  # never ends
        assert max(seconds_until_healthy(url) for _ in range(3)) < 1
    wait_until(lambda: http_get(url + "/healthz") == "ok\n", "the next answer")


def test_health_is_answered_beside_endless_bodies(start_server: ServerFactory, basic_config: dict[str, Any]) -> None:
    url = start_server(basic_config).metrics_url
    ended = threading.Event()

    def send_on() -> None:
        while not ended.wait(0.3):
            for each in slow:
                with contextlib.suppress(OSError):  # the server has ended it
                    each.send(b"x")

    with connections(url, 40, b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n") as slow:
        sender = threading.Thread(target=send_on)
        sender.start()
        try:
            assert max(seconds_until_healthy(url) for _ in range(3)) < 5
        finally:
            ended.set()
            sender.join()
