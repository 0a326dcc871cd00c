"""tests/gpu/kit without a GPU: the archive, its stages, a run that is interrupted, one that hangs. The programs that its stages run, on the
CPU backend."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from running import ROOT, wait_until
from test_trainers import cpp_trainer

GPU = ROOT / "tests" / "gpu"
BUILD = ROOT / "build" / "release"
STRESS = bool(os.environ.get("HEADRACE_STRESS"))
NO_GPU = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
NEED_A_GPU = ("probe", "exact", "copy", "kernels", "torch", "train-mnist", "train-cifar", "train-resnet", "share", "sanitize")


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked kit of the release build and the installed package."""
    if not (BUILD / "tests" / "device_probe").exists():
        pytest.skip("the release build has no device_probe: the CUDA toolkit, which the kit needs, was not found")
    folder = tmp_path_factory.mktemp("kit")
    command = [sys.executable, GPU / "kit", "build", "--from", BUILD, "--out", folder / "kit.tgz"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "unpacked").mkdir()
    subprocess.run(["tar", "xzf", folder / "kit.tgz", "-C", folder / "unpacked"], check=True)
    return folder / "unpacked"


def command(kit: Path, folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, str(kit / "kit"), "run", *arguments, "--state", str(folder / "state"), "--out", str(folder / "out")]


def run(kit: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(kit, folder, *arguments), capture_output=True, text=True, timeout=110, env=NO_GPU)


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out" / "report.json").read_text())
    return found


@pytest.fixture
def copy_of_kit(kit: Path, tmp_path: Path) -> Path:
    """A copy of the kit whose programs a test may replace."""
    copied = tmp_path / "kit"
    for name in ("bin", "tests/bench"):
        (copied / name).mkdir(parents=True)
    for name in ("kit", "kit.json"):
        (copied / name).write_bytes((kit / name).read_bytes())
    (copied / "tests" / "gpu").mkdir()
    for file in (kit / "tests" / "gpu").glob("*.py"):
        (copied / "tests" / "gpu" / file.name).write_bytes(file.read_bytes())
    for name in ("device_rows_test", "resident_rows_test"):
        program(copied / "bin" / name, "exit 0")
    (copied / "tests" / "bench" / "peers").mkdir()
    for name in ("__init__.py", "processes.py"):
        (copied / "tests" / "bench" / "peers" / name).write_bytes((kit / "tests" / "bench" / "peers" / name).read_bytes())
    (copied / "tests" / "bench" / "scaling.py").write_text("""print('[figure] {"figure": "scaling", "cores": 1}')\n""")
    return copied


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_without_a_gpu_every_stage_that_needs_one_says_so_and_the_report_is_written(kit: Path, tmp_path: Path) -> None:
    done = run(kit, tmp_path, "all", "--brief")
    assert done.returncode == 1, done.stdout + done.stderr
    stages = report(tmp_path)["stages"]
    assert {name: stage["status"] for name, stage in stages.items()} == {**dict.fromkeys(NEED_A_GPU, "no GPU"), **dict.fromkeys(("peers", "peers-files", "scaling"), "passed")}, done.stdout
    steps = {step["step"]: step["status"] for step in stages["exact"]["steps"]}
    assert steps["cuda_rows_test"] == "no GPU"
    assert steps["device_rows_test"] == steps["resident_rows_test"] == "passed"
    assert [figure["workload"] for figure in stages["scaling"]["figures"]] == ["w1-f32"]
    assert all(goal["measured"] == "not run yet" for goal in report(tmp_path)["goals"])
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| exact | cuda_rows_test | no GPU |" in text
    assert len(list((tmp_path / "out").iterdir())) <= 8
    with tarfile.open(tmp_path / "out" / "logs.tgz") as logs:
        assert "logs/exact.device_rows_test.log" in logs.getnames()


def test_nothing_in_the_kit_loads_a_library_from_this_machine_that_the_kit_could_bring(kit: Path) -> None:
    own = ("linux-vdso", "ld-linux", "libc.", "libm.", "libpthread.", "libdl.", "librt.", "libresolv.", "libstdc++.", "libgcc_s.")
    for file in [*(kit / "bin").iterdir(), *(kit / "python" / "headrace").glob("*.so")]:
        found = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout
        for line in found.splitlines():
            name, _, place = (part.strip() for part in line.partition("=>"))
            if place and not name.startswith(own):
                assert "/lib/" in place and Path(place.split(" (")[0]).resolve().is_relative_to(kit.resolve()), f"{file.name}: {line}"


