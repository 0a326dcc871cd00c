"""One rank, or client name, has one loader, and a ring has so many. Those of this process that stand idle after a loop make way: a notebook's
cell that is run twice, a Trainer that still refers to its last one, a cycle that nobody refers to."""

from __future__ import annotations

import atexit
import gc
import time
import weakref
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from .errors import ClientNameTaken, Error, RankTaken, RingFull

S = TypeVar("S")


class Place(NamedTuple):
    """What a loader takes on a server."""

    address: str
    stream: str
    group: str
    rank: int
    client: str


class Holder(Protocol):
    """Of a Loader: what is needed to let it make way."""

    _seat: Place

    def _holds_place(self) -> bool: ...
    def _running(self) -> object | None: ...
    def _park(self) -> bool:
        """Gives its place back if it stands idle; says whether it has."""

    def close(self) -> None: ...


_attached: weakref.WeakSet[Holder] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """While there is still a Python for threads that give back its memory."""
    for loader in _attached.copy():
        loader.close()


def take_place(loader: Holder, place: Place, open_stream: Callable[[], S]) -> S:
    """What `open_stream` gives. Idle loaders of this process that stand in its way leave first."""
    loader._seat = place
    end = 0.0
    while True:
        try:
            opened = open_stream()
            _attached.add(loader)
            return opened
        except (RankTaken, ClientNameTaken, RingFull) as error:
            refused = error.with_traceback(None)  # which would hold this frame, and by it the loader
        # The server hears of one that left by a socket's end: until then it refuses.
        if time.monotonic() > end:
            if not _make_way(loader, refused):
                raise _told(loader, refused)
            end = time.monotonic() + 1
        time.sleep(0.02)


def _make_way(loader: Holder, refused: Error) -> bool:
    """Whether one has left."""
    if not _in_the_way(loader, refused):  # the holders belong to other processes
        return False
    there = len(_attached)
    gc.collect()
    return len(_attached) < there or any(other._park() for other in _in_the_way(loader, refused))


def _in_the_way(loader: Holder, refused: Error) -> list[Holder]:
    mine = loader._seat
    others = [other for other in _attached.copy() if other is not loader and other._holds_place()]
    others = [other for other in others if (other._seat.address, other._seat.stream) == (mine.address, mine.stream)]
    if isinstance(refused, RankTaken):
        return [other for other in others if (other._seat.group, other._seat.rank) == (mine.group, mine.rank)]
    if isinstance(refused, ClientNameTaken):
        return [other for other in others if other._seat.client == mine.client]
    return others


def _told(loader: Holder, refused: Error) -> Error:
    """Adds which loaders of this process are in the way: the server knows only processes."""
    holders = _in_the_way(loader, refused)
    if not holders:
        return refused
    if isinstance(refused, RingFull):
        return RingFull(
            f"{refused.message}, or close() what is done with: {len(holders)} are of Loaders of this process that are in a loop, or before their first"
        )
    (holder, *_), name = holders, "group" if isinstance(refused, RankTaken) else "client"
    state = "has not been iterated over yet" if holder._running() is None else "is in a loop (somebody holds its iterator)"
    return type(refused)(
        f"{refused.message}. This process has a Loader that was made for it before and {state}: "
        f"close() it first, or `del` it and its iterator; two at once take a `{name}` each"
    )
