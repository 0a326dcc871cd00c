"""tests/bench/scaling.py, on synthetic data, with the cores of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from running import ROOT, headrace_binary

SCALING = ROOT / "tests/bench/scaling.py"


def run(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCALING, "--headrace", headrace_binary(), "--out", out, "--rounds", "1", "--seconds", "0.2", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def test_synthetic_data_of_each_kind_is_served_on_one_core(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    workloads = ["w1-u8", "w2-u8", "w3-u8", "w4-cached-u8-b8"]
    ran = run(tmp_path, "--cores", "1", "--workloads", *workloads)
    assert ran.returncode == 0, ran.stderr
    printed = [json.loads(line.removeprefix("[figure] ")) for line in ran.stdout.splitlines() if line.startswith("[figure] ")]
    assert printed == json.loads((tmp_path / "scaling.json").read_text())["figures"]
    assert [(figure["workload"], figure["cores"], figure["over_one_core"]) for figure in printed] == [(name, 1, 1.0) for name in workloads]
    assert all(figure["samples_per_s"] > 0 and figure["cpu_us"] > 0 and figure["with_a_client"] > 0 for figure in printed)
    assert (tmp_path / "scaling.png").exists() != ("[not run] the plot" in ran.stdout)


def test_a_workload_that_cannot_be_measured_fails_the_run_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "set" / "class").mkdir(parents=True)
    (tmp_path / "set" / "class" / "no.jpg").write_bytes(b"no picture")
    ran = run(tmp_path, "--cores", "1", "--workloads", "w3-u8", "w1-u8", "--data", f"imagenet={tmp_path / 'set'}")
    assert ran.returncode == 1
    assert "scaling: w3-u8: " in ran.stderr
    assert [figure["workload"] for figure in json.loads((tmp_path / "scaling.json").read_text())["figures"]] == ["w1-u8"]


def test_missing_cores_and_data_of_no_workload_are_reported(tmp_path: Path) -> None:
    assert "--cores: expected at least one number up to " in run(tmp_path, "--cores", "100000").stderr
    assert "--data photos: unknown dataset, expected one of mnist" in run(tmp_path, "--data", "photos=there").stderr
