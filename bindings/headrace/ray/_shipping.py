"""Reads samples on the trainer's node, and sends them with the orders of their rows, so that makers need no access to the data."""

from __future__ import annotations

import functools
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..errors import Error
from ..maker import Maker
from ._remote import Plan, configuration

_READERS = 8  # orders that are read at once; a thread that waits for a disk needs no CPU


class NotRead(Exception):
    """The samples of an order could not be read or sent. Its maker is not the reason."""


class Call(Future[None]):
    """A call of a maker that waits for its samples."""

    sent = 0  # bytes


def _end(call: Call, made: Future[None]) -> None:
    error = made.exception()
    if error is not None:
        call.set_exception(error)
    else:
        call.set_result(None)


class Shipping:
    """All methods are thread-safe."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._opening = threading.Lock()
        self._makers: dict[str, Maker] = {}
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="headrace-samples")

    def described(self, streams: list[str]) -> dict[str, str]:
        """What makers have to know about the sources of these streams. Opens them, which may take long. Raises headrace.Error."""
        return {name: self._maker(name).describe_source() for name in streams}

    def call(self, method: Any, key: bytes, stream: str, *rows: int) -> Call:
        """Calls a maker's method with all of these and the samples of the rows (epoch, first, count). Does not wait."""
        call = Call()
        self._readers.submit(self._send, call, method, key, stream, *rows)
        return call

    def _send(self, call: Call, method: Any, key: bytes, stream: str, *rows: int) -> None:
        try:
            samples = self._maker(stream).samples(*rows)
            call.sent = samples.nbytes
            method.remote(key, stream, *rows, samples).future().add_done_callback(functools.partial(_end, call))
        except Exception as error:
            why = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
            call.set_exception(NotRead(f"the samples were not sent: {why}"))

    def _maker(self, stream: str) -> Maker:
        with self._opening:
            makers = self._makers
            if stream not in makers:
                plan = self._plan
                os.environ.update(plan.env)
                with configuration(plan) as path:
                    # The server keeps the samples in its caches; twice would be too much memory.
                    makers[stream] = Maker(path, stream, set=plan.changes, output="numpy", caches=False)
            return makers[stream]

    def forget(self) -> None:
        """Opens the sources again, when they are needed next. Does not wait."""
        self._makers = {}

    def close(self) -> None:
        self._readers.shutdown(wait=False, cancel_futures=True)
