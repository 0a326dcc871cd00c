"""`headrace bench` where the machine gives it no processes."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import yaml
from running import headrace_binary

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
        binary = shutil.copy(headrace_binary(), folder)  # where that user may read it
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_bench_says_so_and_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    config = {
        "sources": {"rows": {"type": "synthetic", "count": 100, "bytes": 16}},
        "streams": {"train": {"source": "rows", "batch_size": 4}},
    }
    (tmp_path / "bench.yaml").write_text(yaml.safe_dump(config))
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    bench = subprocess.Popen(
        [headrace_binary(), "bench", str(tmp_path / "bench.yaml"), "--stream", "train", "--seconds", "600", "--clients", "2"],
        env={**os.environ, "TMPDIR": str(scratch)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not list(scratch.glob("headrace-bench-*/control.sock")):
            assert bench.poll() is None
            time.sleep(0.01)
        bench.send_signal(number)
        told = bench.communicate(timeout=60)[1]
    finally:
        bench.kill()
    assert bench.returncode == 130 and "interrupted" in told
    assert list(scratch.iterdir()) == []
