"""`kit run STAGE... --state DIR --out DIR`: runs stages of the unpacked kit, each in a process group that ends with the stage's time.

A stage's result is saved in --state when the stage ends, and report.json, report.md and logs.tgz are written to --out: a run that was
interrupted goes on behind the last stage that ended. Exit code 1: a stage failed, ran out of time, or needs a GPU that is not there.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from types import FrameType
from typing import Any

import kit_report
from stages import Step, stages

KIT = Path(__file__).resolve().parents[2]
PASSED, FAILED, TIMED_OUT, NO_GPU, NOT_RUN = "passed", "failed", "timed out", "no GPU", "not run"
ENDED = (PASSED, FAILED, TIMED_OUT, NOT_RUN)  # without a GPU a stage has not ended: it is run where there is one
QUERY = ("name", "driver_version", "memory.total", "pcie.link.gen.max", "pcie.link.gen.current", "pcie.link.width.max", "pcie.link.width.current")
# libcuda's own word: nvidia-smi is not everywhere where a GPU is.
COUNT_GPUS = """
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
raise SystemExit(cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0)
"""


def gpu_is_there() -> bool:
    return subprocess.run([sys.executable, "-c", COUNT_GPUS], capture_output=True, check=False).returncode == 0


def machine() -> dict[str, Any]:
    found: dict[str, Any] = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), "libc": platform.libc_ver()[1]}
    try:
        asked = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader"], capture_output=True, text=True, check=True)
        found |= dict(zip(QUERY, asked.stdout.splitlines()[0].split(", "), strict=True))
    except (OSError, subprocess.CalledProcessError, IndexError, ValueError):
        found["name"] = "no nvidia-smi"
    return found


def python_path() -> list[Path]:
    """headrace, and of the kit's other packages those that this Python lacks."""
    extra = sorted((KIT / "extra").iterdir()) if (KIT / "extra").is_dir() else []
    return [KIT / "python", *(folder for folder in extra if not importlib.util.find_spec(folder.name))]


