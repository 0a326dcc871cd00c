"""clientlib/troubleshooting.md: every error has an entry there, with a message as this build writes it."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
import pytest
import yaml
from conftest import ServerFactory
from images import write_images
from markdown_it import MarkdownIt
from running import ROOT, headrace_binary

PAGE = ROOT / "clientlib/troubleshooting.md"
NAMES = re.findall(r'"([A-Z_]+)"', (ROOT / "clientlib/base/error.cpp").read_text())


def entries() -> dict[str, list[Any]]:
    """Name -> the tokens below its heading."""
    found: dict[str, list[Any]] = {}
    name, tokens = "", MarkdownIt().parse(PAGE.read_text())
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            name = tokens[at + 1].content.strip("`") if token.tag == "h2" else ""
        elif name:
            found.setdefault(name, []).append(token)
    return found


def message(name: str) -> str:
    (fence,) = (token for token in entries()[name] if token.type == "fence" and token.info == "text")
    return str(fence.content).strip()


def test_every_error_has_an_entry_and_every_entry_is_an_error() -> None:
    assert [name for name in entries() if re.fullmatch("[A-Z_]+", name)] == NAMES
    assert len(NAMES) == 30


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_says_what_it_means_what_to_do_and_shows_a_message(name: str) -> None:
    text = "\n".join(token.content for token in entries()[name])
    if name == "ATTACH_LOCAL_ONLY":
        assert "reserved" in text
        return
    assert "**Do**" in text
    assert message(name).startswith(f"{name}: ")


def masked(text: str) -> str:
    """Without what differs from run to run: numbers, paths, names of programs."""
    text = re.sub(r"(?<![\w`])/[\w./-]+", "PATH", text)
    text = re.sub(r"\((MemAvailable|[^()]*(cgroup|RLIMIT|ulimit)[^()]*)\)", "(LIMIT)", text)
    text = re.sub(r"pytest-\w+-\w+|python-\w+-\w+|__main__-\w+-\w+", "CLIENT", text)
    return " ".join(re.sub(r"\d+(\.\d+)?", "N", text).split())


def check(*arguments: str) -> str:
    done = subprocess.run([headrace_binary(), *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode
    return done.stderr.removeprefix("headrace: ")


def raised(call: Callable[[], object]) -> str:
    with pytest.raises(headrace.Error) as error:
        call()
    return str(error.value)


def served(start_server: ServerFactory, config: dict[str, Any], **stream: Any) -> str:
    config["streams"]["train"] |= stream
    return start_server(config).address


Case = Callable[[dict[str, Any], ServerFactory, Path], str]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__.upper()] = function
    return function


@case
def config_invalid(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    config["streams"]["train"]["batchsize"] = config["streams"]["train"].pop("batch_size")
    (folder / "train.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    return check("check", str(folder / "train.yaml"))


@case
def invalid_argument(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    return raised(lambda: headrace.Loader(stream="train", prefetch=0))


@case
def not_enough_memory(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    config["streams"]["train"] |= {"batch_size": 60, "transforms": [{"random_resized_crop": 6144}], "output": {"dtype": "float32"}, "ring": {"max_leases": 60}}
    (folder / "train.yaml").write_text(yaml.safe_dump(config))
    return check("check", str(folder / "train.yaml")).strip().split("\n")[-1]


@case
def directory_in_use(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    address = served(start, config)
    (folder / "train.yaml").write_text(yaml.safe_dump(config))
    return check("serve", str(folder / "train.yaml"), "--set", f"server.directory={address}").strip().split("\n")[-1]


@case
def dataset_invalid(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    config["sources"]["images"]["path"] = "/data/fotos"
    (folder / "train.yaml").write_text(yaml.safe_dump(config))
    return check("check", str(folder / "train.yaml"))


def damaged(config: dict[str, Any], folder: Path, count: int) -> None:
    images = write_images(folder / "damaged", classes=2, per_class=10)
    for number in range(count):
        (images / f"class_0/{number:04d}.jpg").write_bytes(b"no image")
    config["sources"]["images"]["path"] = str(images)


@case
def stream_failed(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    damaged(config, folder, 1)
    loader = headrace.Loader(served(start, config, on_error="fail"), stream="train")
    return raised(lambda: list(loader))


@case
def too_many_bad_samples(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    damaged(config, folder, 3)
    loader = headrace.Loader(served(start, config, batch_size=20), stream="train")
    return raised(lambda: list(loader)).partition("restarted: ")[2]


@case
def bad_sample(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    return stream_failed(config, start, folder).partition("restarted: ")[2]


@case
def server_unreachable(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    return raised(lambda: headrace.Loader("/run/headrace-nowhere", stream="train", timeout=0.2))


@case
def no_such_stream(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    address = served(start, config)
    return raised(lambda: headrace.Loader(address, stream="trian"))


@case
def client_name_taken(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    address = served(start, config)
    with headrace.Loader(address, stream="train", client="resnet"):
        return raised(lambda: headrace.Loader(address, stream="train", client="resnet"))


@case
def rank_taken(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    address = served(start, config, delivery="shard")
    program = "import headrace, sys, time; l = headrace.Loader(sys.argv[1], stream='train', rank=0, world_size=2, client='first'); print(1, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program, address], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        try:
            return raised(lambda: headrace.Loader(address, stream="train", rank=0, world_size=2))
        finally:
            other.kill()


@case
def group_mismatch(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    address = served(start, config, delivery="shard")
    with headrace.Loader(address, stream="train", rank=0, world_size=2):
        return raised(lambda: headrace.Loader(address, stream="train", rank=1, world_size=4))


@case
def fingerprint_mismatch(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    address = served(start, config)
    with headrace.Loader(address, stream="train") as loader:
        state = loader.state_dict()
    config["streams"]["train"]["seed"] = 8
    other = start(config).address
    return raised(lambda: headrace.Loader(other, stream="train", state=state))


@case
def ring_full(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    address = served(start, config, ring={"max_clients": 1})
    program = "import headrace, sys, time; l = headrace.Loader(sys.argv[1], stream='train'); print(1, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program, address], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        try:
            return raised(lambda: headrace.Loader(address, stream="train"))
        finally:
            other.kill()


@case
def timeout(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    address = served(start, config, sharing={"wait_for": 2})
    with headrace.Loader(address, stream="train", batch_timeout=0.5) as loader:
        return raised(lambda: next(iter(loader)))


@case
def server_lost(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    with headrace.serve(_file(config, folder)) as server, headrace.Loader(server.address, stream="train", reconnect_timeout=0.5) as loader:
        loop = iter(loader)
        next(loop)
        server.stop()
        return raised(lambda: [None for _ in loop])


def _file(config: dict[str, Any], folder: Path) -> Path:
    file = folder / "train.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


@case
def lease_fenced(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    config["server"]["evict_after"] = "1s"
    address = served(start, config)
    program = (
        "import headrace, sys\nloader = headrace.Loader(sys.argv[1], stream='train')\nloop = iter(loader)\nnext(loop)\nprint('ready', flush=True)\nsys.stdin.readline()\n"
        "try:\n    for _ in loop: pass\nexcept headrace.errors.LeaseFenced as error:\n    print(error, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout and child.stdin and child.stdout.readline()
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(2.5)
        os.kill(child.pid, signal.SIGCONT)
        child.stdin.write("\n")
        child.stdin.flush()
        return child.stdout.read()


def _in_child(loader: Any, sent: Any) -> None:
    try:
        next(iter(loader))
    except headrace.Error as error:
        sent.send(str(error))


@case
def forked(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    address = served(start, config)
    with headrace.Loader(address, stream="train") as loader:
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=_in_child, args=(loader, there))
        child.start()
        said = str(here.recv())
        child.join()
        return said


@case
def iterator_busy(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    address = served(start, config)
    with headrace.Loader(address, stream="train") as loader:
        return raised(lambda: list(zip(loader, loader, strict=True)))


@case
def closed(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    loader = headrace.Loader(served(start, config), stream="train")
    loader.close()
    return raised(lambda: next(iter(loader)))


@case
def permission_denied(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    address = served(start, config)
    Path(address).chmod(0o777)
    return raised(lambda: headrace.Loader(address, stream="train", timeout=1))


@case
def environment(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    with socket.create_server(("127.0.0.1", 0)) as other:
        config["server"] = {"directory": str(folder / "run"), "metrics": {"port": other.getsockname()[1]}}
        return check("serve", str(_file(config, folder))).strip().split("\n")[-1].removeprefix("headrace: ")


@case
def draining(config: dict[str, Any], start: ServerFactory, folder: Path) -> str:
    address = served(start, config)
    with headrace.Loader(address, stream="train", zero_copy=True) as loader:
        held = next(iter(loader))
        headrace.drain(address)
        said = raised(lambda: headrace.Loader(address, stream="train", client="late"))
        del held
    return said


def sources() -> str:
    """The texts of all literals, as the compiler joins them."""
    files = [file for folder in ("server", "clientlib", "bindings/src") for file in (ROOT / folder).rglob("*") if file.suffix in (".cpp", ".h")]
    return re.sub(r'"\s*"', "", "".join(file.read_text() for file in files))


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(CASES) - {"ATTACH_LOCAL_ONLY"}))
def test_the_message_is_in_the_sources(name: str) -> None:
    """For errors that no test provokes: the fixed parts of the message, between values."""
    parts = [part for part in re.split(r"[\d.]{2,}|\d|\S*/\S*|std::\w+", message(name).removeprefix(f"{name}: ")) if len(part) > 12]
    assert parts
    known = re.sub(r"\{[\w:.]*\}", "", sources())
    assert [part for part in parts if part.strip() not in known] == []


@pytest.mark.parametrize("name", CASES)
def test_the_message_is_one_that_this_build_writes(name: str, quiet_config: dict[str, Any], start_server: ServerFactory, tmp_path: Path) -> None:
    said = CASES[name](quiet_config, start_server, tmp_path)
    assert masked(message(name)) == masked(said), said
