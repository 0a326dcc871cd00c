"""Stand-ins for Ray and its nodes on a virtual clock, for cluster_simulation.py."""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import ray  # type: ignore[import-not-found, import-untyped, unused-ignore]
from headrace.ray._remote import Opened

if TYPE_CHECKING:
    from cluster_simulation import Server, Simulation


@dataclass(frozen=True)
class Costs:
    """What work and transfers cost. Rows are ImageNet's: 3 x 224 x 224 uint8."""

    batch: int = 256  # rows
    row_bytes: int = 150_528
    decode_s: float = 1.25e-3  # a row on one core: w3 in tests/bench/peers/RESULTS.md
    spread: float = 0.1  # of the time of an order, as a fraction (normal)
    copy_s: float = 5e-3  # into the slot, a batch
    call_s: float = 2e-3  # a call of Ray's and its answer, without data
    start_s: float = 5.0  # a maker: its process, the imports, the dataset
    lost_s: float = 20.0  # until Ray reports that a node does not answer
    trainer_bytes_s: float = 12.5e9  # 100 Gbit/s
    decoder_bytes_s: float = 3.125e9  # 25 Gbit/s


@dataclass(frozen=True)
class Cluster:
    trainers: int = 64
    gpus: int = 8  # of each trainer node
    slots: int = 8  # of each GPU's lane
    local_threads: int = 8  # of each server
    decoders: int = 256
    decoder_cores: int = 32
    maker_threads: int = 8
    makers: tuple[int, int] = (12, 16)  # of each trainer node
    gpu_rows_s: float = 0.0  # 0: as many as it gets


class Clock:
    """Virtual time, and what happens when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def __call__(self) -> float:
        return self.now

    def at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(when, self.now), next(self._order), call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self.at(self.now + seconds, call)

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, call = heapq.heappop(self._events)
            call()
        self.now = until


@dataclass
class Link:
    """A network interface: one transfer after the other, which is as fast on average as sharing it."""

    bytes_s: float
    free_at: float = 0.0

    def pass_through(self, now: float, size: int) -> float:
        self.free_at = max(now, self.free_at) + size / self.bytes_s
        return self.free_at


@dataclass(eq=False)
class Decoder:
    """A decode node."""

    name: str
    cores: int
    link: Link
    lost: bool = False
    actors: set[Actor] = field(default_factory=set)


class Actor:
    """Stands for Ray's handle of a maker: one order at a time, and at most ORDERS_EACH are given to it."""

    def __init__(self, simulation: Simulation, node: Decoder, to: Server) -> None:
        self._simulation, self.node, self._to = simulation, node, to
        self._free_at = 0.0
        self._open: set[Future[Any]] = set()
        self.ended = False
        self.rows = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._call))

    def _call(self, key: bytes, _stream: str, _epoch: int, _first: int, count: int) -> Any:
        simulation, costs, future = self._simulation, self._simulation.costs, Future[Any]()
        self._open.add(future)
        if not (self.node.lost or self.ended):
            factor = max(0.5, simulation.random.gauss(1, costs.spread))
            begun = max(simulation.clock.now + costs.call_s, self._free_at)
            self._free_at = begun + factor * count * costs.decode_s / simulation.cluster.maker_threads
            simulation.clock.at(self._free_at, functools.partial(self._made, future, key, count))
        elif self.ended:
            simulation.clock.after(costs.call_s, functools.partial(self._lose, future))
        return SimpleNamespace(future=lambda: future)

    def _made(self, future: Future[Any], key: bytes, count: int) -> None:
        simulation = self._simulation
        if self.node.lost or self.ended:
            return
        size = count * simulation.costs.row_bytes
        sent = self.node.link.pass_through(simulation.clock.now, size)
        received = self._to.link.pass_through(sent - size / self._to.link.bytes_s, size)
        simulation.clock.at(max(sent, received), functools.partial(self._answer, future, key, size))

    def _answer(self, future: Future[Any], key: bytes, size: int) -> None:
        if not (self.node.lost or self.ended):
            self._open.discard(future)
            if self._simulation.messages_to_lose == 0:
                self._to.inbox.on_rows(key, [SimpleNamespace(nbytes=size), SimpleNamespace(nbytes=0), SimpleNamespace(nbytes=0)])
            else:
                self._simulation.messages_to_lose -= 1
            future.set_result(None)

    def _lose(self, future: Future[Any]) -> None:
        if future in self._open:
            self._open.discard(future)
            future.set_exception(ray.exceptions.RayActorError())

    def end(self) -> None:
        """Its orders fail: at once if it was killed, late if its node is lost."""
        self.ended = True
        if self in self.node.actors:
            self.node.actors.discard(self)
            self.node.cores += self._simulation.cluster.maker_threads
        for future in list(self._open):
            self._lose(future)


class Inbox:
    """Stands for the package's Inbox, to which makers send rows."""

    address, password = "", b""

    def __init__(self, on_rows: Callable[[bytes, Any], None]) -> None:
        self.on_rows = on_rows
        self.expected: set[bytes] = set()


class Hiring:
    """Stands for the package's Hiring, which asks Ray for makers."""

    def __init__(self, server: Server, on_hired: Callable[[Any, Any], None]) -> None:
        self._server, self._on_hired = server, on_hired

    def hire(self, _streams: list[str], excluded: set[str]) -> None:
        simulation = self._server.simulation
        threads = simulation.cluster.maker_threads
        able = [node for node in simulation.decoders if node.cores >= threads and not node.lost and node.name not in excluded]
        if not able:
            self._on_hired(None, None)
            return
        node = max(able, key=lambda each: each.cores)
        node.cores -= threads
        actor, opened = Actor(simulation, node, self._server), Future[Any]()
        node.actors.add(actor)
        found = Opened(node=node.name, host=node.name, version="simulated")
        simulation.clock.after(simulation.costs.start_s, lambda: opened.set_result(found))
        self._on_hired(actor, opened)

    def dismiss(self, actor: Actor) -> None:
        self._server.simulation.clock.after(self._server.simulation.costs.call_s, actor.end)

    def close(self) -> None:
        pass
