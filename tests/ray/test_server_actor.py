"""The actor that owns a server, in this process, with a real keeper and server."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import headrace
import pytest
from conftest import wait_until
from headrace.errors import Closed, ConfigInvalid
from headrace.ray import _server_actor
from headrace.ray._remote import Plan
from headrace.ray._server_actor import ServerActor


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which keepers have theirs."""
    folder = tempfile.mkdtemp(prefix="hr-", dir="/tmp")
    monkeypatch.setattr(tempfile, "tempdir", folder)
    context = SimpleNamespace(was_current_actor_reconstructed=False)
    monkeypatch.setattr(_server_actor, "ray", SimpleNamespace(get_runtime_context=lambda: context))
    monkeypatch.setattr(_server_actor, "this_node", lambda: "node")
    yield Path(folder)
    shutil.rmtree(folder)


def plan(config: Path, text: bytes = b"") -> Plan:
    return Plan(path=str(config), text=text or config.read_bytes(), changes={}, version=headrace.__version__, token="test")


def test_a_configuration_that_this_node_does_not_have_leaves_nothing(temporary: Path, config: Path) -> None:
    actor = ServerActor(plan(temporary / "elsewhere.yaml", config.read_bytes()))
    with headrace.Loader(actor.start()["address"], stream="train", output="numpy") as loader:
        assert len(next(iter(loader))[0])
    actor.stop()
    assert os.listdir(temporary) == []


def test_a_configuration_that_is_wrong_leaves_nothing(temporary: Path) -> None:
    actor = ServerActor(plan(temporary / "elsewhere.yaml", b"streams: {train: {batch: 3}}"))
    with pytest.raises(ConfigInvalid, match="config.yaml"):
        actor.start()
    actor.stop()
    assert os.listdir(temporary) == []


def test_a_stop_while_the_server_starts_ends_it(temporary: Path, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starting, begun = _server_actor._started, threading.Event()

    def slow(*about: Any) -> object:
        begun.set()
        time.sleep(0.5)
        return starting(*about)

    monkeypatch.setattr(_server_actor, "_started", slow)
    actor = ServerActor(plan(config))
    thread = threading.Thread(target=actor.start)
    thread.start()
    begun.wait(10)
    actor.stop()
    thread.join(10)
    assert os.listdir(temporary) == []
    with pytest.raises(Closed):
        actor.start()


def test_only_a_caller_starts_a_drained_server_again(temporary: Path, config: Path) -> None:
    actor = ServerActor(plan(config))
    first = actor.start()
    headrace.drain(first["address"])
    wait_until(lambda: actor.status()["drained"], "the end of the server")
    time.sleep(1.5)
    assert actor.status()["pid"] == first["pid"]
    second = actor.start()
    assert second["address"] == first["address"] and second["pid"] != first["pid"] and not second["drained"]
    actor.stop()
    assert os.listdir(temporary) == []
