"""Runs loaders in turn: only one runs at a time, while the process trees of all others are stopped (SIGSTOP)."""

from __future__ import annotations

import contextlib
import json
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from peers import processes
from peers.rows import Row
from peers.workloads import Job, Workload

START_SECONDS = 180.0
MEAN_TOLERANCE = 0.15  # of the reference's standard deviation
STD_TOLERANCE = 0.15


class Failed(Exception):
    pass


@dataclass
class Result:
    """The result of one loader; `rounds` are the results of child.Trainer.measure()."""

    row: Row
    workload: Workload
    rounds: list[dict[str, float]] = field(default_factory=list)
    fields: list[dict[str, Any]] = field(default_factory=list)
    memory: int = 0
    error: str = ""


@dataclass(frozen=True)
class Settings:
    data: dict[str, str]
    scratch: Path
    rounds: int = 5
    seconds: float = 1.5
    warm: float = 0.3
    start_seconds: float = START_SECONDS


class Contestant:
    """The trainers of one loader on one workload, and their descendants."""

    def __init__(self, workload: Workload, row: Row, settings: Settings) -> None:
        self.result = Result(row, workload)
        self._settings = settings
        folder = tempfile.mkdtemp(prefix=f"{workload.name}-{row.name}-", dir=settings.scratch)
        self.job = Job(
            workload=workload,
            data=settings.data[workload.data],
            scratch=str(settings.scratch),
            folder=folder,
            row=row.name,
            module=row.module,
            options=row.options,
        )
        self._log = Path(folder) / "log"
        self._trainers: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        """Waits until each trainer has received its first batches."""
        for rank in range(self.job.workload.trainers):
            job = replace(self.job, rank=rank)
            with self._log.open("ab") as log:
                self._trainers.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "peers.child", job.to_json()],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                        cwd=Path(__file__).parents[1],
                        start_new_session=True,
                    )
                )
        until = time.monotonic() + self._settings.start_seconds
        for trainer in self._trainers:
            reply = self._reply(trainer, until - time.monotonic(), "its first batches")
            self.result.fields = self.result.fields or reply["ready"]
        if self.result.row.warm_samples:
            self._measure(0.0, 0.0, self.result.row.warm_samples)

    @property
    def _roots(self) -> list[int]:
        return [trainer.pid for trainer in self._trainers]

    def _reply(self, trainer: subprocess.Popen[str], seconds: float, what: str) -> dict[str, Any]:
        assert trainer.stdout is not None
        if not select.select([trainer.stdout], [], [], max(0.0, seconds))[0]:
            raise Failed(f"waited {self._settings.start_seconds:g} s for {what}")
        line = trainer.stdout.readline()
        if not line:
            with contextlib.suppress(subprocess.TimeoutExpired):
                trainer.wait(10)
            raise Failed(f"its process exited with status {trainer.poll()} before {what}: {self._last_words()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise Failed(reply["error"])
        return reply

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "no output"

    def _measure(self, warm: float, seconds: float, samples: int = 0) -> dict[str, float]:
        command = {"warm": warm, "seconds": seconds, "roots": self._roots, "samples": samples}
        first = self._trainers[0]
        assert first.stdin is not None
        try:
            first.stdin.write(json.dumps(command) + "\n")
            first.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"its process exited between two rounds: {self._last_words()}") from None
        limit = warm + seconds + self._settings.start_seconds
        measured: dict[str, float] = self._reply(first, limit, "the end of a round")["measured"]
        for trainer in self._trainers[1:]:
            if trainer.poll() is not None:
                raise Failed(f"a trainer exited: {self._last_words()}")
        return measured

    def round(self) -> dict[str, float]:
        """Lets the loader run, measures it and stops it; then measures its memory."""
        processes.go_on(self._roots)
        measured = self._measure(self._settings.warm, self._settings.seconds)
        self.pause()
        # Not after the start: the loader that starts first would count all of the libraries that others map later.
        self.result.memory = max(self.result.memory, processes.memory_bytes(self._roots))
        self.result.rounds.append(measured)
        return measured

    def pause(self) -> None:
        processes.stop(self._roots)

    def end(self) -> None:
        if self._trainers:
            processes.end(self._roots)
        for trainer in self._trainers:
            for stream in (trainer.stdin, trainer.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()
            trainer.poll()
        if not self.result.error:  # otherwise its log is kept for the report
            shutil.rmtree(self.job.folder, ignore_errors=True)


def differs(fields: list[dict[str, Any]], reference: list[dict[str, Any]]) -> str:
    """The difference between these batches and the reference's; empty if there is none."""
    if len(fields) != len(reference):
        return f"{len(fields)} image fields instead of {len(reference)}"
    for mine, other in zip(fields, reference, strict=True):
        if (mine["shape"], mine["dtype"]) != (other["shape"], other["dtype"]):
            return f"{mine['dtype']} {mine['shape']} instead of {other['dtype']} {other['shape']}"
        if abs(mine["mean"] - other["mean"]) > MEAN_TOLERANCE * other["std"]:
            return f"mean {mine['mean']:.4g} instead of {other['mean']:.4g}"
        if abs(mine["std"] / other["std"] - 1) > STD_TOLERANCE:
            return f"standard deviation {mine['std']:.4g} instead of {other['std']:.4g}"
    return ""


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def compete(workload: Workload, rows: Iterable[Row], settings: Settings) -> list[Result]:
    """Runs all rounds of all rows in turn; the order shifts by one each round. The first loader that runs is the reference for the others'
    work."""
    contestants = [Contestant(workload, row, settings) for row in rows]
    running: list[Contestant] = []
    reference: list[dict[str, Any]] = []
    whose = ""
    try:
        for one in contestants:
            began = time.monotonic()
            try:
                one.start()
                if reference and (why := differs(one.result.fields, reference)):
                    raise Failed(f"does other work than {whose}: {why}")
                if not reference:
                    reference, whose = one.result.fields, one.job.row
                one.pause()
                running.append(one)
                say(f"{workload.name} {one.job.row}: started in {time.monotonic() - began:.1f} s")
            except Failed as error:
                _give_up(one, error)
        for number in range(settings.rounds):
            shift = number % max(1, len(running))
            for one in running[shift:] + running[:shift]:
                try:
                    got = one.round()
                    each = 1e6 * got["cpu"] / got["samples"]
                    say(f"{workload.name} round {number + 1} {one.job.row}: {each:.2f} us, {got['samples'] / got['seconds']:.0f}/s")
                except Failed as error:
                    _give_up(one, error)
                    running = [other for other in running if other is not one]
    finally:
        for one in contestants:
            one.end()
    return [one.result for one in contestants]


def _give_up(one: Contestant, error: Failed) -> None:
    one.result.error = str(error).replace(one.job.folder, "FOLDER")  # which differs in each run
    one.end()
    say(f"{one.job.workload.name} {one.job.row}: {error}")
