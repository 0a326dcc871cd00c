"""The bridge's actor, with a server and makers of the test's own."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from conftest import wait_until
from headrace.errors import ServerLost
from headrace.ray import _bridge_actor
from headrace.ray._bridge_actor import BridgeActor

# Each session's orders, as its server numbers them. Those of the first one have all come when it ends.
SESSIONS = [["first's 1", "first's 2"], ["second's 1"]]


class FakeBridge:
    sessions = 0

    def __init__(self, address: str, most: int, **on: Any) -> None:
        number, FakeBridge.sessions = FakeBridge.sessions, FakeBridge.sessions + 1
        for order in SESSIONS[number]:
            on["on_order"](order)
        if number == 0:
            on["on_refused"]("node", "other values")

    def close(self) -> None: ...


class FakeMakers:
    def __init__(self, *_: Any) -> None:
        self.orders: list[str] = []
        self.refused: list[str] = []
        self.closed = threading.Event()

    def order(self, order: str) -> None:
        self.orders.append(order)
        if len(self.orders) == 1:
            raise ServerLost("the server ended")

    def refuse(self, node: str, _: str) -> None:
        self.refused.append(node)

    def connected(self, _: Any) -> None: ...
    def disconnected(self) -> None: ...
    def tick(self) -> None: ...

    def close(self) -> None:
        self.closed.set()


def test_events_of_a_session_that_ended_do_not_reach_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_bridge_actor, "Bridge", FakeBridge)
    monkeypatch.setattr(_bridge_actor, "Makers", FakeMakers)
    actor = BridgeActor(None, "/somewhere")  # type: ignore[arg-type]
    makers: Any = actor._makers
    wait_until(lambda: "second's 1" in makers.orders, "the second session's order")
    actor.stop()
    assert makers.orders == ["first's 1", "second's 1"]
    assert makers.refused == []
    assert makers.closed.is_set()
