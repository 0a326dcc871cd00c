"""`headrace top`: the status page's figures in a terminal."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import headrace
import pytest
from children import Child
from conftest import ServerFactory
from running import headrace_binary, wait_until
from terminal import Terminal
from test_status_page import SLOW, config

__all__ = ["config"]


def test_top_shows_the_same_in_a_terminal(start_server: ServerFactory, config: dict[str, Any]) -> None:
    server = start_server(config)
    with Child(SLOW, server.address) as slow:
        slow.receive(30)
        with Terminal(30, 100, "top", "--address", server.address) as top:
            wait_until(lambda: top.read().count(b"\x1b[H") >= 3 and b"Data is no bottleneck: the server waited for trainer `slow`" in top.seen, "three pictures of the screen")
            top.process.send_signal(signal.SIGINT)
            assert top.process.wait(10) == 0
            assert top.read().startswith(b"\x1b[?1049h") and top.seen.endswith(b"\x1b[?1049l"), "the terminal is as it was"


def test_top_fits_into_a_narrow_terminal_and_survives_an_outage(start_server: ServerFactory, config: dict[str, Any]) -> None:
    server = start_server(config)
    name = "a-trainer-with-a-long-name-Ünïcödé-" + 20 * "x"
    with headrace.Loader(server.address, stream="train", client=name) as loader, \
         Terminal(9, 70, "top", "--address", server.address, "--timeout", "0.3") as top:
        next(iter(loader))
        wait_until(lambda: any("more line" in line for line in top.screen()), "the screen")
        lines = top.screen()
        assert max(map(len, lines)) <= 70 and len(lines) == 9
        top.resize(40, 70)
        wait_until(lambda: any(line.startswith("  a-traine") for line in top.screen()), "the trainer's row")
        head = next(line for line in top.screen() if line.startswith("  trainer"))
        row = next(line for line in top.screen() if line.startswith("  a-traine"))
        assert len(row) <= 70 and head.index("batches behind") == row.index("-", row.index("%"))
        server.stop()
        wait_until(lambda: "No answer from the server; the figures below are the last ones." in top.screen()[0], "the outage")
        assert any(line.startswith("  a-traine") for line in top.screen()), "the last figures stay"


def test_top_keeps_the_lines_of_a_failure(start_server: ServerFactory, config: dict[str, Any], image_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(image_folder, tmp_path / "copy")
    for image in folder.rglob("*.jpg"):
        image.write_bytes(b"no image")
    config["sources"] = {name: {**source, "path": str(folder)} for name, source in config["sources"].items()}
    server = start_server(config)
    with headrace.Loader(server.address, stream="train") as loader, pytest.raises(headrace.Error):
        next(iter(loader))
    done = subprocess.run([headrace_binary(), "top", "--once", "--address", server.address], capture_output=True, text=True, timeout=30)
    lines = done.stdout.splitlines()
    named = [line for line in lines if line.startswith(" " * 8 + "class_")]
    assert len(named) > 1 and all(line.count(".jpg: ") == 1 for line in named), done.stdout
    assert not any("the first" in line and "class_" in line for line in lines if "samples are bad" in line), done.stdout


def test_control_c_ends_top_while_the_server_does_not_answer(start_server: ServerFactory, config: dict[str, Any]) -> None:
    server = start_server(config)
    with Terminal(24, 80, "top", "--address", server.address, "--timeout", "60") as top:
        wait_until(lambda: b"No trainer is attached." in top.read(), "the screen")
        os.kill(server.popen.pid, signal.SIGSTOP)
        try:
            time.sleep(2.5)  # it asks once a second
            top.process.send_signal(signal.SIGINT)
            assert top.process.wait(5) == 0
            assert top.read().endswith(b"\x1b[?1049l"), "the terminal is as it was"
        finally:
            os.kill(server.popen.pid, signal.SIGCONT)


def test_top_prints_once_without_a_terminal(start_server: ServerFactory, config: dict[str, Any]) -> None:
    server = start_server(config)
    done = subprocess.run([headrace_binary(), "top", "--address", server.address], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and "\x1b" not in done.stdout
    assert "1 worker 0% busy" in done.stdout and "No trainer is attached." in done.stdout
    server.stop()
    done = subprocess.run([headrace_binary(), "top", "--address", server.address, "--timeout", "0.3"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 3 and "headrace: SERVER_UNREACHABLE" in done.stderr


def test_a_question_says_that_it_waits_for_a_server() -> None:
    with Terminal(24, 200, "ls", "--address", "/nowhere", "--timeout", "0.2") as asked:
        wait_until(lambda: b"no server in /nowhere yet; waiting up to 0.2 s for one\r\n" in asked.read(), "why nothing happens")
        wait_until(lambda: b"SERVER_UNREACHABLE" in asked.read(), "the error")


def test_a_question_leaves_errors_of_the_directory_to_the_client(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with Terminal(24, 200, "ls", "--address", str(tmp_path / "loop"), "--timeout", "0.2") as asked:
        wait_until(lambda: b"PERMISSION_DENIED: server directory" in asked.read(), "the reason")
        assert b"no server in" not in asked.seen and b"filesystem error" not in asked.seen
