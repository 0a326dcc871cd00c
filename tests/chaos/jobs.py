"""The trainers of a chaos run: jobs of one or several consumers, which are started again at their checkpoints whenever they die.

A rank that dies ends its job, as with torchrun: all ranks are killed, and begin again, perhaps as more or fewer ranks, at the least of their
checkpoints. What the others had received beyond it is rolled back. Each such restart is a generation, with journals of its own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import journal
from events import Events

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Plan:
    """`kinds`: what the ranks run, in turn: "python", "python views" (zero_copy) or "cpp". `worlds`: the numbers of ranks to choose from."""

    name: str
    stream: str
    kinds: Sequence[str] = ("python",)
    worlds: Sequence[int] = (1,)
    step: float = 0.01  # at most that many seconds between two batches


@dataclass
class Rank:
    name: str
    number: int
    journal: Path
    checkpoint: Path
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    stopped: bool = False


@dataclass
class Generation:
    """`until`: the (epoch, batch) at which the next generation began; None for the last one."""

    world: int
    state: dict[str, Any] | None
    ranks: list[Rank] = field(default_factory=list)
    until: tuple[int, int] | None = None


class Job:
    """Thread safety: none; `Jobs` has a lock."""

    def __init__(self, plan: Plan, folders: Mapping[str, Path], address: str, seed: int, events: Events, env: Mapping[str, str]) -> None:
        self.plan, self.events, self.env, self.address = plan, events, {**os.environ, **env}, address
        self.folders, self.seed = folders, seed
        self.end = folders["journals"] / f"{plan.name}.end"
        self.chance = random.Random(f"{seed} {plan.name}")
        self.generations: list[Generation] = []
        self.epochs = 0  # where it ends, once it was told to
        self.unexpected: list[str] = []
        self._begin(None)

    @property
    def ranks(self) -> list[Rank]:
        return self.generations[-1].ranks

    def _begin(self, state: dict[str, Any] | None) -> None:
        generation = Generation(self.chance.choice(self.plan.worlds), state)
        self.generations.append(generation)
        number = len(self.generations) - 1
        for rank in range(generation.world):
            name = f"{self.plan.name}.{number}.{rank}" if len(self.plan.worlds) > 1 else self.plan.name
            kind = self.plan.kinds[rank % len(self.plan.kinds)]
            given: dict[str, Any] = {
                "address": self.address, "stream": self.plan.stream, "group": self.plan.name, "name": f"{self.plan.name}-{rank}",
                "rank": rank, "world_size": generation.world, "state": state, "step": self.plan.step, "seed": self.seed,
                "zero_copy": kind == "python views", "journal": str(self.folders["journals"] / f"{name}.txt"),
                "checkpoint": str(self.folders["checkpoints"] / f"{name}.json"), "end": str(self.end),
            }  # fmt: skip
            program = [str(self.folders["cpp"])] if kind == "cpp" else [sys.executable, str(HERE / "consumer.py")]
            generation.ranks.append(Rank(name, rank, Path(given["journal"]), Path(given["checkpoint"]), [*program, json.dumps(given)]))
        for each in generation.ranks:
            self._start(each)

    def _start(self, rank: Rank) -> None:
        with (self.folders["journals"] / f"{self.plan.name}.log").open("ab") as log:
            rank.process = subprocess.Popen(rank.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env, start_new_session=True)
        rank.stopped = False

    def signal(self, rank: Rank, number: signal.Signals) -> bool:
        if rank.process is None or rank.process.poll() is not None:
            return False
        rank.process.send_signal(number)
        rank.stopped = number == signal.SIGSTOP or (rank.stopped and number != signal.SIGCONT)
        return True

    def restart(self) -> None:
        """Kills all ranks. What follows is a new generation."""
        for rank in self.ranks:
            self.signal(rank, signal.SIGKILL)

    def tend(self) -> bool:
        """Starts what has died; whether the job has received all that it was told to."""
        statuses = [rank.process.poll() if rank.process else None for rank in self.ranks]
        for rank, status in zip(self.ranks, statuses, strict=True):
            if status not in (None, 0, -signal.SIGKILL):
                self.unexpected.append(f"{rank.name} ended with status {status}")
        if all(status == 0 for status in statuses):
            return True
        if all(status in (None, 0) for status in statuses):
            return False
        if len(self.plan.worlds) == 1:
            for rank, status in zip(self.ranks, statuses, strict=True):
                if status not in (None, 0):
                    self._start(rank)
            return False
        self.restart()
        for rank in self.ranks:
            assert rank.process
            rank.process.wait()
        last = self.generations[-1]
        if all(rank.checkpoint.exists() for rank in self.ranks):
            least = min((json.loads(rank.checkpoint.read_text())["state"] for rank in self.ranks), key=position)
            last.until = position(least)
        else:  # it is rolled back as a whole; its start counts batches as the generation before it
            least, last.until = last.state, (0, 0)
        for rank in self.ranks:  # `least` is all that the next generation needs, and the disk is small
            for file in rank.checkpoint.parent.glob(f"{rank.name}.*"):
                file.unlink()
        self._begin(least)
        self.events.add("resized", self.plan.name, f"{last.world} -> {self.generations[-1].world} at epoch {last.until[0]}, batch {last.until[1]}")
        return False

    def kill(self) -> None:
        for rank in self.ranks:
            if rank.process:
                rank.process.kill()
                rank.process.wait()


def position(state: dict[str, Any]) -> tuple[int, int]:
    """The (epoch, batch) that comes next. Comparable within a generation: each of its epochs has one origin."""
    return int(state["cursor"]["epoch"]), int(state["cursor"]["batch"])


class Jobs:
    """Thread safety: any thread."""

    def __init__(self, jobs: list[Job], events: Events) -> None:
        self.all, self._events = jobs, events
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.done = False
        self._thread = threading.Thread(target=self._tend, name="jobs")
        self._thread.start()

    def _tend(self) -> None:
        while not self._stopping.wait(0.02):
            with self._lock:
                self.done = all([job.tend() for job in self.all])

    def choose(self, target: float) -> tuple[Job, Rank]:
        with self._lock:
            running = [(job, rank) for job in self.all for rank in job.ranks]
            return running[int(target * len(running))]

    def signal(self, job: Job, rank: Rank, number: signal.Signals) -> bool:
        with self._lock:
            return job.signal(rank, number)

    def restart(self, job: Job) -> None:
        with self._lock:
            job.restart()

    def finish(self, seconds: float) -> bool:
        """Lets each job end two epochs behind what its foremost rank has received, and waits. Returns False if it took too long."""
        with self._lock:
            for job in self.all:
                for rank in job.ranks:
                    job.signal(rank, signal.SIGSTOP)
                state = job.generations[-1].state  # its ranks may not have received a batch yet
                foremost = max(journal.last_epoch(rank.journal) for rank in job.ranks)
                job.epochs = max(foremost, position(state)[0] if state else 0) + 2
                new = job.end.with_suffix(".new")
                new.write_text(str(job.epochs))
                new.rename(job.end)
                for rank in job.ranks:
                    job.signal(rank, signal.SIGCONT)
        end = time.monotonic() + seconds
        while not self.done and time.monotonic() < end:
            time.sleep(0.1)
        return self.done

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        for job in self.all:
            job.kill()
