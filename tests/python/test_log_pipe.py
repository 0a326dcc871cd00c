"""A log that nobody reads: the server continues, counts the lines that it drops, and ends on SIGTERM."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
import pytest
from running import headrace_binary, http_get, wait_until

F_SETPIPE_SZ = 1031


class Unread:
    """A server whose standard error is a pipe of 4 KiB."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        self.address = str(folder / "run")
        path = folder / "c.json"
        server = {**config["server"], "directory": self.address, "metrics": {"port": 0}, "log_level": "debug"}
        path.write_text(json.dumps({**config, "server": server}))
        self.reader, writer = os.pipe()
        fcntl.fcntl(writer, F_SETPIPE_SZ, 4096)
        ready, ready_writer = os.pipe()
        command = [headrace_binary(), "serve", str(path), "--ready-fd", str(ready_writer)]
        self.popen = subprocess.Popen(command, stderr=writer, stdin=subprocess.DEVNULL, pass_fds=[ready_writer])
        os.close(writer)
        os.close(ready_writer)
        with os.fdopen(ready) as pipe:
            self.metrics_url = pipe.readline().split()[2]

    def read(self) -> str:
        os.set_blocking(self.reader, False)
        with contextlib.suppress(BlockingIOError):
            return os.read(self.reader, 1 << 20).decode()
        return ""

    def dropped(self) -> int:
        found = re.search(r"^headrace_log_lines_dropped_total (\d+)", http_get(self.metrics_url + "/metrics"), re.MULTILINE)
        assert found
        return int(found.group(1))

    def attach_and_detach(self, times: int) -> None:
        for _ in range(times):
            headrace.Loader(self.address, stream="train", timeout=10).close()
        wait_until(lambda: not headrace.stats(self.address)["streams"]["train"]["clients"], "the server to log the last one's end")


@pytest.fixture
def server(quiet_config: dict[str, Any], tmp_path: Path) -> Iterator[Unread]:
    unread = Unread(quiet_config, tmp_path)
    yield unread
    unread.popen.kill()
    unread.popen.wait()
    os.close(unread.reader)


def test_a_log_that_nobody_reads_stalls_nothing(server: Unread) -> None:
    server.attach_and_detach(60)
    assert server.dropped() > 10
    with headrace.Loader(server.address, stream="train", timeout=10) as loader:
        assert sum(len(images) for images, _ in loader) == 60
    server.popen.send_signal(signal.SIGTERM)
    assert server.popen.wait(15) == 0


def test_the_log_continues_once_it_is_read_again(server: Unread) -> None:
    server.attach_and_detach(60)
    before = server.read()
    assert before.count("attached to stream") > 5 and before.endswith("\n")
    dropped = server.dropped()
    server.attach_and_detach(1)
    after = server.read()
    assert f"warning {dropped} log lines were dropped" in after
    assert "attached to stream" in after
    assert server.dropped() == dropped


@pytest.mark.parametrize("config", ["streams: {}\n", "sources: {x: {type: lmdb, path: /nowhere}}\nstreams: {t: {source: x, batch_size: 1}}\n"])
def test_a_server_that_cannot_start_ends_although_nobody_reads_why(tmp_path: Path, config: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"server: {{directory: {tmp_path}/run, metrics: off}}\n{config}")
    reader, writer = os.pipe()
    fcntl.fcntl(writer, F_SETPIPE_SZ, 4096)
    os.write(writer, b"x" * 4096)
    done = subprocess.run([headrace_binary(), "serve", path], stderr=writer, stdin=subprocess.DEVNULL, timeout=20, check=False)
    os.close(writer)
    os.close(reader)
    assert done.returncode in (2, 3)
