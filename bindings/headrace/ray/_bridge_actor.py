"""The actor beside a server that has its orders made by maker actors on other nodes."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from .._bridge import Bridge
from ..errors import Error
from ._makers import Makers
from ._remote import Plan

_TICK = 0.25  # seconds
_CONNECT = 10.0  # seconds of one attempt to reach the server
_PAUSE = 0.5  # seconds between two attempts
_logger = logging.getLogger("headrace")


class BridgeActor:
    """Connects to the server of its node, again and again, and has its orders made. If its process dies, its makers end with it, the server
    makes all rows, and Ray starts the actor again.

    One thread does all of the work: it takes events from the bridge's thread and from Ray's.
    """

    def __init__(self, plan: Plan, address: str) -> None:
        self._address = address
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._bridge: Bridge | None = None
        self._closing = False
        self._connections = 0
        self._lost = ""
        self._makers = Makers(plan, self._events.put)
        self._thread = threading.Thread(target=self._run, name="headrace-bridge-work", daemon=True)
        self._thread.start()
        atexit.register(self._leave)

    def _run(self) -> None:
        while not self._closing:
            try:
                if self._bridge is None:
                    self._connect()
                self._work()
            except Error as error:
                self._end_session(str(error))
                time.sleep(_PAUSE)
            except Exception:
                _logger.exception("headrace.ray: the bridge failed; it connects again")
                self._end_session("the bridge failed")
                time.sleep(_PAUSE)
        self._makers.close()
        if self._bridge is not None:
            self._bridge.close()

    def _connect(self) -> None:
        session: list[Bridge] = []

        def later(event: Callable[[], None]) -> None:
            # The next session numbers its orders from 1 again, so an event that comes after the end of its own is dropped.
            self._events.put(lambda: event() if self._bridge in session else None)

        bridge = Bridge(
            self._address,
            0,
            on_order=lambda order: later(lambda: self._makers.order(order)),
            on_release=lambda order: later(lambda: self._makers.release(order)),
            on_refused=lambda node, why: later(lambda: self._makers.refuse(node, f"its rows were wrong: {why}")),
            on_lost=lambda why: later(lambda: self._end_session(why)),
            timeout=_CONNECT,
        )
        session.append(bridge)
        self._bridge = bridge
        self._connections += 1
        self._lost = ""
        self._makers.connected(bridge)
        _logger.info("headrace.ray: connected to the server in %s", self._address)

    def _end_session(self, why: str) -> None:
        """Forgets the server's orders. The makers stay, for the next server."""
        bridge, self._bridge = self._bridge, None
        if bridge is not None:
            _logger.warning("headrace.ray: lost the server in %s: %s; the bridge connects again", self._address, why)
            self._makers.disconnected()
            bridge.close()
        self._lost = why

    def _work(self) -> None:
        end = time.monotonic() + _TICK
        while (left := end - time.monotonic()) > 0 and self._bridge is not None:
            with contextlib.suppress(queue.Empty):
                self._events.get(timeout=left)()
        self._makers.tick()

    # --- called by start() and its handle

    def stats(self) -> dict[str, Any]:
        """Counts since this actor's process began."""
        about = {"bridge_pid": os.getpid(), "connected": self._bridge is not None, "connections": self._connections, "lost": self._lost}
        return {**about, **self._makers.stats()}

    def stop(self) -> None:
        """Ends the makers and the connection."""
        self._leave()

    def _leave(self) -> None:
        # Also at the end of the process, which would abort if the thread still called C++ then.
        self._closing = True
        self._thread.join(_CONNECT + 10)
