"""Questions to a running server."""

from __future__ import annotations

import json
from typing import Any

from ._headrace import connect
from .types import Sample, StreamInfo


def streams(address: str | None = None, *, timeout: float = 10.0) -> list[StreamInfo]:
    """The streams that a server has."""
    return [StreamInfo.from_dict(entry) for entry in connect(address or "", timeout).streams()]


def sample(address: str | None, stream: str, epoch: int, index: int, *, timeout: float = 10.0) -> Sample:
    """The sample at position `index` of an epoch's order, made anew, with its drawn parameters."""
    return Sample.from_dict(connect(address or "", timeout).sample(stream, epoch, index))


def stats(address: str | None = None, *, timeout: float = 10.0) -> dict[str, Any]:
    """The server's figures: clients, slots, counters."""
    answer: dict[str, Any] = json.loads(connect(address or "", timeout).stats())
    return answer


def cursors(address: str | None, stream: str, group: str, *, timeout: float = 10.0) -> dict[str, Any]:
    """Where each rank of a group is."""
    answer: dict[str, Any] = json.loads(connect(address or "", timeout).cursors(stream, group))
    return answer


def drain(address: str | None = None, *, timeout: float = 10.0) -> None:
    """Asks the server to finish and exit."""
    connect(address or "", timeout).drain()
