"""Connections between a live client and a live server that are cut, delayed or reset: no batch is lost or comes twice."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import headrace
import pytest
from conftest import ServerFactory
from proxy import Proxy
from running import wait_until

CUTS = 200 if os.environ.get("HEADRACE_STRESS") else 12


def epoch(loader: headrace.Loader, pause: float = 0.0) -> tuple[list[int], str]:
    """The batches' numbers and the digest of all."""
    digest, numbers = headrace.Digest(), []
    for batch in loader:
        digest.add(batch)
        numbers.append(batch.number)
        time.sleep(pause)
    return numbers, digest.hexdigest()


@pytest.fixture
def address(start_server: ServerFactory, quiet_config: dict[str, Any]) -> str:
    """30 batches in an epoch."""
    quiet_config["streams"]["train"]["batch_size"] = 2
    return str(start_server(quiet_config).address)


def clients(address: str) -> list[str]:
    return [client["client"] for client in headrace.stats(address)["streams"]["train"]["clients"]]


@pytest.mark.timeout(1800)
def test_connections_that_are_cut_again_and_again_cost_no_batch(address: str, tmp_path: Path) -> None:
    with headrace.Loader(address, stream="train") as loader:
        expected = [epoch(loader) for _ in range(3)]
    moment = random.Random(38)
    done = threading.Event()
    cut = 0
    with Proxy(address, tmp_path / "proxy") as proxy:

        def cutter() -> None:
            nonlocal cut
            for _ in range(CUTS):
                time.sleep(moment.uniform(0, 0.15))
                cut += proxy.cut()
            done.set()

        with headrace.Loader(proxy.address, stream="train", client="cut") as loader:
            cutting = threading.Thread(target=cutter)
            cutting.start()
            passes = 0
            while not done.is_set() or passes == 0:
                for number in range(3):
                    loader.set_epoch(number)
                    assert epoch(loader, 0.003) == expected[number], f"pass {passes}, epoch {number}"
                passes += 1
            cutting.join()
            assert cut >= CUTS / 2 and proxy.connections >= CUTS / 2
    wait_until(lambda: not clients(address), "the session's end")


def test_an_answer_that_is_cut_in_the_middle_is_asked_for_again(address: str, tmp_path: Path) -> None:
    """At each byte of the answers from the handshake on: while attaching, while asking, and while attaching again."""
    with headrace.Loader(address, stream="train") as loader:
        expected = epoch(loader)
    with Proxy(address, tmp_path / "proxy") as proxy:
        for after in (0, 1, 63, 64, 65, 200):
            proxy.cut_after = after
            with headrace.Loader(proxy.address, stream="train", timeout=20) as loader:
                proxy.cut_after = after
                assert [stream.name for stream in headrace.streams(proxy.address, timeout=20)] == ["train"]
                proxy.cut_after = after
                proxy.cut()
                assert epoch(loader) == expected, f"cut after {after} bytes"
            wait_until(lambda: not clients(address), "the session's end")


def test_delayed_answers_only_delay(address: str, tmp_path: Path) -> None:
    with headrace.Loader(address, stream="train") as loader:
        expected = epoch(loader)
    with Proxy(address, tmp_path / "proxy") as proxy:
        proxy.delay = 0.15
        with headrace.Loader(proxy.address, stream="train", timeout=30) as loader:
            assert epoch(loader) == expected
            proxy.cut()
            loader.set_epoch(0)
            assert epoch(loader) == expected
    wait_until(lambda: not clients(address), "the session's end")


def test_a_cut_session_frees_its_leases_and_is_attached_once(address: str, tmp_path: Path) -> None:
    with (
        Proxy(address, tmp_path / "proxy") as proxy,
        headrace.Loader(proxy.address, stream="train", client="cut", zero_copy=True) as loader,
    ):
        iterator = iter(loader)
        held: Any = next(iterator)
        before = held[0].copy()
        for expected in range(1, 6):
            proxy.cut()
            wait_until(lambda: headrace.stats(address)["streams"]["train"]["slots"]["leased"] == 0, "the leases' end")
            assert (held[0] == before).all(), "the view of a batch stays as it was"
            del held
            held = next(iterator)
            before = held[0].copy()
            assert held.number == expected, "the next batch, neither the same again nor a later one"
            assert clients(address) == ["cut"]
