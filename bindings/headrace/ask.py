"""Requests to a running server."""

from __future__ import annotations

import json
import os
from typing import Any

from ._arguments import connect, text, whole
from .errors import InvalidArgument
from .types import Sample, StreamInfo


def streams(address: str | os.PathLike[str] | None = None, *, timeout: float = 10.0) -> list[StreamInfo]:
    """The streams of a server."""
    return [StreamInfo.from_dict(entry) for entry in connect(address, timeout).streams()]


def sample(address: str | os.PathLike[str] | None = None, stream: str = "", epoch: int = 0, index: int = 0, *, timeout: float = 10.0) -> Sample:
    """The sample at position `index` of an epoch's order, and the parameters that were drawn for it. The server builds it for this call."""
    if stream == "":
        raise InvalidArgument("sample() needs a stream's name: headrace.sample(stream='train', epoch=0, index=0); the address, which comes first, is optional")
    answer = connect(address, timeout).sample(
        text("stream", stream), whole("epoch", epoch, most=2**63 - 1), whole("index", index, most=2**63 - 1)
    )
    return Sample.from_dict(answer)


def stats(address: str | os.PathLike[str] | None = None, *, timeout: float = 10.0) -> dict[str, Any]:
    """A server's statistics: clients, slots, counters."""
    answer: dict[str, Any] = json.loads(connect(address, timeout).stats())
    return answer


def cursors(address: str | os.PathLike[str] | None = None, stream: str = "", group: str = "", *, timeout: float = 10.0) -> dict[str, Any]:
    """The positions of a group's ranks."""
    if stream == "" or group == "":
        raise InvalidArgument("cursors() needs a stream and a group: headrace.cursors(stream='train', group='job'); the address, which comes first, is optional")
    answer: dict[str, Any] = json.loads(connect(address, timeout).cursors(text("stream", stream), text("group", group)))
    return answer


def drain(address: str | os.PathLike[str] | None = None, *, timeout: float = 10.0) -> None:
    """Asks the server to finish and exit: it grants no further batches, and waits for leases."""
    connect(address, timeout).drain()