def test_an_interrupted_run_goes_on_behind_the_last_stage_that_ended(copy_of_kit: Path, tmp_path: Path) -> None:
    program(copy_of_kit / "bin" / "device_rows_test", f"touch {tmp_path}/begun; sleep 60 & wait")
    running = subprocess.Popen(command(copy_of_kit, tmp_path, "scaling", "exact"), stdout=subprocess.PIPE, text=True, env=NO_GPU)
    wait_until((tmp_path / "begun").exists, "the second stage")
    running.send_signal(signal.SIGTERM)
    assert running.communicate(timeout=20)[0].count("scaling: passed") == 1
    assert running.returncode == 128 + signal.SIGTERM
    stages = report(tmp_path)["stages"]
    assert {name: stage["status"] for name, stage in stages.items()} == {"exact": "unfinished", "scaling": "passed"}
    assert [step["step"] for step in stages["exact"]["steps"]] == ["cuda_copy_test", "cuda_rows_test", "cuda_loader_test"], "the steps that had ended"
    program(copy_of_kit / "bin" / "device_rows_test", "exit 0")
    done = run(copy_of_kit, tmp_path, "scaling", "exact")
    assert "scaling: skipped, already passed in an earlier call (--again repeats it)" in done.stdout
    assert "exact: no GPU" in done.stdout
    assert {name: stage["status"] for name, stage in report(tmp_path)["stages"].items()} == {"exact": "no GPU", "scaling": "passed"}
    assert report(tmp_path)["stages"]["scaling"]["figures"] == [{"step": "scaling", "figure": "scaling", "cores": 1}]


def test_the_state_of_another_kit_is_not_used(copy_of_kit: Path, tmp_path: Path) -> None:
    assert run(copy_of_kit, tmp_path, "scaling").returncode == 0
    about = json.loads((copy_of_kit / "kit.json").read_text())
    (copy_of_kit / "kit.json").write_text(json.dumps({**about, "kit": "another"}))
    assert "skipped" not in run(copy_of_kit, tmp_path, "scaling").stdout


def test_a_stage_that_hangs_is_ended_with_all_its_processes(copy_of_kit: Path, tmp_path: Path) -> None:
    # One child in the step's session, and a stopped one in its own session, like a paused server.
    program(copy_of_kit / "bin" / "device_rows_test", f"sleep 60 & echo $! > {tmp_path}/child; setsid sh -c 'echo $$ > {tmp_path}/stopped; kill -STOP $$' & wait")
    begun = time.monotonic()
    done = run(copy_of_kit, tmp_path, "exact", "--limit", "4")
    assert done.returncode == 1
    assert time.monotonic() - begun < 30
    assert "exact: timed out" in done.stdout
    steps = {step["step"]: (step["status"], step["why"]) for step in report(tmp_path)["stages"]["exact"]["steps"]}
    assert steps["device_rows_test"] == ("timed out", "killed after 4 s (--limit)")
    assert steps["resident_rows_test"] == ("timed out", "not started: the stage used up its --limit")
    for name in ("child", "stopped"):
        status = Path(f"/proc/{int((tmp_path / name).read_text())}/status")
        assert not status.exists() or "State:\tZ" in status.read_text(), f"{name} outlived the run"


def test_a_python_program_that_hangs_says_where(copy_of_kit: Path, tmp_path: Path) -> None:
    program(copy_of_kit / "bin" / "device_rows_test", f"{sys.executable} -c 'import time\ndef waits_here(): time.sleep(60)\nwaits_here()'")
    assert "exact: timed out" in run(copy_of_kit, tmp_path, "exact", "--limit", "4").stdout
    with tarfile.open(tmp_path / "out" / "logs.tgz") as logs:
        log = logs.extractfile("logs/exact.device_rows_test.log")
        assert log is not None
        assert "in waits_here" in log.read().decode()


def test_a_failed_step_is_named_with_the_end_of_its_output(copy_of_kit: Path, tmp_path: Path) -> None:
    program(copy_of_kit / "bin" / "device_rows_test", "echo row 3 differs; exit 5")
    done = run(copy_of_kit, tmp_path, "exact")
    assert done.returncode == 1
    assert "device_rows_test         failed, exit status 5" in done.stdout
    assert "row 3 differs" in done.stdout
    assert report(tmp_path)["stages"]["exact"]["status"] == "failed"


def test_an_unknown_stage_is_refused(copy_of_kit: Path, tmp_path: Path) -> None:
    done = run(copy_of_kit, tmp_path, "exact", "benches")
    assert done.returncode == 2
    assert "unknown stage 'benches', expected all or one of probe, exact" in done.stderr


