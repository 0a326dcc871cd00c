"""Does the faults of a plan at their times, and undoes those that last."""

from __future__ import annotations

import heapq
import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from events import AGAIN, MISSED, Events
from faults import Fault
from jobs import Job, Jobs, Rank
from pests import SENT
from room import MemoryLimit, SmallDisk, WallClock
from supervised import Supervised
from web import Unreliable

HERE = Path(__file__).parent
EVICT_AFTER = 1.0  # of the configuration; what is stopped for longer is fenced


@dataclass
class Target:
    """What there is to be troubled. None: this machine does not allow it, and the plan has no such fault."""

    server: Supervised
    jobs: Jobs
    web: Unreliable
    env: dict[str, str]
    cache_disk: SmallDisk | None = None
    checkpoint_disk: SmallDisk | None = None
    memory: MemoryLimit | None = None
    clock: WallClock | None = None


class Injector:
    def __init__(self, target: Target, events: Events, log: Path) -> None:
        self.target, self.events, self.log = target, events, log
        self.pests: list[subprocess.Popen[bytes]] = []
        self.unexpected: list[str] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def run(self, faults: list[Fault], stop: threading.Event) -> None:
        begun = time.monotonic()
        for fault in faults:
            self._at(begun + fault.at, lambda fault=fault: getattr(self, fault.kind)(fault))  # type: ignore[misc]
        while self._queue and not stop.is_set():
            due, _, action = heapq.heappop(self._queue)
            if not stop.wait(max(0.0, due - time.monotonic())):
                action()
        self._undo_all()

    def _undo_all(self) -> None:
        target = self.target
        target.server.reading.set()
        target.server.signal(signal.SIGCONT)
        target.web.down.clear()
        for disk in (target.cache_disk, target.checkpoint_disk):
            if disk:
                disk.empty()
        for pest in self.pests:
            if pest.wait(30) not in (0, -signal.SIGKILL):
                self.unexpected.append(f"{pest.args!r} ended with status {pest.returncode}; see {self.log}")
        counts = [int(line.removeprefix(SENT)) for line in self.log.read_text().splitlines() if line.startswith(SENT)] if self.log.exists() else []
        if len(counts) > 2 and not any(counts):
            self.unexpected.append("hostile bytes: no message could be sent")

    def _at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (when, next(self._order), action))

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._at(time.monotonic() + seconds, action)

    def _pest(self, kind: str, seconds: float, seed: int, *more: str) -> None:
        command = [sys.executable, str(HERE / "pests.py"), kind, self.target.server.address, f"{seconds:.3f}", str(seed), *more]
        with self.log.open("ab") as log:
            self.pests.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.target.env, start_new_session=True))

    def _continue_server(self) -> None:
        self.target.server.signal(signal.SIGCONT)

    def _continue(self, job: Job, rank: Rank) -> None:
        self.target.jobs.signal(job, rank, signal.SIGCONT)

    # --- faults, named as in faults.py

    def _kill_server(self, fault: Fault, detail: str = "") -> None:
        hit = self.target.server.signal(signal.SIGKILL)
        self.events.add(fault.kind, "server", detail if hit else MISSED)

    def kill_server(self, fault: Fault) -> None:
        self._kill_server(fault)

    def kill_server_twice(self, fault: Fault) -> None:
        """The second time while it starts."""
        self._kill_server(fault)
        self._later(0.05 + 0.15 * fault.amount, lambda: self._kill_server(fault, AGAIN))

    def kill_all(self, fault: Fault) -> None:
        self._kill_server(fault)
        for job in self.target.jobs.all:
            self.target.jobs.restart(job)
        self.events.add(fault.kind, "clients")

    def end_server(self, fault: Fault) -> None:
        hit = self.target.server.signal(signal.SIGTERM)
        self.events.add(fault.kind, "server", "" if hit else MISSED)

    def stop_server(self, fault: Fault) -> None:
        seconds = fault.seconds(0.8 * EVICT_AFTER, 2.5 * EVICT_AFTER)
        hit = self.target.server.signal(signal.SIGSTOP)
        self.events.add(fault.kind, "server", f"{seconds:.2f} s" if hit else MISSED)
        self._later(seconds, self._continue_server)

    def kill_client(self, fault: Fault) -> None:
        job, rank = self.target.jobs.choose(fault.target)
        hit = self.target.jobs.signal(job, rank, signal.SIGKILL)
        self.events.add(fault.kind, rank.name, "" if hit else MISSED)

    def stop_client(self, fault: Fault) -> None:
        job, rank = self.target.jobs.choose(fault.target)
        seconds = fault.seconds(0.8 * EVICT_AFTER, 3 * EVICT_AFTER)
        hit = self.target.jobs.signal(job, rank, signal.SIGSTOP)
        self.events.add(fault.kind, rank.name, f"{seconds:.2f} s" if hit else MISSED)
        self._later(seconds, lambda: self._continue(job, rank))

    def resize(self, fault: Fault) -> None:
        """The job of several ranks begins again, mostly at another world size."""
        jobs = [job for job in self.target.jobs.all if len(job.plan.worlds) > 1]
        job = jobs[int(fault.target * len(jobs))]
        self.target.jobs.restart(job)
        self.events.add(fault.kind, job.plan.name)

    def attach_storm(self, fault: Fault) -> None:
        self.events.add(fault.kind, "server", f"{1 + fault.amount:.2f} s")
        self._pest("attach", 1 + fault.amount, int(fault.target * 1e6))

    def hostile_bytes(self, fault: Fault) -> None:
        self.events.add(fault.kind, "server", f"{1 + fault.amount:.2f} s")
        self._pest("bytes", 1 + fault.amount, int(fault.target * 1e6))

    def log_unread(self, fault: Fault) -> None:
        self.target.server.reading.clear()
        self.events.add(fault.kind, "server", f"{1 + 4 * fault.amount:.2f} s")
        self._later(1 + 4 * fault.amount, self.target.server.reading.set)

    def web_down(self, fault: Fault) -> None:
        self.target.web.down.set()
        self.events.add(fault.kind, "web", f"{2 * fault.amount:.2f} s")
        self._later(2 * fault.amount, self.target.web.down.clear)

    def _fill(self, fault: Fault, disk: SmallDisk) -> None:
        disk.fill()
        self.events.add(fault.kind, str(disk.path.name), f"{1 + 2 * fault.amount:.2f} s")
        self._later(1 + 2 * fault.amount, disk.empty)

    def disk_full(self, fault: Fault) -> None:
        assert self.target.cache_disk
        self._fill(fault, self.target.cache_disk)

    def checkpoint_full(self, fault: Fault) -> None:
        assert self.target.checkpoint_disk
        self._fill(fault, self.target.checkpoint_disk)

    def memory(self, fault: Fault) -> None:
        self.events.add(fault.kind, "server", f"{1 + 2 * fault.amount:.2f} s")
        assert self.target.memory
        self._pest("memory", 1 + 2 * fault.amount, 0, str(self.target.memory.path))

    def clock_step(self, fault: Fault) -> None:
        """Up to a day back or forth."""
        seconds = round((fault.amount - 0.5) * 2 * 86400)
        assert self.target.clock
        self.target.clock.step(seconds)
        self.events.add(fault.kind, "clock", f"{seconds:+d} s")
