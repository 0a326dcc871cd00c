"""Which maker gets an order, and how many makers there should be. Nothing here knows Ray, so it can be tested without a cluster."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

ORDERS_EACH = 2  # one that a maker makes, and one that waits for it
MOST_FAILURES = 3  # in a row, before a maker is dropped
_LATE = 4  # times the seconds that a maker's orders take, after which another maker gets the order, too
_HANGS = 20  # times the seconds that a maker's orders take, after which it hangs
_LEAST_HANG = 20.0  # seconds: reads from slow storage may stop for so long
_FIRST_HANG = 120.0  # seconds for its first order
_HALF_LIFE = 10.0  # seconds of idleness after which a slow maker seems twice as fast, so that it is tried again
_WINDOW = 6.0  # seconds of orders that decide about the number of makers
_HUNGRY = 1.0  # in each of two such spans, in seconds, trainers must have waited before makers are added
_HUNGRY_PART = 0.25  # of the orders, for which a trainer waited
_PLENTY = 2  # finished batches that wait for a client, from which on it does not need a maker more
_MOST_BUSY = 0.8  # of their time, makers may be busy after one of them has been dropped

Clock = Callable[[], float]


@dataclass(eq=False)
class Member:
    """A maker that is ready. `busy`: its orders and when each was given, also those that the server has released meanwhile."""

    actor: Any
    node: str  # id
    name: str  # for people
    opened: Any = None  # what it said about itself
    clock: Clock = time.monotonic
    busy: dict[bytes, float] = field(default_factory=dict)
    rows: int = 0
    failures: int = 0  # in a row
    leaving: bool = False
    mean: float = 0.0  # seconds for an order
    _idle_since: float = 0.0

    def give(self, order: bytes) -> None:
        self.busy[order] = self.clock()

    def done(self, order: bytes, rows: int) -> None:
        """An order ended, with `rows` rows or by failing (0)."""
        begun = self.busy.pop(order, None)
        now = self.clock()
        if begun is not None and rows:
            took = now - max(begun, self._idle_since)  # not the time that it waited behind another order
            self.mean = took if self.mean == 0 else 0.7 * self.mean + 0.3 * took
            self.rows += rows
        self.failures = 0 if rows else self.failures + 1
        self._idle_since = now

    def _current(self) -> float:
        """Seconds since it began with the order that it makes now; 0: it has none."""
        return self.clock() - max(min(self.busy.values()), self._idle_since) if self.busy else 0.0

    def expected(self) -> float:
        """Seconds until one more order would be done."""
        mean = max(self.mean, self._current())
        if not self.busy:
            mean *= 0.5 ** ((self.clock() - self._idle_since) / _HALF_LIFE)
        return (len(self.busy) + 1) * mean

    def is_late(self, order: bytes) -> bool:
        """Whether it has been making the order for far longer than its orders usually take."""
        return order == next(iter(self.busy), None) and 0 < _LATE * self.mean < self._current()

    def hangs(self) -> str:
        """Why it must be dropped: an order takes far longer than its others took. Empty if none does."""
        most = max(_LEAST_HANG, _HANGS * self.mean) if self.mean else _FIRST_HANG
        return f"a maker there hangs: it has not made an order within {most:.3g} s" if self._current() > most else ""


def best(members: Iterable[Member]) -> Member | None:
    """The maker that would be done first; among makers without a history the one with the fewest orders. None if all have as many orders as
    they may have: another one would only wait there, and nobody could take it back."""
    free = [each for each in members if not each.leaving and len(each.busy) < ORDERS_EACH]
    return min(free, key=lambda each: (each.expected(), len(each.busy)), default=None)


class Demand:
    """Counts orders for which a trainer waits. More makers are wanted if that lasts; one fewer if the others have time for its orders."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._orders: deque[tuple[float, int]] = deque()
        self._changed = clock()

    def order(self, ready: int) -> None:
        self._orders.append((self._clock(), ready))

    def _hungry(self, begin: float, end: float) -> bool:
        """Whether a trainer waited for a good part of the orders of these seconds."""
        ready = [ready for at, ready in self._orders if begin < at <= end]
        return ready.count(0) > _HUNGRY_PART * len(ready)

    def change(self, count: int, least: int, most: int, busy: bool = False, seconds: float = 0.0) -> int:
        """How to change the number of makers, which is `count` now. `busy`: whether orders are under way. `seconds`: what an order takes a
        maker."""
        now = self._clock()
        while self._orders and now - self._orders[0][0] > _WINDOW:
            self._orders.popleft()
        if count < least:
            return self._decided(now, least - count)
        lasts = self._hungry(now - 2 * _HUNGRY, now - _HUNGRY) and self._hungry(now - _HUNGRY, now)
        if lasts and count < most and now - self._changed >= 2 * _HUNGRY:
            return self._decided(now, min(most - count, max(1, count // 2)))
        plenty = all(ready >= _PLENTY for _, ready in self._orders) if self._orders else not busy  # a full ring orders nothing
        others_can = len(self._orders) * seconds <= _MOST_BUSY * (count - 1) * _WINDOW
        if now - self._changed >= _WINDOW and count > least and plenty and others_can:
            return self._decided(now, -1)
        return 0

    def _decided(self, now: float, change: int) -> int:
        self._changed = now
        return change


def seconds_of_an_order(members: Iterable[Member]) -> float:
    """The mean of the makers that have made one. 0: none has."""
    means = [each.mean for each in members if each.mean > 0]
    return sum(means) / len(means) if means else 0.0
