"""headrace.pack(): workers that die, and workers that ignore SIGTERM."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from headrace._pack_samples import WorkerPool
from headrace.errors import DatasetInvalid, EnvironmentFailed, InvalidArgument
from packing_datasets import Counted
from running import wait_until
from test_pack import inspect

warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)


class Deaf(Counted):
    """Sample 1 raises when sample 2's worker has begun a long sleep and hears no SIGTERM."""

    def __getitem__(self, index: int) -> Any:
        deaf = self.log.with_name("deaf")
        if index == 1:
            wait_until(deaf.exists, "the other worker to be deaf")
            raise ValueError("no sample 1 today")
        if index == 2:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            deaf.touch()
            time.sleep(60)
            self.log.with_name("awake").touch()
        return super().__getitem__(index)


def test_a_worker_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with pytest.raises(DatasetInvalid, match="sample 1: the dataset raised ValueError: no sample 1 today"):
        headrace.pack(Deaf(tmp_path / "calls"), tmp_path / "set.lmdb", workers=3, progress=False)
    assert not (tmp_path / "awake").exists()


class Blocks(Counted):
    """Samples of 256 KB in blocks; sample 1 is made after the last one. `log` has the process of each sample."""

    pack_blocks = (10, 0, 15, 15)

    def __getitem__(self, index: int) -> Any:
        with self.log.open("a") as log:
            log.write(f"{index} {os.getpid()}\n")
        if index == 1:
            wait_until(lambda: "\n39 " in self.log.read_text(), "the worker of the last block to run ahead")
        return np.full(1 << 18, index, np.uint8)


def test_one_worker_makes_each_block_and_runs_ahead(tmp_path: Path) -> None:
    dataset = Blocks(tmp_path / "calls")
    headrace.pack(dataset, tmp_path / "set.lmdb", workers=8, progress=False)
    makers = dict(line.split() for line in dataset.log.read_text().splitlines())
    assert [len({makers[str(index)] for index in block}) for block in (range(10), range(10, 25), range(25, 40))] == [1, 1, 1]
    assert len(set(makers.values())) == 3
    headrace.pack([np.full(1 << 18, index, np.uint8) for index in range(40)], tmp_path / "rows.lmdb", workers=0, progress=False)
    assert inspect(tmp_path / "set.lmdb")["fingerprint"] == inspect(tmp_path / "rows.lmdb")["fingerprint"]


def test_blocks_must_have_all_samples(tmp_path: Path) -> None:
    dataset = Blocks(tmp_path / "calls", count=41)
    with pytest.raises(InvalidArgument, match="`pack_blocks` have 40 samples, expected 41 as its length says"):
        headrace.pack(dataset, tmp_path / "set.lmdb", workers=2, progress=False)


def test_workers_do_not_have_the_programs_handler_of_sigterm(tmp_path: Path) -> None:
    class Tells(Counted):
        def __getitem__(self, index: int) -> Any:
            raise ValueError(f"the handler is {signal.getsignal(signal.SIGTERM)!r}")

    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        with pytest.raises(DatasetInvalid, match="the handler is <Handlers.SIG_DFL"):
            headrace.pack(Tells(tmp_path / "calls"), tmp_path / "set.lmdb", workers=1, progress=False)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_worker_that_is_dead_before_it_is_asked_is_named(tmp_path: Path) -> None:
    def kill(worker: int) -> None:
        os.kill(crew._processes[worker].pid, signal.SIGKILL)
        crew._processes[worker].join(20)

    with WorkerPool(Counted(tmp_path / "calls"), 40, 2, "fork") as crew:
        fields = crew.describe(None)
        assert isinstance(fields, list)
        kill(1)
        with pytest.raises(EnvironmentFailed, match="the worker that made sample 1 ended with status -9"):
            crew.feed(0, fields, 0, False, lambda data: None)
        kill(0)
        with pytest.raises(EnvironmentFailed, match="the worker that made sample 0 ended with status -9"):
            crew.describe(None)


def test_a_forked_child_closes_the_records_pipe_once(tmp_path: Path) -> None:
    def child() -> int:
        """Returns how many of its own files the child loses."""
        mine = [os.open(os.devnull, os.O_RDONLY) for _ in range(64)]  # one has the number that the pipe had
        for each in gc.get_objects():
            if type(each) is subprocess.Popen and each.stdin is not None:
                each.stdin.close()
        return sum(not Path(f"/proc/self/fd/{each}").exists() for each in mine)

    lost: list[int] = []

    def samples() -> Iterator[float]:
        yield 0.5
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            status = 99
            try:
                status = child()
            finally:
                os._exit(status)
        lost.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        yield 1.5

    assert headrace.pack(samples(), tmp_path / "set.lmdb", progress=False).samples == 2
    assert lost == [0]
