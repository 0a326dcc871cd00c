"""Claims ranks for loaders. The server admits one loader for each rank and for each client name, and has a limited number of lanes. If it
refuses a loader, idle loaders of this process detach to free what the new one needs. Idle loaders remain, for example, if a notebook's cell
runs twice, if a Trainer refers to its previous loader, or in a reference cycle."""

from __future__ import annotations

import atexit
import gc
import time
import weakref
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from .errors import ClientNameTaken, Error, RankTaken, RingFull

S = TypeVar("S")


class Claim(NamedTuple):
    """A loader's claim: its rank and client name on a stream of a server."""

    address: str
    stream: str
    group: str
    rank: int
    client: str


class Claimant(Protocol):
    """The part of a Loader that claim_rank() uses."""

    _claim: Claim

    def _is_attached(self) -> bool: ...
    def _running(self) -> object | None: ...
    def _park(self) -> bool:
        """Detaches if the loader is idle, and returns whether it has."""

    def close(self) -> None: ...


_attached: weakref.WeakSet[Claimant] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Closes all loaders while the interpreter still runs: their threads drop Python objects."""
    for loader in _attached.copy():
        loader.close()


def close_idle(address: str) -> None:
    """Closes the loaders that no loop uses, before their server stops: it would wait for them."""
    for loader in _attached.copy():
        if loader._claim.address == address and loader._running() is None:
            loader.close()


def claim_rank(loader: Claimant, claim: Claim, open_stream: Callable[[], S]) -> S:
    """Returns open_stream(). If the server refuses, detaches conflicting idle loaders of this process, and retries."""
    loader._claim = claim
    end = 0.0
    while True:
        try:
            opened = open_stream()
            _attached.add(loader)
            return opened
        except (RankTaken, ClientNameTaken, RingFull) as error:
            refused = error.with_traceback(None)  # the traceback would keep this frame, and so the loader, alive
        # The server refuses until it notices that the detached loader's socket has closed.
        if time.monotonic() > end:
            if not _free_conflicting(loader, refused):
                raise _explained(loader, refused)
            end = time.monotonic() + 1
        time.sleep(0.02)


def _free_conflicting(loader: Claimant, refused: Error) -> bool:
    """Detaches or destroys a conflicting idle loader; returns whether there was one."""
    if not _conflicting(loader, refused):  # the conflicting loaders belong to other processes
        return False
    there = len(_attached)
    gc.collect()
    return len(_attached) < there or any(other._park() for other in _conflicting(loader, refused))


def _conflicting(loader: Claimant, refused: Error) -> list[Claimant]:
    mine = loader._claim
    others = [other for other in _attached.copy() if other is not loader and other._is_attached()]
    others = [other for other in others if (other._claim.address, other._claim.stream) == (mine.address, mine.stream)]
    if isinstance(refused, RankTaken):
        return [other for other in others if (other._claim.group, other._claim.rank) == (mine.group, mine.rank)]
    if isinstance(refused, ClientNameTaken):
        return [other for other in others if other._claim.client == mine.client]
    return others


def _explained(loader: Claimant, refused: Error) -> Error:
    """Adds the conflicting loaders of this process to the error, because the server knows only processes."""
    holders = _conflicting(loader, refused)
    if not holders:
        return refused
    if isinstance(refused, RingFull):
        return RingFull(
            f"{refused.message}, or close() unused Loaders: this process has {len(holders)} of the clients, each in a loop or not yet begun"
        )
    (holder, *_), name = holders, "group" if isinstance(refused, RankTaken) else "client"
    state = "has not been iterated over yet" if holder._running() is None else "is in a loop (its iterator still exists)"
    return type(refused)(
        f"{refused.message}. The holder is a Loader of this process, which {state}: close() it first, "
        f"or `del` it and its iterator; to use two at once, give each its own `{name}`"
    )