class State:
    """What has ended, in DIR/state.json, with logs/ and files/ beside it. Results of another kit are removed."""

    def __init__(self, folder: Path, kit: str) -> None:
        self.folder, self._file = folder, folder / "state.json"
        self.stages: dict[str, Any] = {}
        kept = json.loads(self._file.read_text()) if self._file.exists() else {}
        if kept.get("kit") == kit:
            self.stages = kept["stages"]
        else:
            for name in ("logs", "files"):
                shutil.rmtree(folder / name, ignore_errors=True)
        self._kit = kit
        for name in ("logs", "files"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def save(self, stage: str, result: dict[str, Any]) -> None:
        self.stages[stage] = result
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(json.dumps({"kit": self._kit, "stages": self.stages}, indent=1) + "\n")
        unfinished.replace(self._file)


class Runner:
    def __init__(self, state: State, limit: float, gpu: bool, libraries: str) -> None:
        self._state, self._limit, self._gpu = state, limit, gpu
        given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))  # perhaps where this machine keeps torch
        self._path = os.pathsep.join([*map(str, python_path()), *given])
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/cuda/bin"]),
            "PYTHONPATH": self._path,
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HEADRACE_BINARY": str(KIT / "bin" / "headrace"),
        }
        if "LD_LIBRARY_PATH" in libraries:
            self._environment["LD_LIBRARY_PATH"] = os.pathsep.join([str(KIT / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
        self._running: subprocess.Popen[bytes] | None = None
        for name in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, self._interrupted)

    def _interrupted(self, number: int, _: FrameType | None) -> None:
        self._end()
        sys.exit(128 + number)

    def _end(self) -> None:
        """Of the running step the whole process group."""
        if self._running:
            try:
                os.killpg(self._running.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._running.wait()
            self._running = None

    def _missing(self, step: Step) -> tuple[str, str] | None:
        """Why it cannot run: a status and a reason."""
        if step.gpu and not self._gpu:
            return NO_GPU, "this machine has no GPU"
        if step.tool and not shutil.which(step.tool, path=self._environment["PATH"]):
            return NOT_RUN, f"this machine has no {step.tool}"
        known = [Path(folder) for folder in self._path.split(os.pathsep)]
        for module in step.modules:
            if not any((folder / module).exists() for folder in known) and not importlib.util.find_spec(module):
                return FAILED, f"neither this machine nor the kit has the Python package {module}"
        return None

    def _run(self, step: Step, log: Path, seconds: float) -> tuple[str, str]:
        with log.open("wb") as file:
            try:
                self._running = subprocess.Popen(
                    step.command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, env={**self._environment, **step.environment}
                )
            except OSError as error:
                return FAILED, f"cannot start {step.command[0]}: {error.strerror}"
            try:
                status = self._running.wait(seconds)
            except subprocess.TimeoutExpired:
                return TIMED_OUT, f"ended after {seconds:.0f} s"
            finally:
                self._end()
        if status and step.excuse and step.excuse in log.read_text(errors="replace"):
            return NOT_RUN, f"this machine does not allow it: {step.excuse}"
        return (PASSED, "") if status == 0 else (FAILED, f"exit status {status}")

    def stage(self, name: str, steps: list[Step]) -> dict[str, Any]:
        begun = time.monotonic()
        results, figures, not_run = [], [], []
        for step in steps:
            log = self._state.folder / "logs" / f"{name}.{step.name.replace(' ', '-')}.log"
            log.unlink(missing_ok=True)
            at, left = time.monotonic(), begun + self._limit - time.monotonic()
            status, why = self._missing(step) or ((TIMED_OUT, "no time left in the stage") if left < 1 else self._run(step, log, left))
            results.append({"step": step.name, "status": status, "why": why, "seconds": round(time.monotonic() - at, 1)})
            text = log.read_text(errors="replace") if log.exists() else ""
            figures += [{"step": step.name, **figure} for figure in figures_of(text)]
            not_run += [f"{step.name}: {line}" for line in re.findall(r"^\[not run\] (.*)$", text, re.MULTILINE)]
            print(f"  {step.name:<24} {status}{', ' + why if why else ''}", flush=True)
            if status == FAILED:
                print("\n".join(f"    {line}" for line in text.splitlines()[-12:]), flush=True)
        statuses = [result["status"] for result in results]
        worst = next((status for status in (FAILED, TIMED_OUT, NO_GPU, PASSED) if status in statuses), NOT_RUN)
        return {"status": worst, "seconds": round(time.monotonic() - begun, 1), "steps": results, "figures": figures, "not_run": not_run}


def figures_of(text: str) -> list[dict[str, Any]]:
    found = []
    for line in re.findall(r"^\[figure\] (.*)$", text, re.MULTILINE):
        try:
            found.append(json.loads(line))
        except ValueError:
            found.append({"figure": "said", "text": line})
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="kit run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", nargs="+", help=f"all, or of {', '.join(stages(KIT, KIT))}")
    parser.add_argument("--state", type=Path, required=True, help="a folder that is kept between calls")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the report")
    parser.add_argument("--data", type=Path, help="MNIST and CIFAR-10, as bindings/examples/README.md has them; else they are made up")
    parser.add_argument("--limit", type=float, default=120, help="seconds of a stage, at most")
    parser.add_argument("--again", action="store_true", help="run stages that have ended, too")
    parser.add_argument("--brief", action="store_true", help="rehearse: the least of each stage, whose figures mean nothing")
    given = parser.parse_args(arguments)
    state_folder = given.state.resolve()
    every = stages(KIT, state_folder / "files", given.data.resolve() if given.data else None, given.brief)
    asked = list(every) if "all" in given.stage else list(dict.fromkeys(given.stage))
    if unknown := [name for name in asked if name not in every]:
        parser.error(f"unknown stage {unknown[0]!r}, expected all or one of {', '.join(every)}")
    if not (KIT / "kit.json").exists():
        parser.error(f"{KIT} is no unpacked kit: it has no kit.json (`kit build` makes the archive)")
    about = json.loads((KIT / "kit.json").read_text())
    if about["module"] != sysconfig.get_config_var("EXT_SUFFIX"):
        parser.error(f"the kit's Python module ends with {about['module']}, this Python's with {sysconfig.get_config_var('EXT_SUFFIX')}: run it by another Python")
    state = State(state_folder, about["kit"])
    gpu, here = gpu_is_there(), machine()
    runner = Runner(state, given.limit, gpu, about["libraries"])
    print(f"kit {about['kit']}, commit {about['commit'][:12]}, {here['name'] if gpu else NO_GPU}, {here['cores']} cores", flush=True)
    for name in asked:
        if name in state.stages and state.stages[name]["status"] in ENDED and not given.again:
            print(f"{name}: ended before: {state.stages[name]['status']}", flush=True)
        else:
            print(f"{name}:", flush=True)
            result = runner.stage(name, every[name])
            state.save(name, result)
            print(f"{name}: {result['status']}, {result['seconds']:.0f} s", flush=True)
        kit_report.write(given.out, about, here, list(every), state.stages, state.folder)
    return 0 if all(state.stages[name]["status"] in (PASSED, NOT_RUN) for name in asked) else 1
