"""tests/gpu/run.sh and what it runs, as far as that goes without a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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
        (tmp_path / f"{name}.log").write_text(f'noise\n[not run] {name} of Kornia: there is none\n[figure] {{"figure": "rate", "of": "{name}", "gb_per_s": 51.25}}\n')
    subprocess.run([sys.executable, GPU / "report.py", tmp_path / "out", tmp_path], check=True)
    (text,) = (tmp_path / "out").glob("*.md")
    lines = text.read_text().splitlines()
    assert {"| cuda | passed |", "| copies | FAILED (status 1) |", "| racecheck | not run |"} < set(lines)
    assert {"| cuda | 51.25 |", "| copies | 51.25 |"} < set(lines)
    assert {"- cuda: cuda of Kornia: there is none", "- racecheck: all of it: noise"} < set(lines)


def test_of_steps_that_are_chosen_no_other_runs_and_the_report_keeps_those_before(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: made up'\n")
    (tools / "nvidia-smi").chmod(0o755)
    tree = tmp_path / "tree"
    for part in ("run.sh", "report.py"):
        (tree / "tests" / "gpu").mkdir(parents=True, exist_ok=True)
        (tree / "tests" / "gpu" / part).write_bytes((GPU / part).read_bytes())
    logs = tree / "build" / "gpu" / "logs"
    logs.mkdir(parents=True)
    (logs / "cuda.rc").write_text("0\n")
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", tree / "tests/gpu/run.sh", "--steps", "gpu", "--out", tmp_path / "out"], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (written,) = (tmp_path / "out").glob("*.json")
    assert json.loads(written.read_text())["steps"] == {"cuda": "passed", "gpu": "passed"}


def test_a_step_that_there_is_not_is_told(tmp_path: Path) -> None:
    done = subprocess.run([GPU / "run.sh", "--steps", "cuda,benches", "--out", tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--steps benches: there are gpu configure" in done.stderr


def module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, GPU / f"{name}.py")
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def span(category: str, name: str, stream: int, begin: float, end: float, size: int = 0) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": end - begin, "args": {"device": 0, "stream": stream, "bytes": size}}


def test_copies_beside_kernels_are_told_from_a_trace() -> None:
    events = [
        {"ph": "M", "name": "process_name", "args": {"name": "python"}},
        span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 20, 100, 200, 6_000_000),
        span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 20, 300, 340, 6_000_000),
        span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 7, 0, 1000, 4),  # the trainer's own
        span("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 20, 200, 300, 9_000_000),
        span("kernel", "transform_rows", 20, 100, 400),  # the loader's own
        span("kernel", "conv", 7, 150, 180),
        span("kernel", "conv", 7, 170, 190),  # of another stream beside it: counted once
        span("kernel", "relu", 9, 190, 310),
        span("cpu_op", "aten::conv2d", 7, 0, 1000),
    ]
    overlap = module("overlap").overlap
    found = overlap(events)
    assert found == {"copies": 2, "copy_us": 140, "trainer_kernels_us": 160, "overlapped_us": 60, "share": pytest.approx(60 / 140)}
    assert overlap(events[:1])["share"] is None
    assert overlap(events[1:2])["share"] == 0


@pytest.mark.parametrize("program", ["check_torch.py", "residence_bench.py", "run_trainer.py", "overlap.py"])
def test_its_python_programs_find_nothing_wrong_on_the_twin(program: str, tmp_path: Path) -> None:
    arguments: dict[str, list[Any]] = {
        "check_torch.py": ["host"],
        "residence_bench.py": ["host"],
        "run_trainer.py": [cpp_trainer("device_trainer"), "host"],
        "overlap.py": ["host", "--out", tmp_path],
    }
    done = subprocess.run([sys.executable, GPU / program, *arguments[program]], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = {
        "check_torch.py": "ok      bytes_gpu",
        "residence_bench.py": '"figure": "resident epoch"',
        "run_trainer.py": '"figure": "C++ trainer"',
        "overlap.py": "[not run] the share of left",
    }
    assert wanted[program] in done.stdout
    if program == "overlap.py":
        assert {path.name for path in tmp_path.iterdir()} == {"overlap-finished.json.gz", "overlap-left.json.gz"}


def test_torchvisions_rows_are_those_that_the_kernel_is_compared_for(tmp_path: Path) -> None:
    program = ROOT / "build" / "release" / "tests" / "transform_bench"
    if not program.exists():
        pytest.skip("there is no CUDA toolkit that transform_bench could be built with")
    pytest.importorskip("torchvision")
    command = [sys.executable, GPU / "compare_transforms.py", program, "host", "--rows", "3", "--turns", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line.removeprefix("tried   ")) for line in done.stdout.splitlines() if line.startswith("tried ")]
    compared = {row["case"] for row in rows if row["other"] == "torchvision, a loop"}
    assert compared == {"crop-float16", "crop-float32", "colours-float16", "colours-float32"}
    assert "[figure]" not in done.stdout, "what the twin takes is no figure"
