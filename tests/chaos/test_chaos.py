"""A minute of chaos, and a consumer that is broken on purpose."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import headrace
import pytest
from checker import Verdict, check
from consumer import hashes
from events import Events
from images import write_images
from jobs import Job, Plan
from journal import last_epoch, read
from supervised import Supervised

HERE = Path(__file__).parent


@pytest.mark.timeout(480)
def test_a_minute_of_chaos_loses_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "chaos.py"), "--minutes", "1", "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        try:
            said, _ = run.communicate(timeout=420)
        except subprocess.TimeoutExpired:
            run.terminate()  # it ends what it started
            raise
    assert run.returncode == 0, said


def test_a_folder_to_which_another_run_writes_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "events.csv").touch()
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    command = [sys.executable, str(HERE / "chaos.py"), "--out", str(tmp_path)]
    refused = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    os.close(other)
    assert refused.returncode == 1 and f"chaos: another run writes to {tmp_path}; name another folder" in refused.stdout
    assert (tmp_path / "events.csv").exists()


def test_the_next_generation_of_ranks_begins_at_the_least_checkpoint_and_leaves_no_other(tmp_path: Path) -> None:
    """Those of many generations would fill the small disk."""
    folders = {"journals": tmp_path, "checkpoints": tmp_path / "checkpoints", "cpp": tmp_path / "trainer"}
    folders["checkpoints"].mkdir()
    folders["cpp"].write_text("#!/bin/sh\nexec sleep 60\n")
    folders["cpp"].chmod(0o755)
    events = Events(tmp_path / "events.csv")
    job = Job(Plan("ranks", "packed", ["cpp"], worlds=(2, 2)), folders, "", 1, events, {})
    for rank, batch in zip(job.ranks, (5, 4), strict=True):
        rank.checkpoint.write_text(json.dumps({"kept": batch, "state": {"cursor": {"epoch": 1, "batch": batch}}}))
    job.ranks[0].checkpoint.with_suffix(".new").touch()  # of a trainer that was killed while it saved
    job.signal(job.ranks[0], signal.SIGKILL)
    end = time.monotonic() + 10
    while len(job.generations) == 1 and time.monotonic() < end:
        job.tend()
    job.kill()
    events.close()
    first, second = job.generations
    assert first.until == (1, 4) and second.state == {"cursor": {"epoch": 1, "batch": 4}}
    assert not list(folders["checkpoints"].iterdir())


@pytest.fixture
def calm(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What a consumer of one stream of images is given, with its server."""
    write_images(tmp_path / "images", datasets.CLASSES, datasets.PER_CLASS, seed=1)
    whole = datasets.configuration(tmp_path, tmp_path / "run", None, "")
    config = {**whole, "sources": {"folder": whole["sources"]["folder"]}, "streams": {"folder": whole["streams"]["folder"]}}
    config["server"]["metrics"] = "off"
    file = datasets.write_configuration(tmp_path / "calm.yaml", config)
    events = Events(tmp_path / "events.csv")
    server = Supervised(file, tmp_path / "run", tmp_path / "server.log", events, {}, None)
    files = {name: str(tmp_path / name) for name in ("journal", "checkpoint", "end")}
    alone = {"address": server.address, "stream": "folder", "group": "job", "name": "job", "rank": 0, "world_size": 1, "state": None}
    yield {**alone, **files, "seed": 1, "step": 0.002, "zero_copy": False, "config": str(file)}
    assert server.stop() == 0
    events.close()


@contextlib.contextmanager
def consumer(given: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, str(HERE / "consumer.py"), json.dumps(given)]) as process:
        try:
            yield process
        finally:
            process.kill()


def batches(given: dict[str, Any]) -> int:
    return len(read(Path(given["journal"])).arrivals)


def killed_and_resumed(given: dict[str, Any], keep_all: bool) -> Verdict:
    """`keep_all`: the second process resumes at its checkpoint, but counts all that the first one received."""
    checkpoint = Path(given["checkpoint"])
    with consumer(given) as first:
        behind = 0
        while batches(given) < 30 or behind <= 0:
            first.send_signal(signal.SIGCONT)
            time.sleep(0.05)
            first.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, first.pid, os.WSTOPPED)  # until then it writes on
            behind = batches(given) - json.loads(checkpoint.read_text())["kept"] if checkpoint.exists() else 0
        first.kill()
        first.wait()
    if keep_all:
        checkpoint.write_text(json.dumps({**json.loads(checkpoint.read_text()), "kept": batches(given)}))
    end = last_epoch(Path(given["journal"])) + 2
    Path(given["end"]).write_text(str(end))
    with consumer(given) as second:
        assert second.wait(60) == 0
    maker = headrace.Maker(given["config"], "folder", output="numpy")
    journal = read(Path(given["journal"]))
    return check("job", [([journal], None)], lambda epoch: hashes(maker.rows(epoch, 0, maker.info.samples)), end, True)


def test_a_killed_consumer_goes_on_at_its_checkpoint(calm: dict[str, Any]) -> None:
    assert killed_and_resumed(calm, keep_all=False).good


def test_a_broken_consumer_that_skips_its_rollback_is_found(calm: dict[str, Any]) -> None:
    found = killed_and_resumed(calm, keep_all=True)
    assert found.duplicated and not found.lost
