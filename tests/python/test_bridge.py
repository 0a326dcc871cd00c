"""Rows that a bridge has made elsewhere: each consumer receives the bytes of a lone server, whatever becomes of the bridge."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
import pytest
from bridging import NODE, Making
from conftest import ServerFactory
from headrace._bridge import Bridge
from headrace.errors import DatasetInvalid, ServerUnreachable
from running import Process, Server, wait_until

EPOCHS = 4


def digests(address: str, client: str = "a", at_batch: Callable[[int], object] = lambda count: None) -> list[str]:
    """The digest of each epoch. at_batch is called with the number of batches received before each."""
    found, count = [], 0
    with headrace.Loader(address, stream="train", client=client) as loader:
        for epoch in range(EPOCHS):
            loader.set_epoch(epoch)
            digest = headrace.Digest()
            for batch in loader:
                at_batch(count)
                digest.add(batch)
                count += 1
            found.append(digest.hexdigest())
    return found


def made_elsewhere(address: str) -> int:
    return sum(int(each["samples"]) for each in nodes(address).values())


def nodes(address: str) -> dict[str, dict[str, Any]]:
    return {each["node"]: each for each in headrace.stats(address)["bridge"]["nodes"]}


def read_until(server: Server, right: list[str], true: Callable[[], Any], what: str) -> None:
    """Reads all epochs again and again: a server that is fast enough itself needs the bridge only sometimes."""

    def read() -> Any:
        assert digests(server.address) == right
        return true()

    wait_until(read, what)


@pytest.fixture
def right(start_server: ServerFactory, quiet_config: dict[str, Any]) -> list[str]:
    """The digests of a server without a bridge."""
    return digests(start_server(quiet_config).address)


@pytest.fixture
def server(start_server: ServerFactory, quiet_config: dict[str, Any], right: list[str]) -> Server:
    return start_server(quiet_config)


def test_two_consumers_receive_a_lone_server_s_bytes(server: Server, right: list[str]) -> None:
    with Making(server.address, server.config) as making:
        other: list[list[str]] = []
        ended = threading.Event()

        def second() -> None:
            while not ended.is_set():
                other.append(digests(server.address, "b"))

        thread = threading.Thread(target=second)
        thread.start()
        try:
            read_until(server, right, lambda: made_elsewhere(server.address), "rows made elsewhere")
        finally:
            ended.set()
            thread.join(60)
        assert other and all(each == right for each in other)
        found = nodes(server.address)[NODE]
        assert found["samples"] > 0 and found["received_bytes"] > 0 and found["refused"] is None
        assert making.most_open <= 4 and not making.lost.is_set()
        wait_until(lambda: len(making.released) == len(making.orders), "the release of each order")
        assert sorted(making.released) == sorted({order.id for order in making.orders})


def test_the_limit_holds_and_can_be_zero(server: Server, right: list[str]) -> None:
    with Making(server.address, server.config, most=1) as making:
        read_until(server, right, lambda: making.orders, "an order")
        assert making.most_open == 1
        making.bridge.limit(0)
        wait_until(lambda: len(making.released) == len(making.orders), "the release of each order")
        before = len(making.orders)
        assert digests(server.address) == right
        assert len(making.orders) <= before + 1  # one may have been under way


def test_a_bridge_that_is_killed_costs_nothing_and_another_one_may_come(server: Server, right: list[str], tmp_path: Path) -> None:
    program = [sys.executable, str(Path(__file__).with_name("bridging.py")), server.address, str(server.config)]
    first = Process(program, tmp_path / "first.log")
    wait_until(lambda: headrace.stats(server.address)["bridge"]["connected"], "the bridge")
    more: list[Process] = []

    def at_batch(count: int) -> None:
        if count == 5:
            first.kill()
        if count == 12:
            wait_until(lambda: not headrace.stats(server.address)["bridge"]["connected"], "the end of the bridge")
            more.append(Process(program, tmp_path / "second.log"))
            wait_until(lambda: headrace.stats(server.address)["bridge"]["connected"], "the next bridge")

    try:
        read_until(server, right, lambda: made_elsewhere(server.address), "rows made elsewhere")
        assert digests(server.address, at_batch=at_batch) == right
        before = made_elsewhere(server.address)
        read_until(server, right, lambda: made_elsewhere(server.address) > before, "rows of the second bridge")
    finally:
        for each in (first, *more):
            each.kill()


def test_wrong_bytes_are_refused_and_never_delivered(server: Server, right: list[str]) -> None:
    def wrong(batch: Any) -> list[Any]:
        batch[0][...] ^= 1
        return list(batch)

    with Making(server.address, server.config, how=wrong) as making:
        read_until(server, right, lambda: making.refused, "the refusal")
        node, why = making.refused[0]
        assert node == NODE and why
        assert nodes(server.address)[NODE]["refused"]


def test_failed_orders_are_made_by_the_server(server: Server, right: list[str]) -> None:
    with Making(server.address, server.config, how=lambda batch: 'no\n disk \x00 "here"' * 300) as making:
        read_until(server, right, lambda: headrace.stats(server.address)["bridge"]["failed"], "a failed order")
        assert making.orders and not making.lost.is_set()


def test_a_client_that_reads_nothing_does_not_end_the_orders(start_server: ServerFactory, quiet_config: dict[str, Any], right: list[str]) -> None:
    quiet_config["streams"]["train"]["sharing"] = {"window": "64KB"}
    server = start_server(quiet_config)
    with headrace.Loader(server.address, stream="train", client="idle") as idle:
        next(iter(idle))
        assert digests(server.address) == right  # the window is full of rows that the idle client needs
        with Making(server.address, server.config) as making:
            read_until(server, right, lambda: len(making.orders) > 20, "orders")


def test_orders_that_nobody_makes_are_late(server: Server, right: list[str]) -> None:
    with Making(server.address, server.config, how=lambda batch: None) as making:
        read_until(server, right, lambda: making.orders, "an order")
        order = wait_until(lambda: making.released, "a release")[0]
        assert making.bridge.failed(order, NODE, "too late") is False


def test_rows_of_another_shape_are_named_and_not_sent(server: Server, right: list[str]) -> None:
    found: set[str] = set()

    def shapeless(batch: Any) -> str:
        order = making.current
        assert order is not None
        for fields in ([batch[0][:-1], batch[1]], [batch[0]], [batch[0], batch[1].astype("int32")], [list(batch[0]), batch[1]]):
            try:
                making.bridge.made(order.id, NODE, 0, fields, batch.sample_index, batch.replaced)
            except DatasetInvalid as error:
                found.add(error.message.replace(f"({order.rows}", "(N").replace(f"({order.rows - 1}", "(M"))
        return "shapes"

    with Making(server.address, server.config, how=shapeless) as making:
        read_until(server, right, lambda: len(found) == 4, "four errors")
    assert found == {
        "stream `train`, field `image`: expected uint8 (N, 3, 32, 32), found uint8 (M, 3, 32, 32)",
        "stream `train`: expected 2 fields, found 1",
        "stream `train`, field `label`: expected int64 (N,), found int32 (N,)",
        "stream `train`, field `image`: expected uint8 (N, 3, 32, 32), found list",
    }


def test_a_second_bridge_is_refused(server: Server) -> None:
    with Making(server.address, server.config), pytest.raises(headrace.Error, match="another bridge"):
        Making(server.address, server.config)


def test_the_owner_learns_of_the_server_s_end_and_connects_again(
    tmp_path: Path, start_server: ServerFactory, quiet_config: dict[str, Any], right: list[str]
) -> None:
    config = start_server(quiet_config).config
    with headrace.serve(config, restart=True, server__directory=str(tmp_path / "again")) as server:
        making = [Making(server.address, config)]

        def at_batch(count: int) -> None:
            if count == 10:
                server._running().kill()
                assert making[0].lost.wait(30)
                making.append(Making(server.address, config))

        assert digests(server.address, at_batch=at_batch) == right
        assert server.restarts == 1
        for each in making:
            each.bridge.close()


def test_without_a_server_it_says_so(tmp_path: Path) -> None:
    nothing: Any = lambda *what: None  # noqa: E731
    with pytest.raises(ServerUnreachable, match=r"bridge\.sock: no server takes bridges there"):
        Bridge(str(tmp_path), 1, on_order=nothing, on_release=nothing, on_refused=nothing, on_lost=nothing, timeout=0.3)