@pytest.mark.skipif(not STRESS, reason="compiles everything and fetches packages: HEADRACE_STRESS=1")
@pytest.mark.timeout(3000)
def test_a_whole_kit_is_built_and_small_enough(tmp_path: Path) -> None:
    done = subprocess.run([GPU / "kit", "build", "--out", tmp_path / "kit.tgz"], capture_output=True, text=True, timeout=2900)
    assert done.returncode == 0, done.stdout + done.stderr
    with tarfile.open(tmp_path / "kit.tgz") as archive:
        names = archive.getnames()
    assert any(name.startswith("python/headrace/_headrace.cpython-312") for name in names)
    assert {"kit", "kit.json", "bin/cuda_rows_test", "extra/kornia", "extra/kornia_rs"} < set(names)


def module(name: str) -> Any:
    sys.path.insert(0, str(GPU))
    try:
        spec = importlib.util.spec_from_file_location(name, GPU / f"{name}.py")
        assert spec
        assert spec.loader
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[name] = loaded  # dataclasses look up their module here
        spec.loader.exec_module(loaded)
    finally:
        sys.path.remove(str(GPU))
    return loaded


def test_goals_are_met_or_missed_by_their_worst_figure() -> None:
    found = module("kit_report")
    figures = [
        {"figure": "host to device", "batch_kb": 4096.0, "share_of_pinned": 0.9, "over_pageable": 0.2},
        {"figure": "host to device", "batch_kb": 16384.0, "share_of_pinned": 0.97, "over_pageable": 0.2},
        {"figure": "host to device", "batch_kb": 38912.0, "share_of_pinned": 0.94, "over_pageable": 0.2},
        {"figure": "epoch of a dataset in GPU memory", "of": "CIFAR-10, 50000 images, batches of 500, crop, flip, float16", "epoch_ms": 24.0, "over_torch": 0.1},
        {"figure": "transforms", "other": "torchvision, per image", "wall_ratio": 90.0, "device_ratio": 2.0},
        {"figure": "transforms", "other": "torchvision, one draw", "wall_ratio": 9.0, "device_ratio": 4.0},
        {"figure": "transforms", "other": "Kornia", "wall_ratio": 9.0},  # without a device time
    ]
    measured = {goal.what: goal.measured(figures) for goal in found.GOALS}
    assert measured["host to device, batches of 4 MB: speed as a fraction of cudaMemcpyAsync from pinned memory"] == ("0.9", "met")
    assert measured["host to device, batches of 16 MB and more: speed as a fraction of cudaMemcpyAsync from pinned memory"] == ("0.94", "missed")
    assert measured["CIFAR-10 in GPU memory (50,000 images, crop, flip, normalize, float16): time of an epoch"] == ("24 ms", "met")
    pageable = "host to device, batches below 4 MB: time relative to cudaMemcpyAsync from pageable memory, which is how torch copies a plain tensor"
    assert measured[pageable] == ("not run yet", "")
    assert measured["torchvision v2 on the whole batch, with one random draw: device time relative to Headrace's kernel"] == ("4", "met")
    assert measured["Kornia with random draws per image: device time relative to Headrace's kernel"] == ("not run yet", "")


# Simulates a container that limits pool pages: the memfd is created, but its pages do not exist when they are accessed.
NO_POOL = r"""
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static int pool = -1;
int memfd_create(const char* name, unsigned flags) {
  int fd = syscall(SYS_memfd_create, name, flags & 3);
  if (flags & MFD_HUGETLB) pool = fd;
  return fd;
}
int ftruncate(int fd, off_t size) { return fd == pool ? 0 : syscall(SYS_ftruncate, fd, size); }
"""


def test_the_probe_survives_a_pool_without_pages_and_writes_each_line_at_once(kit: Path, tmp_path: Path) -> None:
    (tmp_path / "shim.c").write_text(NO_POOL)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "shim.so", tmp_path / "shim.c"], check=True)
    with (tmp_path / "log").open("w") as log:  # a file, as in `kit run`
        done = subprocess.run([kit / "bin" / "device_probe"], stdout=log, stderr=log, timeout=60, env={**NO_GPU, "LD_PRELOAD": str(tmp_path / "shim.so")})
    assert done.returncode == 1
    first, *_, last = (tmp_path / "log").read_text().splitlines()
    assert first == "[not run] cannot use a memfd with pages of 2 MB, of the pool: the test was ended by signal 7 (Bus error)"
    assert last.startswith("device_probe: "), "lines printed before the error must not stay in a buffer"


def span(category: str, name: str, stream: int, begin: float, end: float, size: int = 0, number: int = 0) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": end - begin, "args": {"device": 0, "stream": stream, "bytes": size, "correlation": number}}


