"""Runs stages of the unpacked kit: `kit run STAGE... --state DIR --out DIR`.

When the stage's time (--limit) is over, a step and all its descendants are killed. Before that, Python programs write their stack traces to
the log. When a step ends, its result is saved in --state, and report.json, report.md and logs.tgz are written to --out. An interrupted run
continues after the last stage that ended. The exit status is 1 if a stage failed, ran out of time, or needs a GPU that the machine does not
have.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import kit_report
from stages import Step, stages

KIT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(KIT / "tests" / "bench"))

from peers import processes  # noqa: E402

PASSED, FAILED, TIMED_OUT, NO_GPU, NOT_RUN = "passed", "failed", "timed out", "no GPU", "not run"
UNFINISHED = "unfinished"
ENDED = (PASSED, FAILED, TIMED_OUT, NOT_RUN)  # a stage with another status runs again; NO_GPU, because the state may move to a machine with a GPU
QUERY = ("name", "driver_version", "memory.total", "pcie.link.gen.max", "pcie.link.gen.current", "pcie.link.width.max", "pcie.link.width.current")
# Asks libcuda, because a machine with a GPU may lack nvidia-smi.
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
        found["name"] = "unknown GPU (nvidia-smi failed)" if shutil.which("nvidia-smi") else "unknown GPU (nvidia-smi is not installed)"
    return found


def python_path() -> list[Path]:
    """The folders of headrace, and of the kit's other packages that this Python lacks."""
    extra = sorted((KIT / "extra").iterdir()) if (KIT / "extra").is_dir() else []
    return [KIT / "python", *(folder for folder in extra if not importlib.util.find_spec(folder.name))]


