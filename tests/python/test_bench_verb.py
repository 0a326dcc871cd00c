"""`headrace bench` on a machine that lets it start no processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
import yaml
from running import copied_binary, headrace_binary, wait_until

NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="runs as another user, whose processes it would end if it failed")
@pytest.mark.parametrize("processes", [2, 3])
def test_a_bench_that_gets_no_process_says_so_and_ends_nobody_elses(processes: int) -> None:
    def become_nobody() -> None:
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)

    config = {
        "server": {"threads": 1, "metrics": "off"},
        "sources": {"rows": {"type": "synthetic", "count": 100, "bytes": 16}},
        "streams": {"train": {"source": "rows", "batch_size": 4}},
    }
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        binary = copied_binary(Path(folder))
        path = Path(folder) / "bench.yaml"
        path.write_text(yaml.safe_dump(config))
        bystander = subprocess.Popen(["sleep", "60"], user=NOBODY, group=NOBODY, extra_groups=[])
        try:
            bench = subprocess.run(
                [binary, "bench", str(path), "--stream", "train", "--clients", "2", "--seconds", "0.2"],
                preexec_fn=become_nobody,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert bench.returncode == 3, bench.stdout + bench.stderr
            assert "ENVIRONMENT: no process for a client" in bench.stderr
            assert bystander.poll() is None, "another process of this user was ended"
        finally:
            bystander.kill()
            bystander.wait()


def started_bench(folder: Path, *options: str) -> tuple[subprocess.Popen[str], Path]:
    """And the folder for its temporary files."""
    config = {
        "sources": {"rows": {"type": "synthetic", "count": 100, "bytes": 16}},
        "streams": {"train": {"source": "rows", "batch_size": 4}},
    }
    (folder / "bench.yaml").write_text(yaml.safe_dump(config))
    scratch = folder / "tmp"
    scratch.mkdir(exist_ok=True)
    command = [headrace_binary(), "bench", str(folder / "bench.yaml"), "--stream", "train", *options]
    return subprocess.Popen(command, env={**os.environ, "TMPDIR": str(scratch)}, stderr=subprocess.PIPE, text=True), scratch


def wait_serving(bench: subprocess.Popen[str], scratch: Path) -> None:
    def serves() -> bool:
        assert bench.poll() is None
        with contextlib.suppress(FileNotFoundError):
            return any((folder / "control.sock").exists() and (folder / "lock").read_text() == str(bench.pid) for folder in scratch.iterdir())
        return False

    wait_until(serves, "the bench's server")


def is_free(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_the_next_bench_removes_the_files_of_a_killed_one(tmp_path: Path) -> None:
    killed, scratch = started_bench(tmp_path, "--seconds", "600", "--clients", "2")
    wait_serving(killed, scratch)
    killed.kill()
    killed.communicate()
    (left,) = scratch.iterdir()
    wait_until(lambda: is_free(left), "the end of its clients")
    alive, _ = started_bench(tmp_path, "--seconds", "600", "--clients", "1")
    try:
        wait_serving(alive, scratch)
        (its,) = scratch.iterdir()
        assert its != left
        short, _ = started_bench(tmp_path, "--seconds", "0.2", "--clients", "0")
        assert short.wait(60) == 0, short.communicate()
        assert list(scratch.iterdir()) == [its], "a folder in use must stay"
    finally:
        alive.terminate()
        alive.communicate(timeout=60)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_bench_says_so_and_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    bench, scratch = started_bench(tmp_path, "--seconds", "600", "--clients", "2")
    try:
        wait_serving(bench, scratch)
        bench.send_signal(number)
        told = bench.communicate(timeout=60)[1]
    finally:
        bench.kill()
    assert bench.returncode == 130 and "interrupted" in told
    assert list(scratch.iterdir()) == []