def test_overlap_of_copies_and_kernels_is_read_from_a_trace() -> None:
    events = [
        {"ph": "M", "name": "process_name", "args": {"name": "python"}},
        span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 20, 100, 200, 6_000_000),
        span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 20, 300, 340, 6_000_000),
        span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 7, 0, 1000, 4),  # the trainer's own
        span("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 20, 200, 300, 9_000_000),
        span("kernel", "transform_rows", 20, 100, 400),  # the loader's own
        span("kernel", "conv", 7, 150, 180, number=1),
        span("kernel", "conv", 7, 170, 190, number=2),  # of another stream beside it: counted once
        span("kernel", "relu", 9, 190, 310, number=3),
        *(span("cuda_runtime", "cudaLaunchKernel", 0, 0, 1, number=number) for number in (1, 2, 3)),
        span("cuda_runtime", "cudaLaunchKernel", 0, 310, 320, number=5),
        span("kernel", "late", 7, 330, 350, number=5),  # queued at 320: waits for 10 us while a copy runs
        span("cpu_op", "aten::conv2d", 7, 0, 1000),
    ]
    overlap = module("overlap").overlap
    found = overlap(events)
    expected = {"copies": 2, "copy_us": 140, "trainer_kernels_us": 180, "overlapped_us": 70, "share": pytest.approx(70 / 140), "hidden": pytest.approx(130 / 140)}
    assert found == expected
    assert overlap([event for event in events if event.get("cat") != "cuda_runtime"])["hidden"] is None, "the trace does not say when kernels were launched"
    assert overlap(events[:1])["share"] is None
    assert overlap(events[1:2])["share"] == 0


def test_a_trace_gives_the_device_time_of_a_call() -> None:
    events = [
        {"ph": "M", "name": "process_name", "args": {"name": "python"}},
        span("kernel", "mul", 7, 100, 130),
        span("kernel", "add", 7, 190, 200),  # the gap before it is not device time
        span("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 7, 200, 205, 12),
        span("cuda_runtime", "cudaLaunchKernel", 0, 0, 90),
        span("cpu_op", "aten::mul", 0, 0, 95),
    ]
    assert module("compare_transforms").device_us(events) == 45


@pytest.mark.parametrize(
    ("program", "arguments", "wanted"),
    [
        ("check_torch.py", ["host"], "ok      bytes_gpu"),
        ("residence_bench.py", ["host"], '"figure": "epoch of a dataset in GPU memory"'),
        ("run_trainer.py", ["DEVICE_TRAINER", "host"], '"figure": "C++ trainer"'),
        ("overlap.py", ["host", "--out", "OUT"], "[not run] the share of left"),
        ("share_trainers.py", ["2", "host", "--epochs", "2"], '"served_per_decoded"'),
        ("train_resnet.py", ["host"], '"loader": "DataLoader"'),
        pytest.param(
            "train_epochs.py", ["mnist", "host", "--epochs", "1", "--workers", "0"], '"loader": "DataLoader"', marks=pytest.mark.skipif(not STRESS, reason="HEADRACE_STRESS=1")
        ),
    ],
)
def test_its_python_programs_find_nothing_wrong_on_the_cpu_backend(program: str, arguments: list[str], wanted: str, tmp_path: Path) -> None:
    if "DEVICE_TRAINER" in arguments:
        arguments = [cpp_trainer("device_trainer"), *arguments[1:]]
    arguments = [str(tmp_path / "out") if argument == "OUT" else argument for argument in arguments]
    done = subprocess.run([sys.executable, GPU / program, *arguments], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert wanted in done.stdout
    if program == "overlap.py":
        assert {path.name for path in (tmp_path / "out").iterdir()} == {"overlap-finished.json.gz", "overlap-left.json.gz"}


@pytest.mark.parametrize("program", ["check_torch.py", "residence_bench.py", "run_trainer.py", "compare_transforms.py"])
def test_a_program_that_is_asked_for_help_runs_nothing(program: str) -> None:
    done = subprocess.run([sys.executable, GPU / program, "--help"], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "(default: cuda:0)" in " ".join(done.stdout.split())


def test_torchvision_runs_the_chain_that_the_kernel_is_compared_for() -> None:
    pytest.importorskip("torchvision")
    command = [sys.executable, GPU / "compare_transforms.py", "no-program", "host", "--turns", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line.removeprefix("tried   ")) for line in done.stdout.splitlines() if line.startswith("tried ")]
    assert {"torchvision, per image", "torchvision, one draw"} <= {row["other"] for row in rows}
    assert all(row["wall_us"] > 0 for row in rows)
    assert "[figure]" not in done.stdout, "times on the CPU are no figures"
