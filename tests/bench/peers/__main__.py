"""python -m peers --data mnist=DIR cifar=DIR imagenet=DIR pairs=DIR [--workloads w1-f32 ...] [--loaders headrace dali ...]

Compares Headrace with other loaders: Markdown on stdout, progress on stderr, and with --out DIR also tables, plot and raw rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from peers import extras, prepare, report
from peers.contest import Settings, compete, say
from peers.rows import ROWS, rows_of
from peers.workloads import WORKLOADS, Workload

LOADERS = tuple(dict.fromkeys(row.name for row in ROWS))


def machine() -> dict[str, Any]:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [text.split(":")[1].strip() for text in file if text.startswith("model name")]
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:  # no git: in the GPU kit, whose report names its own commit
        commit = ""
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit or "unknown",
        "python": platform.python_version(),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", required=True, metavar="NAME=DIR", help=f"NAME: {', '.join(prepare.PREPARE)}")
    parser.add_argument("--workloads", nargs="+", default=["*"], help="names or patterns; all: " + ", ".join(WORKLOADS))
    parser.add_argument("--loaders", nargs="+", help="default: all. " + ", ".join(LOADERS))
    parser.add_argument("--rounds", type=prepare.positive, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each loader in each round")
    parser.add_argument("--limits", metavar="PROGRAM", help="build/release/tests/limits: what the bare loops cost, in the same run")
    parser.add_argument(
        "--scaling", action="store_true", help=f"instead: Headrace on one core against all; default: {', '.join(extras.SCALED)}"
    )
    parser.add_argument("--scratch", type=Path, help="prepared data, kept between runs (default: a temporary folder)")
    parser.add_argument("--out", type=Path, help="folder for results.md, results.svg and results.json")
    given = parser.parse_args()
    wrong = [pair for pair in given.data if pair.partition("=")[0] not in prepare.PREPARE or "=" not in pair]
    if wrong:
        parser.error(f"--data {' '.join(wrong)}: say NAME=DIR, NAME one of {', '.join(prepare.PREPARE)}")
    if unknown := [name for name in given.loaders or [] if name not in LOADERS]:
        parser.error(f"--loaders {' '.join(unknown)}: there are {', '.join(LOADERS)}")
    return given


def prepared(name: str, folder: str, scratch: Path) -> None:
    """Prepares a dataset for the loaders. A folder with other content ends the run with a named error."""
    say(f"preparing {name}")
    try:
        prepare.PREPARE[name](Path(folder), scratch)
    except (OSError, ValueError) as error:
        raise SystemExit(f"peers: --data {name}={folder}: {error}") from error


def chosen(patterns: list[str], data: dict[str, str]) -> list[Workload]:
    """The workloads that match the patterns and whose data was given."""
    named = [workload for workload in WORKLOADS.values() if any(fnmatch(workload.name, pattern) for pattern in patterns)]
    if not named:
        raise SystemExit(f"peers: no workload is called {' or '.join(patterns)}; there are {', '.join(WORKLOADS)}")
    found = [workload for workload in named if workload.data in data]
    if not found:
        needed = sorted({workload.data for workload in named})
        raise SystemExit(f"peers: {', '.join(workload.name for workload in named)}: add --data {' '.join(f'{name}=DIR' for name in needed)}")
    return found


def check_scratch(scratch: Path, data: dict[str, str]) -> None:
    """Ensures that data which was prepared from one folder is not used for another."""
    note = scratch / "prepared-from.json"
    before: dict[str, str] = json.loads(note.read_text()) if note.exists() else {}
    for name, folder in data.items():
        if before.get(name, folder) != folder:
            raise SystemExit(f"peers: {scratch} holds what was made of {name}={before[name]}; give --scratch another folder")
    note.write_text(json.dumps(before | data))


def scaled(given: argparse.Namespace, settings: Settings) -> str:
    lines = ["| workload | samples/s, 1 core | all cores | ratio |", "|---|---:|---:|---:|"]
    print(*lines, sep="\n", flush=True)
    patterns = list(extras.SCALED) if given.workloads == ["*"] else given.workloads
    for workload in chosen(patterns, settings.data):
        prepared(workload.data, settings.data[workload.data], settings.scratch)
        lines.append(extras.scaling(workload, settings)[0])
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def main() -> None:
    # Loaders are stopped most of the time, and could not end by themselves.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given = arguments()
    for name in [name for name in os.environ if name.startswith("HEADRACE_") and name != "HEADRACE_BINARY"]:
        del os.environ[name]  # the user's own server must not be measured
    data = {name: str(Path(folder).resolve()) for name, _, folder in (pair.partition("=") for pair in given.data)}
    about = machine()
    with tempfile.TemporaryDirectory(prefix="peers-") as temporary:
        scratch = (given.scratch or Path(temporary)).resolve()
        scratch.mkdir(parents=True, exist_ok=True)
        check_scratch(scratch, data)
        settings = Settings(data, scratch, given.rounds, given.seconds)
        text = f"{about['cores']} cores of {about['cpu']}, Python {about['python']}, {about['date']}, commit {about['commit']}; "
        text += f"medians of {given.rounds} rounds of {given.seconds:g} s.\n"
        print(text, flush=True)
        tables, results, loops = [text], [], []
        if given.limits:
            table, loops = extras.limits(given.limits, data, given.rounds)
            tables.append(table)
            print(table, flush=True)
        if given.scaling:
            table = scaled(given, settings)
            if given.out:
                given.out.mkdir(parents=True, exist_ok=True)
                (given.out / "scaling.md").write_text(text + "\n" + table)
            return
        for workload in chosen(given.workloads, data):
            rows = rows_of(workload, given.loaders)
            absent = [name for name in given.loaders or [] if name not in {row.name for row in rows}]
            if absent:
                say(f"{workload.name}: {', '.join(absent)} take no part in it")
            if not rows:
                continue
            prepared(workload.data, data[workload.data], scratch)
            results.append((workload, compete(workload, rows, settings)))
            tables.append(report.table(*results[-1]))
            print(tables[-1], flush=True)
            if given.out:  # after each workload, so that an interrupted run keeps its results
                raw = {"machine": about, "limits": loops, "workloads": [report.raw(*one) for one in results]}
                report.write(given.out, tables, raw, results)


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        servers = prepare.server_folder(os.getpid(), "*")
        for folder in servers.parent.glob(servers.name):  # a killed server leaves its folder
            shutil.rmtree(folder, ignore_errors=True)