class State:
    """The stages that have ended, in DIR/state.json, with logs/ and files/ beside it. Results of another kit are removed."""

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
        given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))  # torch may be there
        self._path = os.pathsep.join([*map(str, python_path()), *given])
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/cuda/bin"]),
            "PYTHONPATH": self._path,
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONFAULTHANDLER": "1",
            "HEADRACE_BINARY": str(KIT / "bin" / "headrace"),
        }
        if "LD_LIBRARY_PATH" in libraries:
            self._environment["LD_LIBRARY_PATH"] = os.pathsep.join([str(KIT / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
        processes.keep_descendants()
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # a killed step must not write core files
        for name in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, self._interrupted)

    def _interrupted(self, number: int, _: FrameType | None) -> None:
        processes.end_descendants()
        sys.exit(128 + number)

    def _missing(self, step: Step) -> tuple[str, str] | None:
        """A status and a reason if the step cannot run here."""
        if step.gpu and not self._gpu:
            return NO_GPU, "no GPU found: libcuda.so.1 is missing or reports none"
        if step.tool and not shutil.which(step.tool, path=self._environment["PATH"]):
            return NOT_RUN, f"{step.tool} is not installed on this machine"
        known = [Path(folder) for folder in self._path.split(os.pathsep)]
        for module in step.modules:
            if not any((folder / module).exists() for folder in known) and not importlib.util.find_spec(module):
                return FAILED, f"the Python package {module} is neither installed on this machine nor in the kit"
        return None

    def _run(self, step: Step, log: Path, seconds: float) -> tuple[str, str]:
        with log.open("wb") as file:
            try:
                running = subprocess.Popen(
                    step.command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, env={**self._environment, **step.environment}
                )
            except OSError as error:
                return FAILED, f"cannot start {step.command[0]}: {error.strerror}"
            try:
                status = running.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGABRT)
                end = time.monotonic() + 2
                with contextlib.suppress(ProcessLookupError):
                    while time.monotonic() < end:  # until the group is empty
                        running.poll()
                        os.killpg(running.pid, 0)
                        time.sleep(0.05)
                return TIMED_OUT, f"killed after {seconds:.0f} s (--limit)"
            finally:
                processes.end_descendants()  # those in sessions of their own, and stopped ones, too
        if status and step.excuse and step.excuse in log.read_text(errors="replace"):
            return NOT_RUN, f"this machine does not permit it (the log has {step.excuse})"
        return (PASSED, "") if status == 0 else (FAILED, f"exit status {status}")

    def stage(self, name: str, steps: list[Step], save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Runs the steps. Calls `save` with what is known so far after each one but the last."""
        begun = time.monotonic()
        results, figures, not_run = [], [], []

        def so_far(status: str) -> dict[str, Any]:
            return {"status": status, "seconds": round(time.monotonic() - begun, 1), "steps": results, "figures": figures, "not_run": not_run}

        for step in steps:
            log = self._state.folder / "logs" / f"{name}.{step.name.replace(' ', '-')}.log"
            log.unlink(missing_ok=True)
            at, left = time.monotonic(), begun + self._limit - time.monotonic()
            status, why = self._missing(step) or ((TIMED_OUT, "not started: the stage used up its --limit") if left < 1 else self._run(step, log, left))
            results.append({"step": step.name, "status": status, "why": why, "seconds": round(time.monotonic() - at, 1)})
            text = log.read_text(errors="replace") if log.exists() else ""
            figures += [{"step": step.name, **figure} for figure in figures_of(text)]
            not_run += [f"{step.name}: {line}" for line in re.findall(r"^\[not run\] (.*)$", text, re.MULTILINE)]
            print(f"  {step.name:<24} {status}{', ' + why if why else ''}", flush=True)
            if status == FAILED:
                print("\n".join(f"    {line}" for line in text.splitlines()[-12:]), flush=True)
            if step is not steps[-1]:
                save(so_far(UNFINISHED))
        statuses = [result["status"] for result in results]
        worst = next((status for status in (FAILED, TIMED_OUT, NO_GPU, PASSED) if status in statuses), NOT_RUN)
        return so_far(worst)


def figures_of(text: str) -> list[dict[str, Any]]:
    found = []
    for line in re.findall(r"^\[figure\] (.*)$", text, re.MULTILINE):
        try:
            found.append(json.loads(line))
        except ValueError:
            found.append({"figure": "figures that are not JSON", "text": line})
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="kit run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", nargs="+", help=f"all, or one or more of {', '.join(stages(KIT, KIT))}")
    parser.add_argument("--state", type=Path, required=True, help="a folder for results and logs; give the same one to later calls")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the report")
    parser.add_argument("--data", type=Path, help="a folder with MNIST and CIFAR-10, as bindings/examples/README.md describes it (default: synthetic data)")
    parser.add_argument("--limit", type=float, default=120, help="the most seconds that a stage may take (default: 120)")
    parser.add_argument("--again", action="store_true", help="also run stages that ended in an earlier call")
    parser.add_argument("--brief", action="store_true", help="do as little as possible in each stage, to try the kit; the figures mean nothing")
    given = parser.parse_args(arguments)
    state_folder = given.state.resolve()
    every = stages(KIT, state_folder / "files", given.data.resolve() if given.data else None, given.brief)
    asked = list(every) if "all" in given.stage else list(dict.fromkeys(given.stage))
    if unknown := [name for name in asked if name not in every]:
        parser.error(f"unknown stage {unknown[0]!r}, expected all or one of {', '.join(every)}")
    if not (KIT / "kit.json").exists():
        parser.error(f"{KIT} is not an unpacked kit: expected a kit.json there; unpack the archive that `kit build` writes, and run the `kit` in it")
    about = json.loads((KIT / "kit.json").read_text())
    if about["module"] != sysconfig.get_config_var("EXT_SUFFIX"):
        parser.error(
            f"the kit needs a Python whose modules end with {about['module']}, found one whose modules end with {sysconfig.get_config_var('EXT_SUFFIX')}: run the kit with "
            "another Python, usually CPython 3.12: python3.12 kit run ..."
        )
    state = State(state_folder, about["kit"])
    gpu, here = gpu_is_there(), machine()
    runner = Runner(state, given.limit, gpu, about["libraries"])
    print(f"kit {about['kit']}, commit {about['commit'][:12]}, {here['name'] if gpu else NO_GPU}, {here['cores']} cores", flush=True)

    def save(name: str, result: dict[str, Any]) -> None:
        state.save(name, result)
        kit_report.write(given.out, about, here, list(every), state.stages, state.folder)

    try:
        run_stages(asked, every, state, runner, save, given.again)
    except KeyboardInterrupt:
        print("\nkit run: interrupted; the same command continues", file=sys.stderr)
        return 130
    kit_report.write(given.out, about, here, list(every), state.stages, state.folder)
    return 0 if all(state.stages[name]["status"] in (PASSED, NOT_RUN) for name in asked) else 1


def run_stages(
    asked: list[str], every: dict[str, list[Step]], state: State, runner: Runner, save: Callable[[str, dict[str, Any]], None], again: bool
) -> None:
    for name in asked:
        if name in state.stages and state.stages[name]["status"] in ENDED and not again:
            print(f"{name}: skipped, already {state.stages[name]['status']} in an earlier call (--again repeats it)", flush=True)
        else:
            print(f"{name}:", flush=True)
            result = runner.stage(name, every[name], functools.partial(save, name))
            save(name, result)
            print(f"{name}: {result['status']}, {result['seconds']:.0f} s", flush=True)
