"""Names that clients send are keys, never paths; and names of files with control bytes forge nothing in logs, metrics or errors."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headrace
import pytest
from conftest import ServerFactory
from images import write_images
from prometheus_client.parser import text_string_to_metric_families
from raw_client import Refused, answer_of, open_request, packet_socket
from running import http_get, wait_until
from zmtp import Dealer

IN_ACCESS, IN_MODIFY, IN_OPEN, IN_CREATE, IN_DELETE = 0x1, 0x2, 0x20, 0x100, 0x200
IN_NONBLOCK = os.O_NONBLOCK


@contextmanager
def untouched(folder: Path) -> Iterator[None]:
    """Fails if anybody opens, reads, changes or makes a file in the folder."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(IN_NONBLOCK)
    mask = IN_ACCESS | IN_MODIFY | IN_OPEN | IN_CREATE | IN_DELETE
    assert libc.inotify_add_watch(watch, os.fsencode(folder), mask) >= 0, os.strerror(ctypes.get_errno())
    try:
        yield
        try:
            events = os.read(watch, 65536)
        except BlockingIOError:  # there are none
            events = b""
        assert not events, f"{folder} was touched: {events!r}"
    finally:
        os.close(watch)


def tricks(secret: Path, directory: Path) -> list[str]:
    """Ways to name a file outside of the dataset, absolute, relative to likely folders, and through a link."""
    link = directory / "link"
    link.symlink_to(secret)
    relative = [os.path.relpath(secret, start) for start in (directory, Path.cwd(), Path("/"))]
    below = [f"../{secret.parent.name}/{secret.name}", f"train/../../{secret.name}", f"./{secret.name}", f"file://{secret}"]
    return [str(secret), *relative, *below, "link", str(link), "..", "/", "~"]


def test_names_in_requests_are_keys_and_never_paths(start_server: ServerFactory, quiet_config: dict[str, Any], tmp_path: Path) -> None:
    server = start_server(quiet_config)
    (tmp_path / "secret").mkdir()
    canary = tmp_path / "secret" / "canary.jpg"
    canary.write_bytes(b"canary")
    names = tricks(canary, Path(server.address))
    control = Dealer(f"{server.address}/control.sock")

    def code(op: str, **body: Any) -> str:
        try:
            answer_of(control, op, **body)
        except Refused as error:
            return error.code
        return ""

    with untouched(canary.parent):
        for number, name in enumerate(names):
            for op, body in (
                ("open", open_request(stream=name)),
                ("cursor_get", {"stream": name, "group": "raw"}),
                ("sample", {"stream": name, "epoch": 0, "index": 0, "picture": ""}),
            ):
                assert code(op, **body) == "NO_SUCH_STREAM", (op, name)
            assert code("sample", stream="train", epoch=0, index=0, picture=name) not in ("", "INTERNAL"), f"no field is called {name}"
            assert code("cursor_set", session=name, cursor={"epoch": 0, "origin": 0, "batch": 0}) == "TOKEN_INVALID"
            assert code("failure", session=name) == "TOKEN_INVALID"
            with packet_socket(server.address) as attaching:
                attaching.send(f"headrace-attach 1 {name}".encode())
                assert attaching.recv(4096).startswith(b"error TOKEN_INVALID")
            # As names of a client and its group they are text, like any other.
            with headrace.Loader(server.address, stream="train", client=f"{number}{name}", group=name) as loader:
                assert sum(1 for _ in loader) == 8
            assert code("cursor_get", stream="train", group=name) == ""
    control.close()
    assert sorted(os.listdir(server.address)) == ["attach.sock", "bridge.sock", "control.sock", "link", "lock"], "no name became a file"


FORGED = "\n2026-01-01T00:00:00.000000000 error stream `train` stopped\r\x1b[2J\x1b[31m"
NEW_LINE = "a\nb.jpg"


