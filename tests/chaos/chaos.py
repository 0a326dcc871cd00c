"""Disturbs a server and its trainers at random for minutes, and checks that each received exactly what an undisturbed run gives. See README.md."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import datasets
import faults
import headrace
import leftovers
import sampler
from checker import Generation, check, longest_pause
from consumer import hashes
from endings import unexplained, unexplained_checkpoints
from events import Events
from injector import Injector, Target
from jobs import Job, Jobs, Plan
from journal import read
from recovery import recoveries
from report import Outcome, text
from room import MemoryLimit, SmallDisk, WallClock, with_own_mounts
from supervised import Supervised
from web import Unreliable

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHARDED = "packed"
PATIENCE = 240  # seconds; a slow machine, as of CI, gets there
PLANS = [
    Plan("folder-a", "folder", ["python views"]),
    Plan("folder-b", "folder", ["cpp"]),
    Plan("wide", "wide", ["python views"], step=0.02),  # shares rows with them
    Plan("tar-a", "tar", ["python"]),
    Plan("tar-b", "tar", ["cpp"]),
    Plan("web-a", "web", ["python"], step=0.03),
    Plan("web-b", "web", ["cpp"], step=0.03),
    Plan("ranks", SHARDED, ["cpp", "python"], worlds=(1, 2, 3, 4)),
]


class Run:
    def __init__(self, seed: int, seconds: float, out: Path, cpp: Path, keep_server: bool) -> None:
        self.outcome = Outcome(seed, seconds)
        self.seed, self.seconds, self.out, self.cpp, self.keep_server = seed, seconds, out, cpp, keep_server
        if out.exists() and any(out.iterdir()) and not (out / "events.csv").exists():
            sys.exit(f"chaos: {out} has other files than a chaos run's; name a new folder")
        out.mkdir(parents=True, exist_ok=True)
        try:
            self.lock = os.open(out, os.O_RDONLY)
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"chaos: another run writes to {out}; name another folder with --out, or wait for its end")
        for each in sorted(out.iterdir(), key=lambda each: each.name == "events.csv"):  # last, because it marks the folder
            shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
        self.then = leftovers.before()
        self.work = Path(tempfile.mkdtemp(prefix="hrc-"))
        self.mark = f"HEADRACE_CHAOS={self.work.name}"
        (out / "journals").mkdir()
        for name in ("data", "tmp"):
            (self.work / name).mkdir()
        self.events = Events(out / "events.csv")

    @contextlib.contextmanager
    def room(self) -> Iterator[Target]:
        """Everything that runs or was mounted ends with it."""
        weights = faults.OTHERS | ({} if self.keep_server else faults.SERVER)
        name, _, value = self.mark.partition("=")
        env = {name: value, "TMPDIR": str(self.work / "tmp"), "XDG_CACHE_HOME": str(self.work / "cache/xdg"), "PYTHONDONTWRITEBYTECODE": "1"}
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.work)
            disks: dict[str, SmallDisk | None] = {}
            for folder, kind in (("cache", "disk_full"), ("checkpoints", "checkpoint_full")):
                disks[folder] = None
                with self.if_allowed(kind, weights):
                    disk = disks[folder] = SmallDisk(self.work / folder, 2)
                    stack.callback(disk.close)
            memory = None
            with self.if_allowed("memory", weights):
                memory = MemoryLimit(self.work.name, 512)
                stack.callback(memory.close)
            clock = None
            with self.if_allowed("clock_step", weights):
                clock = WallClock(self.work)
                stack.callback(clock.close)
                env |= clock.env
            datasets.write_all(self.work / "data", self.seed)
            web = Unreliable(self.work / "data/shards", self.seed)
            stack.callback(web.close)
            configured = datasets.configuration(self.work / "data", self.work / "run", self.work / "cache/disk", web.url)
            config = datasets.write_configuration(self.work / "chaos.yaml", configured)
            server = Supervised(config, self.work / "run", self.out / "server.log", self.events, env, memory.path if memory else None)
            stack.callback(server.stop)
            folders = {"journals": self.out / "journals", "checkpoints": self.work / "checkpoints", "cpp": self.cpp}
            jobs = Jobs([Job(plan, folders, server.address, self.seed, self.events, env) for plan in PLANS], self.events)
            stack.callback(jobs.stop)
            self.weights = weights
            yield Target(server, jobs, web, env, disks["cache"], disks["checkpoints"], memory, clock)

    @contextlib.contextmanager
    def if_allowed(self, kind: str, weights: dict[str, int]) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.outcome.not_done[kind] = str(error)
            for folder in ("cache", "checkpoints"):
                (self.work / folder).mkdir(mode=0o700, exist_ok=True)
        else:
            weights[kind] = faults.MACHINE[kind]

    def disturb(self, target: Target, stop: threading.Event) -> None:
        target.server.wait_ready()
        planned = faults.plan(self.seed, self.seconds, self.weights)
        watch = sampler.Sampler(target.server, self.events, self.out / "server.csv")
        injector = Injector(target, self.events, self.out / "pests.log")
        try:
            injector.run(planned, stop)
        finally:
            watch.stop()
        self.events.add("calm")
        self.outcome.seconds = self.events.seconds()
        if stop.is_set():
            self.outcome.problems.append(f"it was interrupted after {self.outcome.seconds:.0f} s")
        if not leftovers.sees_sessions(target.server):
            self.outcome.problems.append("no session of a client can be seen, so nothing tells whether sessions are left behind")
        if not target.jobs.finish(PATIENCE):
            self.outcome.problems.append(f"the trainers did not come to their end within {PATIENCE} s after the last fault")
        self.outcome.problems += injector.unexpected
        self.outcome.problems += [each for job in target.jobs.all for each in job.unexpected]
        self.outcome.leftovers += [line for line in leftovers.processes(self.mark) if " serve " not in line]
        self.outcome.leftovers += leftovers.sessions(target.server.pid)
        self.end_server(target.server)
        self.outcome.responses = target.web.done

    def end_server(self, server: Supervised) -> None:
        status = server.stop()
        if status != 0:
            self.outcome.problems.append("the server did not end within 5 s of SIGTERM" if status is None else f"the server ended with status {status}")
        self.outcome.problems += unexplained(self.events.all)

    def compare(self, jobs: list[Job]) -> None:
        calm = datasets.configuration(self.work / "data", self.work / "run", None, str(self.work / "data/shards"))
        config = datasets.write_configuration(self.work / "calm.yaml", calm)
        starts: dict[str, list[float]] = {}
        arrivals: dict[str, list[float]] = {}
        not_saved: list[float] = []

        @functools.cache
        def maker(stream: str) -> headrace.Maker:
            return headrace.Maker(config, stream, threads=2, output="numpy")

        @functools.cache  # a stream's trainers come one after another
        def expected(stream: str, epoch: int) -> list[str]:
            return hashes(maker(stream).rows(epoch, 0, maker(stream).info.samples))

        for number, job in enumerate(jobs, 1):
            print(f"chaos: comparing {job.plan.name} with an undisturbed run ({number} of {len(jobs)}; minutes after a long run)", flush=True)
            generations: list[Generation] = []
            for generation in job.generations:
                journals = [read(rank.journal) for rank in generation.ranks]
                generations.append((journals, generation.until))
                for rank, journal in zip(generation.ranks, journals, strict=True):
                    starts[rank.name], arrivals[rank.name] = journal.starts, journal.arrivals
                    self.outcome.errors.update(said.partition(" ")[0] for _, said in journal.errors)
                    not_saved += [time for time, said in journal.errors if said.startswith("CHECKPOINT ")]
                    self.outcome.received += len(journal.arrivals)
                self.outcome.longest_pause = max(self.outcome.longest_pause, longest_pause(iter(journals)))
            rows = functools.partial(expected, job.plan.stream)
            self.outcome.verdicts.append(check(job.plan.name, generations, rows, job.epochs, in_order=job.plan.stream != SHARDED))
        self.outcome.rolled_back = self.outcome.received - sum(verdict.batches for verdict in self.outcome.verdicts)
        self.outcome.recoveries = recoveries(self.events.all, starts, arrivals)
        self.outcome.problems += unexplained_checkpoints(self.events.all, not_saved)

    def run(self, stop: threading.Event) -> Outcome:
        def failed(thread: threading.ExceptHookArgs) -> None:
            self.outcome.problems.append(f"the harness's thread {thread.thread.name if thread.thread else '?'} failed: {thread.exc_value!r}")
            stop.set()

        threading.excepthook = failed
        try:
            with self.room() as target:
                self.disturb(target, stop)
                jobs = target.jobs.all
                self.compare(jobs)
                self.outcome.leftovers += leftovers.files(self.work / "tmp") + leftovers.files(self.work / "run", but={"lock"})
                self.outcome.leftovers += [line for line in leftovers.files(self.work) if line.endswith(leftovers.HALF_WRITTEN)]
        finally:
            self.events.close()
        self.outcome.events = self.events.all
        self.outcome.leftovers += leftovers.processes(self.mark) + leftovers.after(self.then)
        return self.outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long faults are injected (default: 1)")
    parser.add_argument("--seed", type=int, help="chooses the faults and the data (default: random)")
    parser.add_argument("--keep-server", action="store_true", help="never end the server: its memory over time shows whether it grows")
    parser.add_argument("--cpp", type=Path, default=ROOT / "build/release/tests/chaos_consumer", help="the C++ consumer")
    parser.add_argument("--out", type=Path, default=ROOT / "build/chaos", help="emptied first")
    given = parser.parse_args()
    with_own_mounts()
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    print(f"chaos: seed {seed}, {given.minutes:g} minutes, events and journals in {given.out}", flush=True)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    begun = time.monotonic()
    outcome = Run(seed, given.minutes * 60, given.out.resolve(), given.cpp.resolve(), given.keep_server).run(stop)
    spared = " --keep-server" if given.keep_server else ""
    shown = text(outcome, f"./run chaos --minutes {given.minutes:g} --seed {seed}{spared}")
    (given.out / "report.md").write_text(shown + "\n")
    print(shown)
    print(f"chaos: {'passed' if outcome.good else 'FAILED'}, seed {seed}, {time.monotonic() - begun:.0f} s")
    return 0 if outcome.good else 1


if __name__ == "__main__":
    os.environ.pop("RANK", None)
    os.environ.pop("WORLD_SIZE", None)
    sys.exit(main())
