"""tests/gpu/run.sh and what it runs, as far as that goes without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from running import ROOT
from test_trainers import cpp_trainer

GPU = ROOT / "tests" / "gpu"


def test_without_a_gpu_it_fails_and_its_report_says_at_what(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 'no devices were found' >&2\nexit 6\n")
    (tools / "nvidia-smi").chmod(0o755)
    out = tmp_path / "results"
    path = f"{tools}:{os.environ['PATH']}"
    done = subprocess.run([GPU / "run.sh", "--out", out], capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": path})
    assert done.returncode == 1
    assert "FAILED (6)" in done.stdout
    assert "no devices were found" in done.stderr
    (written,) = out.glob("*.json")
    found = json.loads(written.read_text())
    assert found["steps"] == {"gpu": "FAILED (status 6)"}
    assert "| gpu | FAILED (status 6) |" in written.with_suffix(".md").read_text()


def test_figures_of_all_steps_are_in_the_report(tmp_path: Path) -> None:
    for name, status in (("cuda", "0"), ("copies", "1"), ("racecheck", "not run")):
        (tmp_path / f"{name}.rc").write_text(status + "\n")
        (tmp_path / f"{name}.log").write_text(f'noise\n[figure] {{"figure": "rate", "of": "{name}", "gb_per_s": 51.25}}\n')
    subprocess.run([sys.executable, GPU / "report.py", tmp_path / "out", tmp_path], check=True)
    (text,) = (tmp_path / "out").glob("*.md")
    lines = text.read_text().splitlines()
    assert {"| cuda | passed |", "| copies | FAILED (status 1) |", "| racecheck | not run |"} < set(lines)
    assert {"| cuda | 51.25 |", "| copies | 51.25 |"} < set(lines)


@pytest.mark.parametrize("program", ["check_torch.py", "residence_bench.py", "run_trainer.py"])
def test_its_python_programs_find_nothing_wrong_on_the_twin(program: str) -> None:
    arguments = [cpp_trainer("device_trainer"), "host"] if program == "run_trainer.py" else ["host"]
    done = subprocess.run([sys.executable, GPU / program, *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    said = {"check_torch.py": "ok      large", "residence_bench.py": '"figure": "resident epoch"', "run_trainer.py": '"figure": "C++ trainer"'}
    assert said[program] in done.stdout