@pytest.fixture
def hostile_folder(tmp_path: Path) -> Path:
    """60 images of which three are bad and have hostile names, as does one class."""
    folder = write_images(tmp_path / "images", classes=3, per_class=20)
    (folder / "class_2").rename(folder / "class\n2\x1b[7m")
    names = [f"0000{FORGED}.jpg", NEW_LINE, os.fsdecode(b"\xff\xfe\x80.jpg")]
    for label, name in zip(("class_0", "class_1", "class\n2\x1b[7m"), names, strict=True):
        image = sorted((folder / label).iterdir())[0]
        (folder / label / name).write_bytes(image.read_bytes()[:100])
        image.unlink()
    return folder


def has_control_bytes(text: str) -> bool:
    return re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text) is not None  # all but new lines


def run(*arguments: str) -> str:
    done = subprocess.run(["headrace", *arguments], capture_output=True, text=True, errors="surrogateescape", timeout=60, check=False)
    return done.stdout + done.stderr


def read_all(address: str, stream: str) -> int:
    with headrace.Loader(address, stream=stream) as loader:
        return sum(int(batch.replaced.sum()) for batch in loader)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_names_of_files_forge_no_line_of_the_servers_log(
    start_server: ServerFactory, basic_config: dict[str, Any], hostile_folder: Path, log_format: str
) -> None:
    basic_config["sources"]["images"]["path"] = str(hostile_folder)
    basic_config["server"]["log_format"] = log_format
    server = start_server(basic_config)
    assert read_all(server.address, "train") == 3
    wait_until(lambda: server.output().count("bad sample, replaced") == 3, "the log's lines")
    log = server.log.read_bytes().decode(errors="surrogateescape")
    assert not has_control_bytes(log)
    for line in log.splitlines():
        if log_format == "json":
            assert {"time", "level", "message"} <= set(json.loads(line))
        else:
            assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+ (info|warning|error|debug) |    ", line), line
            assert not line.startswith("2026-01-01T")


def test_names_of_files_forge_nothing_in_metrics_statistics_and_the_status_page(
    start_server: ServerFactory, basic_config: dict[str, Any], hostile_folder: Path
) -> None:
    basic_config["sources"]["images"]["path"] = str(hostile_folder)
    server = start_server(basic_config)
    assert read_all(server.address, "train") == 3
    metrics = server.metrics()
    families = {family.name: family for family in text_string_to_metric_families(metrics)}
    assert sum(sample.value for sample in families["headrace_sample_errors"].samples if sample.name.endswith("_total")) >= 3
    assert not has_control_bytes(metrics)

    shown = run("stats", "--address", server.address)
    assert not has_control_bytes(shown)
    assert len(json.loads(shown)["streams"]["train"]["bad_samples"]["first"]) == 3
    for verb in (["ls"], ["health"], ["check", str(server.config), "--all"]):
        assert not has_control_bytes(run(*verb, *(["--address", server.address] if verb[0] != "check" else []))), verb

    page = http_get(server.metrics_url + "/api/v1/status")
    assert not has_control_bytes(page) and len(page.splitlines()) == 1
    assert "bad sample" in json.dumps(json.loads(page))


def test_names_of_files_forge_no_line_of_a_clients_error(
    start_server: ServerFactory, quiet_config: dict[str, Any], hostile_folder: Path
) -> None:
    quiet_config["sources"]["images"]["path"] = str(hostile_folder)
    quiet_config["streams"]["train"]["on_error"] = "fail"
    server = start_server(quiet_config)
    with headrace.Loader(server.address, stream="train") as loader, pytest.raises(headrace.errors.StreamFailed) as failed:
        for _ in range(3):
            list(loader)
    assert not has_control_bytes(str(failed.value))
    assert all(line.startswith("    ") for line in str(failed.value).splitlines()[1:]), "a name begins no line"
    listed = run("ls", "--address", server.address)
    assert not has_control_bytes(listed) and not re.search("^2026-01-01T", listed, re.MULTILINE)
