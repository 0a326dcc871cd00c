"""The makers of one bridge: who gets which order, what becomes of the rows, and which nodes get no more orders."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import ray  # type: ignore[import-not-found, import-untyped, unused-ignore]

from .._bridge import MOST_ORDERS, Bridge, Order
from ..ask import stats
from ..errors import DatasetInvalid, Error
from ._crew import MOST_FAILURES, ORDERS_EACH, Demand, Member, best, seconds_of_an_order
from ._hiring import Hiring
from ._inbox import Inbox
from ._nodes import mismatch, named, not_installed, reason
from ._remote import Opened, Plan
from ._shipping import Call, NotRead, Shipping

_TRY_AGAIN = 120.0  # seconds after which a node that failed may have a maker again
_QUESTION = 1.0  # seconds that the server may take to answer
_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)  # seconds until another maker is asked for, if that failed
_FOREVER = float("inf")
_ARRIVES = 30.0  # seconds after a maker has sent rows
_logger = logging.getLogger("headrace")


class NotArrived(Exception):
    """A maker sent the rows of an order, but they were lost with the connection."""


@dataclass(eq=False)
class _Task:
    """A call of a maker for an order. `bridge`: to the server that sent the order."""

    key: bytes
    order: Order
    member: Member
    bridge: Bridge
    call: Future[None]
    returned: float = 0.0  # when, on time.monotonic(); 0: not yet


class Makers:
    """All methods are called by one thread. Calls by Ray come back to it through `later`."""

    def __init__(self, plan: Plan, later: Callable[[Callable[[], None]], None]) -> None:
        self._plan, self._later = plan, later
        self._bridge: Bridge | None = None
        self._streams: list[str] = []
        self._members: list[Member] = []
        self._opening: dict[int, Any] = {}  # actors that are starting; None: Ray has not been asked for it yet
        self._numbers = itertools.count()  # of actors that are starting
        self._called: dict[bytes, _Task] = {}  # by key: those whose rows have not arrived
        self._tasks: dict[int, _Task] = {}  # by order id: those that the server waits for
        self._waiting: list[Order] = []  # orders that no maker may have yet, or that get a second one
        self._again: dict[int, Member] = {}  # by order id: the first maker of an order that a second one gets, too
        self._excluded: dict[str, tuple[str, str, float]] = {}  # by node id: name, reason, until when
        self._ids: dict[str, str] = {}  # node ids by name
        self._demand = Demand()
        self._granted: dict[str, int] = {}  # batches by stream, when _look() asked
        self._wanted = plan.makers[0]
        self._failed_starts = 0
        self._pause_until = 0.0
        self._counts = dict.fromkeys(("orders", "made", "failed", "late", "lost_makers", "received_bytes", "sent_bytes"), 0)
        self._by_node: dict[str, int] = {}
        self._shipping = Shipping(plan) if plan.ship else None
        self._inbox = Inbox(lambda key, parts: later(functools.partial(self._arrived, key, parts)))
        inbox = (self._inbox.address, self._inbox.password)
        self._hiring = Hiring(plan, self._shipping, inbox, lambda actor, future: later(functools.partial(self._hired, actor, future)))

    # --- the server

    def connected(self, bridge: Bridge) -> None:
        self._bridge = bridge
        if self._shipping is not None:
            self._shipping.forget()  # the server may have opened other data
        streams = [name for name, each in bridge.streams.items() if not each.obstacle]
        if streams != self._streams:
            self._streams = streams
            self._dismiss(self._members)
        for member in list(self._members):
            self._check_data(member, member.opened)
        self._set_limit()

    def disconnected(self) -> None:
        self._bridge = None
        self._tasks.clear()
        self._waiting.clear()
        self._again.clear()

    def order(self, order: Order) -> None:
        self._counts["orders"] += 1
        self._demand.order(order.ready)
        self._waiting.append(order)
        self._give()

    def _give(self) -> None:
        """Gives waiting orders to makers that may have one more, the latest first: the others are the next to be late."""
        if self._bridge is None:
            return
        if not any(not each.leaving for each in self._members):
            for order in self._waiting:
                self._bridge.failed(order.id, "", "no node makes rows now")
            self._waiting.clear()
        while self._waiting and (member := best(self._others(self._again.get(self._waiting[-1].id)) or self._members)) is not None:
            self._submit(self._bridge, self._waiting.pop(), member)

    def _others(self, than: Member | None) -> list[Member]:
        return [each for each in self._members if each is not than]

    def _submit(self, bridge: Bridge, order: Order, member: Member) -> None:
        key = secrets.token_bytes(16)  # an order's id can be guessed, and the next server uses it again
        last = order.first + order.rows - 1
        method = member.actor.rows.options(name=f"{order.stream}: epoch {order.epoch}, rows {order.first} to {last}")
        asked = (key, order.stream, order.epoch, order.first, order.rows)
        self._inbox.expected.add(key)
        call = self._shipping.call(method, *asked) if self._shipping else method.remote(*asked).future()
        member.give(key)
        self._tasks[order.id] = self._called[key] = _Task(key, order, member, bridge, call)
        call.add_done_callback(lambda done: self._later(functools.partial(self._returned, key, done)))

    def _give_again(self, task: _Task) -> None:
        """A second maker gets the order, before other orders: a trainer may be waiting for it. The first result counts."""
        self._again[task.order.id] = task.member
        self._waiting.append(task.order)

    def release(self, order: int) -> None:
        self._again.pop(order, None)
        waiting = [each for each in self._waiting if each.id != order]
        task = self._tasks.pop(order, None)
        if task is not None or len(waiting) < len(self._waiting):
            self._counts["late"] += 1
        self._waiting = waiting
        if task is not None:  # the call goes on: after Ray's cancel() an actor's task may never end
            self._set_limit()

    def refuse(self, name: str, why: str) -> None:
        node = self._ids.get(name)
        if node is not None:
            self._exclude(node, name, why, _FOREVER)

    # --- the makers

    def _arrived(self, key: bytes, parts: Sequence[Any]) -> None:
        if (task := self._called.get(key)) is not None:  # otherwise it was given up
            self._done(task, parts)

    def _returned(self, key: bytes, done: Future[None]) -> None:
        """A maker's call has ended. If all went well, the rows come through the inbox, or have come."""
        if (task := self._called.get(key)) is None:
            return
        if (error := done.exception()) is not None:
            self._done(task, error)
        else:
            task.returned = time.monotonic()

    def _forget(self, task: _Task) -> None:
        """Its rows are not expected any more."""
        self._called.pop(task.key, None)
        self._inbox.expected.discard(task.key)

    def _done(self, task: _Task, result: Sequence[Any] | BaseException) -> None:
        self._forget(task)
        order, member = task.order, task.member
        error = result if isinstance(result, BaseException) else None
        member.done(task.key, 0 if error else order.rows)
        if task.bridge is not self._bridge:  # the server has ended
            self._set_limit()  # this maker has room for the next one's orders
            return
        latest = self._tasks.get(order.id)
        wanted = latest is not None and latest.order is order
        if not isinstance(result, BaseException) and wanted:
            error = self._hand_over(task, result)
            if error is None:
                del self._tasks[order.id]
                self._waiting = [each for each in self._waiting if each is not order]
        if error is not None:
            self._failed(task, error, wanted)
        self._set_limit()
        self._give()

    def _hand_over(self, task: _Task, parts: Sequence[Any]) -> Exception | None:
        order, member = task.order, task.member
        far = member.node not in self._plan.trainers
        received = sum(part.nbytes for part in parts) if far else 0
        sent = task.call.sent if far and isinstance(task.call, Call) else 0
        if len(parts) < 2:
            return DatasetInvalid(f"expected fields, sample_index and replaced, found {len(parts)} parts")
        *fields, samples, replaced = parts
        try:
            if task.bridge.made(order.id, member.name, received, fields, samples, replaced, sent):
                self._counts["made"] += 1
                self._counts["received_bytes"] += received
                self._counts["sent_bytes"] += sent
                self._by_node[member.name] = self._by_node.get(member.name, 0) + order.rows
        except DatasetInvalid as error:
            return error
        return None

    def _failed(self, task: _Task, error: BaseException, wanted: bool) -> None:
        order, member, why = task.order, task.member, reason(error)
        if wanted and self._tasks[order.id] is task:  # no second maker has it
            del self._tasks[order.id]
            if order.id not in self._again and self._others(member) and not isinstance(error, NotRead):
                self._give_again(task)
            elif order not in self._waiting:
                self._counts["failed"] += 1
                task.bridge.failed(order.id, member.name, why)
        if isinstance(error, NotRead):
            member.failures -= 1  # the trainer's node failed, not the maker
        elif isinstance(error, ray.exceptions.RayActorError | ray.exceptions.NodeDiedError):
            if member in self._members:
                self._counts["lost_makers"] += 1
                _logger.warning("headrace.ray: lost the maker on node %s: %s; its orders are made elsewhere", member.name, why)
                self._dismiss([member])  # Ray may also mean that it was not reachable for a while
        elif isinstance(error, DatasetInvalid) and wanted:
            self._exclude(member.node, member.name, f"its rows were wrong: {why}", _FOREVER)
        elif member.failures >= MOST_FAILURES and member in self._members:
            self._exclude(member.node, member.name, f"it failed {member.failures} times in a row: {why}", _TRY_AGAIN)

    def _exclude(self, node: str, name: str, why: str, seconds: float) -> None:
        until = time.monotonic() + seconds
        _, known, longest = self._excluded.get(node, ("", "", 0.0))
        if until >= longest:  # a maker may fail on a node that is excluded for longer
            if known != why:  # several makers of a node may fail alike
                _logger.warning("headrace.ray: node %s gets no more orders%s: %s", name, "" if seconds == _FOREVER else f" for {seconds:g} s", why)
            self._excluded[node] = (name, why, until)
        self._dismiss([member for member in self._members if member.node == node])

    def _dismiss(self, gone: list[Member]) -> None:
        """Ends these makers. Once all have left, their orders go to others: their rows may be lost on the way."""
        self._members = [member for member in self._members if member not in gone]
        for member in gone:
            self._hiring.dismiss(member.actor)
        self._set_limit()
        lost = [task for task in self._called.values() if task.member in gone]
        for task in lost:
            self._forget(task)
        for task in lost:
            self._done(task, ray.exceptions.RayActorError())

    # --- how many

    def tick(self) -> None:
        now = time.monotonic()
        for node in [node for node, (_, _, until) in self._excluded.items() if until < now]:
            del self._excluded[node]
        if self._bridge is None or not self._streams:
            return
        least, most = self._plan.makers
        if self._wanted == 0 and most > 0:
            self._look(self._bridge)
        busy = any(member.busy for member in self._members)
        if not self._opening or self._wanted > most:
            self._wanted += self._demand.change(self._wanted, least, most, busy, seconds_of_an_order(self._members))
        for task in [each for each in self._called.values() if each.returned and now - each.returned > _ARRIVES]:
            self._done(task, NotArrived(f"its rows did not arrive within {_ARRIVES:g} s"))
        self._dismiss([each for each in self._members if each.leaving and not each.busy])
        for task in self._tasks.values():
            if task.order.id not in self._again and task.member.is_late(task.key) and self._others(task.member):
                self._give_again(task)
        self._give()
        for member in list(self._members):
            if member in self._members and (why := member.hangs()):  # the exclusion of another one may have dismissed it
                self._exclude(member.node, member.name, why, _TRY_AGAIN)
        staying = [each for each in self._members if not each.leaving]
        if len(staying) > self._wanted:
            min(staying, key=lambda each: (each.rows, -len(each.busy))).leaving = True
            self._set_limit()
        missing = self._wanted - len(staying) - len(self._opening)
        if missing > 0 and now >= self._pause_until:
            for _ in range(missing):
                self._opening[next(self._numbers)] = None
                self._hiring.hire(self._streams, set(self._excluded))

    def _look(self, bridge: Bridge) -> None:
        """Asks the server whether trainers wait. Without makers there are no orders that would show it."""
        with contextlib.suppress(Error, LookupError):  # the bridge notices a server that ends
            streams = stats(bridge.address, timeout=_QUESTION)["streams"]
            for name in self._streams:
                clients = streams[name]["clients"]
                granted = sum(each["granted"] for each in clients)
                if granted != self._granted.get(name):  # otherwise no trainer asks for batches
                    self._granted[name] = granted
                    self._demand.order(0 if any(each["waiting"] for each in clients) else streams[name]["slots"]["ready"])

    def _hired(self, actor: Any, future: Any) -> None:
        key = min((key for key, each in self._opening.items() if each is None), default=0)
        if actor is None:
            self._opening.pop(key, None)
            self._pause()
            return
        self._opening[key] = actor
        future.add_done_callback(lambda done: self._later(functools.partial(self._opened, key, actor, done)))

    def _opened(self, key: int, actor: Any, done: Future[Any]) -> None:
        self._opening.pop(key, None)
        error = done.exception()
        if error is not None:
            _logger.warning("headrace.ray: a maker did not start: %s", reason(error))
            self._pause()
            return
        opened: Opened = done.result()
        name = named(opened.host, opened.node)
        self._ids[name] = opened.node
        member = Member(actor, opened.node, name, opened)
        if opened.version and opened.version != self._plan.version:
            self._hiring.dismiss(actor)
            self._exclude(opened.node, name, str(mismatch(opened, self._plan.version)), _FOREVER)
        elif opened.code:
            self._hiring.dismiss(actor)
            remedy = (
                "; each maker's node reads the data itself: use a shared mount, http(s) or s3, choose nodes that have it with resources=, or let the"
                " trainer's node send the samples with ship='encoded'"
            )
            if opened.code == "ENVIRONMENT":  # the node's, not the data's
                why = opened.error if opened.version else not_installed(opened, self._plan.version)
            else:
                why = f"it cannot open the data: {opened.code}: {opened.error}{remedy if self._shipping is None else ''}"
            self._exclude(opened.node, name, why, _TRY_AGAIN)
        elif opened.node in self._excluded:
            self._hiring.dismiss(actor)
        else:
            self._members.append(member)
            self._failed_starts = 0
            self._check_data(member, opened)
            self._set_limit()

    def _check_data(self, member: Member, opened: Opened) -> None:
        for stream, theirs in opened.fingerprints.items():
            if self._bridge is None or stream not in self._bridge.streams:
                continue
            ours = vars(self._bridge.streams[stream].info.fingerprint)
            differing = [part for part in ours if ours[part] != theirs.get(part)]
            if differing and member in self._members:
                why = f"the {' and '.join(differing)} of stream `{stream}` on this node is not that of the server"
                remedy = "use the same configuration and environment on this node"
                if "dataset" in differing:
                    remedy = "copy the data again, or choose other nodes with resources="
                self._exclude(member.node, member.name, f"FINGERPRINT_MISMATCH: {why}: {remedy}", _TRY_AGAIN)

    def _pause(self) -> None:
        self._pause_until = time.monotonic() + _PAUSES[min(self._failed_starts, len(_PAUSES) - 1)]
        self._failed_starts += 1

    def _set_limit(self) -> None:
        if self._bridge is None:
            return
        staying = [each for each in self._members if not each.leaving]
        wanted = {task.key for task in self._tasks.values()}
        late = sum(key not in wanted for each in staying for key in each.busy)  # nobody wants them any more, but they keep makers busy
        self._bridge.limit(min(MOST_ORDERS, ORDERS_EACH * len(staying) - late))

    def close(self) -> None:
        for actor in [*(member.actor for member in self._members), *self._opening.values()]:
            if actor is not None:
                self._hiring.dismiss(actor)
        self._hiring.close()
        self._inbox.close()
        if self._shipping is not None:
            self._shipping.close()

    def stats(self) -> dict[str, Any]:
        """Called by another thread. The copies may be of slightly different moments."""
        return {
            **self._counts,
            "rows": dict(self._by_node),
            "makers": [{"node": each.node, "name": each.name, "pid": each.opened.pid, "busy": len(each.busy)} for each in list(self._members)],
            "wanted": self._wanted,
            "excluded": {node: why for node, (_, why, _) in list(self._excluded.items())},
        }
