"""The check of a large database takes long, and signals must stop the command during it."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

from running import Process, headrace_binary, wait_until

PAGE, TERABYTE = 4096, 1 << 40


def write_endless(folder: Path) -> None:
    """A leaf with one entry, and eight levels of branch pages that name the page below a hundred times, in LMDB's format."""
    tree = struct.pack("<IHHQQQQQ", 0, 0, 9, 8, 1, 0, TERABYTE // 8, 10)
    free = struct.pack("<IHHQQQQQ", PAGE, 0, 0, 0, 0, 0, 0, 2**64 - 1)
    file = b""
    for i in range(2):
        head = struct.pack("<QHHHH", i, 0, 8, 0, 0) + struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, TERABYTE)
        file += (head + free + tree + struct.pack("<QQ", 10, i)).ljust(PAGE, b"\0")
    for page in range(2, 11):
        count = 1 if page == 2 else 100
        upper = PAGE - 8 * count
        head = struct.pack("<QHHHH", page, 0, 2 if page == 2 else 1, 16 + 2 * count, upper)
        places = b"".join(struct.pack("<H", upper + 8 * i) for i in range(count))
        file += (head + places).ljust(upper, b"\0") + count * struct.pack("<HHHH", 0 if page == 2 else page - 1, 0, 0, 0)
    folder.mkdir()
    (folder / "data.mdb").write_bytes(file)
    os.truncate(folder / "data.mdb", TERABYTE)


def children(process: Process) -> list[int]:
    tasks = Path(f"/proc/{process.popen.pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


@contextlib.contextmanager
def checking(arguments: list[str], log: Path) -> Iterator[tuple[Process, int]]:
    """A command that checks a tree without end, and the process that does it."""
    command = Process([headrace_binary(), *arguments], log)
    try:
        (child,) = wait_until(lambda: children(command), "the check to begin")
        wait_until(lambda: "/dev/null" in os.readlink(f"/proc/{child}/fd/2"), "the check to be ready for signals")
        yield command, child
    finally:
        command.kill()


def test_control_c_ends_pack_during_the_check(image_folder: Path, tmp_path: Path) -> None:
    write_endless(tmp_path / "out")
    with checking(["pack", str(image_folder), str(tmp_path / "out")], tmp_path / "log") as (pack, child):
        os.killpg(pack.popen.pid, signal.SIGINT)
        assert pack.popen.wait(20) == 130, pack.output()
        assert "damaged" not in pack.output()
        assert not Path(f"/proc/{child}").exists()


def test_a_server_ends_during_the_check_when_it_is_asked_to(tmp_path: Path) -> None:
    write_endless(tmp_path / "set")
    config = tmp_path / "c.yaml"
    config.write_text(
        f"server: {{directory: {tmp_path}/run, metrics: off}}\n"
        f"sources: {{data: {{type: lmdb, path: {tmp_path}/set}}}}\n"
        "streams: {train: {source: data, batch_size: 4}}\n"
    )
    with checking(["serve", str(config)], tmp_path / "log") as (server, child):
        server.popen.send_signal(signal.SIGTERM)
        assert server.popen.wait(20) > 0
        assert "cannot check data.mdb for damage: headrace is being stopped" in server.output()
        assert not Path(f"/proc/{child}").exists()
