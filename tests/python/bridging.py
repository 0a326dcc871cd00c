"""A bridge whose own process makes the rows: in a test, or as a program that the test may kill: python bridging.py ADDRESS CONFIG."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

import headrace
from headrace._bridge import Bridge, Order
from headrace.errors import ServerLost

NODE = "node-1"


class Making:
    """Makes what the server orders with one thread, and keeps what happens in lists.

    how   called with the batch of an order: returns its fields, None to leave the order alone, or a str with which it failed
    """

    def __init__(self, address: str, config: Any, most: int = 4, how: Callable[[Any], Any] = list, timeout: float = 30) -> None:
        self.orders: list[Order] = []
        self.released: list[int] = []
        self.refused: list[tuple[str, str]] = []
        self.lost = threading.Event()
        self.most_open = 0
        self.current: Order | None = None  # that `how` is called for
        self._open: set[int] = set()
        self._how = how
        self._maker = headrace.Maker(config, "train", output="numpy")
        self._queue: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.bridge = Bridge(
            address, most, on_order=self._ordered, on_release=self._release, on_refused=lambda *what: self.refused.append(what),
            on_lost=lambda _: self.lost.set(), timeout=timeout,
        )  # fmt: skip
        self._thread.start()

    def _ordered(self, order: Order) -> None:
        self.orders.append(order)
        self._open.add(order.id)
        self.most_open = max(self.most_open, len(self._open))
        self._queue.put(order)

    def _release(self, order: int) -> None:
        self.released.append(order)
        self._open.remove(order)

    def _run(self) -> None:
        while (order := self._queue.get()) is not None:
            batch = self._maker.rows(order.epoch, order.first, order.rows)
            self.current = order
            made = self._how(batch)
            try:
                if isinstance(made, str):
                    self.bridge.failed(order.id, NODE, made)
                elif made is not None:
                    self.bridge.made(order.id, NODE, 100, made, batch.sample_index, batch.replaced)
            except ServerLost:
                return

    def __enter__(self) -> Making:
        return self

    def __exit__(self, *_: object) -> None:
        self.bridge.close()
        self._queue.put(None)
        self._thread.join(10)


if __name__ == "__main__":
    Making(sys.argv[1], sys.argv[2]).lost.wait(120)
