"""The comparison with other loaders (tests/bench/peers), on small data and without the other loaders."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from running import ROOT, headrace_binary

BENCH = ROOT / "tests/bench"
sys.path.insert(0, str(BENCH))

from peers import contest, processes, report  # noqa: E402
from peers.rows import ROWS, Row, rows_of  # noqa: E402
from peers.workloads import WORKLOADS  # noqa: E402

SAMPLES = 200  # of the files; they are taken six times over


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files as MNIST's test set has them."""
    folder = tmp_path_factory.mktemp("mnist")
    random = np.random.default_rng(0)
    images = (random.random((SAMPLES, 28, 28)) ** 3 * 255).astype(np.uint8)
    header = b"\0\0\x08\x03" + np.array(images.shape, ">i4").tobytes()
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images.tobytes()))
    labels = random.integers(0, 10, SAMPLES, np.uint8)
    header = b"\0\0\x08\x01" + np.array([SAMPLES], ">i4").tobytes()
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(header + labels.tobytes()))
    return folder


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "peers", *options]
    env = {**os.environ, "HEADRACE_BINARY": headrace_binary()}
    return subprocess.run(command, cwd=BENCH, env=env, capture_output=True, text=True, timeout=100, check=False)


def test_errors_name_the_wrong_argument_of_a_run(mnist: Path, tmp_path: Path) -> None:
    ran = run("--data", f"mnist={mnist}", "--loaders", "headrac")
    assert ran.returncode == 2 and "--loaders headrac: there are headrace, " in ran.stderr
    for name, words in (("mnist", "t10k-images-idx3-ubyte"), ("pairs", "no files NAME_HR.png"), ("imagenet", "no folder per class")):
        ran = run("--data", f"{name}={tmp_path}", "--loaders", "headrace")
        assert ran.returncode == 1 and f"peers: --data {name}={tmp_path}: " in ran.stderr and words in ran.stderr
        assert "Traceback" not in ran.stderr


def test_loaders_are_compared_and_do_the_same_work(mnist: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = set(Path("/tmp").glob("headrace-peers-*"))
    loaders = ["headrace", "headrace-copies", "numpy", "numpy-normalized"]
    ran = run("--data", f"mnist={mnist}", "--workloads", "w1-f32", "--loaders", *loaders, "--rounds", "1", "--seconds", "0.2", "--out", str(out))
    assert ran.returncode == 0, ran.stderr
    assert set(Path("/tmp").glob("headrace-peers-*")) <= before, "left behind"
    raw = json.loads((out / "results.json").read_text())["workloads"][0]
    assert [one["loader"] for one in raw["loaders"]] == loaders
    for one in raw["loaders"]:
        assert not one["error"]
        (field,) = one["first_batches"]
        assert (field["shape"], field["dtype"]) == ([300, 1, 28, 28], "float32")
        (measured,) = one["rounds"]
        assert measured["samples"] > 0 and measured["samples"] % 300 == 0, "whole batches are counted"
        assert measured["seconds"] >= 0.2 and measured["cpu"] > 0 and one["memory_bytes"] > 1e6
    means = [one["first_batches"][0]["mean"] for one in raw["loaders"]]
    assert max(means) - min(means) < 0.02
    table = [line for line in ran.stdout.splitlines() if line.startswith("|")]
    assert table[:2] == list(report.HEADER)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]
    assert [len(line) for line in cells] == [7] * len(loaders)
    assert cells[0][0] == "headrace" and cells[0][5] == "1.00"
    assert (out / "results.md").read_text().count("\n|") >= len(table)


def test_a_loader_that_cannot_run_is_listed_with_its_error(mnist: Path, tmp_path: Path) -> None:
    row = Row("absent", "no_such_loader", ("mnist",), "-")
    workload = WORKLOADS["w1-u8"]
    settings = contest.Settings({"mnist": str(mnist)}, tmp_path, rounds=1, seconds=0.1)
    results = contest.compete(workload, [row], settings)
    assert "ModuleNotFoundError: No module named 'peers.loaders.no_such_loader'" in results[0].error
    assert "| absent | - | did not run: ModuleNotFoundError" in report.table(workload, results)


def test_loaders_that_do_other_work_are_reported() -> None:
    mine = {"shape": [8, 3, 4, 4], "dtype": "float32", "mean": 0.0, "std": 1.0}
    assert contest.differs([mine], [dict(mine, mean=0.1)]) == ""
    assert contest.differs([mine], []) == "1 image fields instead of 0"
    assert contest.differs([mine], [dict(mine, shape=[8, 4, 4, 3])]).endswith("instead of float32 [8, 4, 4, 3]")
    assert contest.differs([mine], [dict(mine, mean=0.5)]) == "mean 0 instead of 0.5"
    assert contest.differs([mine], [dict(mine, std=2.0)]) == "standard deviation 1 instead of 2"


def test_a_stopped_tree_uses_no_cpu_and_continues() -> None:
    burn = "while True: pass"
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {burn!r}])\n{burn}"]
    )
    roots = [parent.pid]
    try:
        until = time.monotonic() + 20
        while len(processes.tree(roots)) < 2 or processes.cpu_seconds(roots) < 0.3:
            assert time.monotonic() < until
            time.sleep(0.02)
        processes.stop(roots)
        stopped = processes.cpu_seconds(roots)
        time.sleep(0.2)
        assert processes.cpu_seconds(roots) - stopped < 0.02
        assert processes.memory_bytes(roots) > 2e6
        processes.go_on(roots)
        while processes.cpu_seconds(roots) < stopped + 0.1:
            assert time.monotonic() < until
            time.sleep(0.02)
        pids = processes.tree(roots)
        processes.end(roots)
        assert len(pids) == 2 and not any(processes.alive(pid) for pid in pids)
    finally:
        processes.end(roots)
        parent.wait()


def test_every_workload_has_headrace_first_and_other_loaders() -> None:
    for workload in WORKLOADS.values():
        rows = rows_of(workload)
        assert rows[0].name == "headrace" and len(rows) > 2, workload.name
        assert len({row.name for row in rows}) == len(rows)
    assert {row.module for row in ROWS} <= {path.stem for path in (BENCH / "peers/loaders").glob("*.py")}


@pytest.mark.skipif(not os.environ.get("HEADRACE_STRESS"), reason="asks the package index for a minute: HEADRACE_STRESS=1")
def test_the_pinned_packages_can_be_installed_together() -> None:
    install = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "-r", BENCH / "peers/requirements.txt"]
    resolved = subprocess.run(install, capture_output=True, text=True, timeout=600, check=False)
    assert resolved.returncode == 0, resolved.stderr
