"""Simulates a cluster too large for a test: trainer nodes, each with a server and its bridge, and nodes that decode for them.

    .cache/ray/bin/python tests/ray/cluster_simulation.py --out curves.json
    tests/bench/cluster_plot.py curves.json tests/bench/cluster.svg

The bridges' decisions are those of the package: headrace.ray's Makers run on a virtual clock, with stand-ins for Ray and for the server. The
server's rules for orders (which may be open, when one is late, when workers make it themselves) are repeated here from
server/session/bridge_orders.cpp and server/exec/filler.cpp. Costs are measured (tests/bench/README.md) or stated in `Costs`.

Two figures come out: samples/s relative to the limit of the trainer nodes' network, if GPUs take all that they get; and how long a GPU waits
after a quarter of the decode nodes has stopped answering.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headrace.ray import _makers
from headrace.ray._crew import Demand, Member
from headrace.ray._remote import Plan
from simulated_ray import Clock, Cluster, Costs, Decoder, Hiring, Inbox, Link


@dataclass(eq=False)
class Batch:
    """A slot that is being filled."""

    lane: Lane
    order: int
    since: float
    late: bool = False
    answered: bool = False


@dataclass(eq=False)
class Lane:
    """A GPU: batches that are ready or under way for it, and since when it has waited."""

    ready: int = 0
    under_way: int = 0
    waits_since: float | None = None
    longest_wait: float = 0.0


class OrderTimes:
    """server/session/bridge_orders.cpp: when an order is late."""

    def __init__(self) -> None:
        self._mean = self._deviation = 0.0
        self._backoff = 0

    def answered(self, took: float) -> None:
        self._backoff = 0
        if self._mean == 0:
            self._mean, self._deviation = took, took / 2
            return
        self._deviation = (3 * self._deviation + abs(took - self._mean)) / 4
        self._mean = (7 * self._mean + took) / 8

    def late(self) -> None:
        self._backoff = min(self._backoff + 1, 6)

    def late_after(self) -> float:
        usual = 2.0 if self._mean == 0 else max(0.1, self._mean + 4 * self._deviation)
        return min(float(usual * 2**self._backoff), 60.0)


class Server:
    """A trainer node: its GPUs, the server's orders, and the bridge's Makers. It is the Makers' Bridge, too."""

    def __init__(self, simulation: Simulation, number: int) -> None:
        self.simulation, self.name = simulation, f"trainer-{number}"
        self.link = Link(simulation.costs.trainer_bytes_s)
        self.lanes = [Lane() for _ in range(simulation.cluster.gpus)]
        self.rows = self.local_rows = 0
        self.streams = {"train": SimpleNamespace(obstacle="", info=SimpleNamespace(fingerprint=SimpleNamespace()))}
        self._orders: dict[int, Batch] = {}
        self._next = 1
        self._most = self._window = 0
        self._times = OrderTimes()
        self._here: deque[Batch] = deque()  # batches that workers make
        self._working = False
        cluster = simulation.cluster
        plan = Plan("", b"", {}, "simulated", self.name, threads=cluster.maker_threads, makers=cluster.makers)
        _makers.Hiring = lambda _plan, _shipping, _inbox, on_hired: Hiring(self, on_hired)  # type: ignore[assignment, misc]
        _makers.Inbox = self._open_inbox  # type: ignore[assignment, misc]
        self.makers = _makers.Makers(plan, lambda call: simulation.clock.after(0, call))
        self.makers.connected(self)  # type: ignore[arg-type]
        self._tick()
        for lane in self.lanes:
            self._take(lane)
        self._look()

    def _open_inbox(self, on_rows: Callable[[bytes, Any], None]) -> Inbox:
        self.inbox = Inbox(on_rows)
        return self.inbox

    # --- the Makers' Bridge

    def limit(self, most: int) -> None:
        self._window = max(self._window, self._window + most - self._most if most > self._most else 1)
        self._most = most
        self.simulation.clock.after(0, self._look)

    def failed(self, order: int, _node: str = "", _why: str = "") -> None:
        if (batch := self._orders.get(order)) and not batch.answered and not batch.late:
            self._make_here(batch)

    def made(self, order: int, _node: str, _bytes: int, *_rows: Any) -> bool:
        batch = self._orders.get(order)
        if batch is None or batch.answered:
            return False
        batch.answered = True
        self._times.answered(self.simulation.clock.now - batch.since)
        self._window = min(4096, self._window + 1)
        self.simulation.clock.after(self.simulation.costs.copy_s, functools.partial(self._filled, batch))
        return True

    # --- the server

    def _tick(self) -> None:
        self.makers.tick()
        self.simulation.clock.after(0.25, self._tick)

    def _look(self) -> None:
        """Orders batches for free slots, the neediest lane first; without room for orders, workers make them."""
        while True:
            lane = min(self.lanes, key=lambda each: each.ready + each.under_way)
            if lane.ready + lane.under_way >= self.simulation.cluster.slots:
                return
            ordering = len(self._orders) < min(self._most, self._window)
            if not ordering and self._working:
                return
            batch = Batch(lane, self._next, self.simulation.clock.now)
            self._next += 1
            lane.under_way += 1
            self._orders[batch.order] = batch
            if ordering:
                costs = self.simulation.costs
                order = SimpleNamespace(id=batch.order, stream="train", epoch=0, first=0, rows=costs.batch, ready=lane.ready)
                self.makers.order(order)  # type: ignore[arg-type]
                self.simulation.clock.after(self._times.late_after(), functools.partial(self._check, batch))
            else:
                self._make_here(batch)

    def _check(self, batch: Batch) -> None:
        """Workers make an order that is late."""
        if batch.answered or batch.late or self._orders.get(batch.order) is not batch:
            return
        due = batch.since + self._times.late_after()
        if due > self.simulation.clock.now + 1e-9:
            self.simulation.clock.at(due, functools.partial(self._check, batch))
            return
        self._make_here(batch)
        self._times.late()
        self._window = max(1, min(self._most, self._window) // 2)

    def _make_here(self, batch: Batch) -> None:
        batch.late = True
        self._here.append(batch)
        if not self._working:
            self._work()

    def _work(self) -> None:
        self._working = False
        while self._here and self._orders.get(self._here[0].order) is not self._here[0]:
            self._here.popleft()  # its answer came after all
        if not self._here:
            return
        self._working = True
        costs = self.simulation.costs
        took = costs.batch * costs.decode_s / self.simulation.cluster.local_threads
        self.simulation.clock.after(took, functools.partial(self._worked, self._here.popleft()))

    def _worked(self, batch: Batch) -> None:
        if self._orders.get(batch.order) is batch:
            self.local_rows += self.simulation.costs.batch
            self._filled(batch)
        self._work()
        self._look()

    def _filled(self, batch: Batch) -> None:
        if self._orders.pop(batch.order, None) is None:
            return
        self.makers.release(batch.order)
        lane = batch.lane
        lane.under_way -= 1
        lane.ready += 1
        self.rows += self.simulation.costs.batch
        if lane.waits_since is not None:
            lane.longest_wait = max(lane.longest_wait, self.simulation.clock.now - lane.waits_since)
            self.simulation.waited(lane.waits_since, self.simulation.clock.now)
            lane.waits_since = None
            self._take(lane)
        self._look()

    def _take(self, lane: Lane) -> None:
        """The GPU takes a batch, and the next one after a step."""
        if lane.ready == 0:
            lane.waits_since = self.simulation.clock.now
            return
        lane.ready -= 1
        rate = self.simulation.cluster.gpu_rows_s
        step = self.simulation.costs.batch / rate if rate else 1e-6
        self.simulation.clock.after(step, functools.partial(self._take, lane))
        self.simulation.clock.after(0, self._look)


class Simulation:
    def __init__(self, cluster: Cluster, costs: Costs, seed: int = 1) -> None:
        self.cluster, self.costs, self.random = cluster, costs, random.Random(seed)
        self.clock = Clock()
        self.messages_to_lose = 0  # the next ones, whose connection breaks after the call has returned
        self.waits: dict[int, float] = {}  # by second: GPU seconds
        self.decoders = [Decoder(f"decoder-{i}", cluster.decoder_cores, Link(costs.decoder_bytes_s)) for i in range(cluster.decoders)]
        _makers.time = SimpleNamespace(monotonic=self.clock)  # type: ignore[assignment]
        _makers.Member = functools.partial(Member, clock=self.clock)  # type: ignore[assignment, misc]
        _makers.Demand = functools.partial(Demand, clock=self.clock)  # type: ignore[assignment, misc]
        self.servers = [Server(self, i) for i in range(cluster.trainers)]

    def waited(self, begin: float, end: float) -> None:
        for second in range(int(begin), int(end) + 1):
            self.waits[second] = self.waits.get(second, 0) + max(0.0, min(end, second + 1) - max(begin, second))

    def lose(self, part: float) -> None:
        """Decode nodes stop answering. Ray notices it later."""
        for node in self.random.sample(self.decoders, round(part * len(self.decoders))):
            node.lost = True
            self.clock.after(self.costs.lost_s, functools.partial(self._noticed, node))

    def _noticed(self, node: Decoder) -> None:
        for actor in list(node.actors):
            actor.end()

    def rates(self, seconds: int) -> list[float]:
        """Samples/s of all trainer nodes, second by second."""
        rates = []
        for _ in range(seconds):
            before = sum(server.rows for server in self.servers)
            self.clock.run(self.clock.now + 1)
            rates.append(float(sum(server.rows for server in self.servers) - before))
        return rates

    def forget_waits(self) -> None:
        for server in self.servers:
            for lane in server.lanes:
                lane.longest_wait = 0.0

    def longest_wait(self) -> float:
        now = self.clock.now
        lanes = [lane for server in self.servers for lane in server.lanes]
        return max(max(lane.longest_wait, now - lane.waits_since if lane.waits_since is not None else 0.0) for lane in lanes)


RATES = (2800, 5000, 7000)  # rows/s of a GPU: the first is a ResNet-50's on an H100; the last is two thirds of the network's limit


def at_the_limit(cluster: Cluster, costs: Costs, seconds: int, warm_up: int = 15) -> dict[str, float]:
    """GPUs take all that they get."""
    simulation = Simulation(cluster, costs)
    steady = sum(simulation.rates(warm_up + seconds)[warm_up:]) / seconds
    limit = cluster.trainers * costs.trainer_bytes_s / costs.row_bytes
    local = sum(server.local_rows for server in simulation.servers) / sum(server.rows for server in simulation.servers)
    return {"rows_s": steady, "of_limit": steady / limit, "made_here": local}


def after_a_loss(cluster: Cluster, costs: Costs, part: float, seconds: int = 60, warm_up: int = 30) -> dict[str, Any]:
    """A part of the decode nodes stops answering after `warm_up` seconds. `waits`: the fraction of the GPUs that wait, second by second."""
    simulation = Simulation(cluster, costs)
    rates = simulation.rates(warm_up)
    simulation.forget_waits()
    simulation.lose(part)
    rates += simulation.rates(seconds)
    waits = [simulation.waits.get(second, 0.0) / (cluster.trainers * cluster.gpus) for second in range(warm_up + seconds)]
    return {"rates": rates, "waits": waits, "lost_at": warm_up, "longest_wait_s": simulation.longest_wait()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainers", type=int, default=64, help="trainer nodes, of 8 GPUs each (default: 64)")
    parser.add_argument("--decoders", type=int, default=256, help="decode nodes, of 32 cores each (default: 256)")
    parser.add_argument("--seconds", type=int, default=20, help="simulated seconds at the limit (default: 20)")
    parser.add_argument("--out", type=Path, help="a file for the curves after a loss, for tests/bench/cluster_plot.py")
    arguments = parser.parse_args()
    logging.getLogger("headrace").setLevel(logging.ERROR)  # a lost maker is a warning each
    costs, of = Costs(), functools.partial(Cluster, trainers=arguments.trainers, decoders=arguments.decoders)
    limit = at_the_limit(of(), costs, arguments.seconds)
    print(f"at the limit: {limit['rows_s'] / 1e6:.2f} million rows/s, {limit['of_limit']:.3f} of the network's, {limit['made_here']:.2f} of them made on trainer nodes")
    curves = []
    for rate in RATES:
        lost = after_a_loss(of(gpu_rows_s=rate, local_threads=1), costs, 0.25)
        mean = sum(lost["waits"][lost["lost_at"] :]) / (len(lost["waits"]) - lost["lost_at"])
        print(f"a quarter lost, {rate} rows/s for each GPU: longest wait {lost['longest_wait_s']:.2f} s, {mean:.1%} of the time", flush=True)
        curves.append({"gpu_rows_s": rate, **lost})
    if arguments.out:
        arguments.out.write_text(json.dumps({"of_limit": limit["of_limit"], "curves": curves}))


if __name__ == "__main__":
    main()
