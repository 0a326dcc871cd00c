"""Additional measurements: the bare limits, and Headrace on one core against all cores."""

from __future__ import annotations

import json
import statistics
import subprocess
from dataclasses import replace
from typing import Any

from peers.contest import Result, Settings, compete
from peers.report import digits, rate
from peers.rows import rows_of
from peers.workloads import Workload

LIMITS_SECONDS = 600.0
SCALED = ("w2-f32", "w3-f32", "w4-cached-f32-b128")


def limits(program: str, data: dict[str, str], rounds: int) -> tuple[str, list[dict[str, Any]]]:
    """A table of the results of `program` (tests/bench/limits), and the figures."""
    command = [program, "--json", "--rounds", str(rounds)]
    for option, name in (("--jpeg", "imagenet"), ("--png", "pairs")):
        if name in data:
            command += [option, data[name]]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMITS_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SystemExit(f"peers: --limits {program}: {error}") from None
    if ran.returncode:
        raise SystemExit(f"peers: {program} ended with status {ran.returncode}: {ran.stderr.strip()}")
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    lines = ["### Bare limits", "", "| loop, one thread | CPU µs/sample | spread |", "|---|---:|---|"]
    for one in found:
        lines.append(f"| {one['name']} | {digits(one['us'])} | {digits(one['least'])} to {digits(one['most'])} |")
    return "\n".join(lines) + "\n", found


def scaling(workload: Workload, settings: Settings) -> tuple[str, list[Result]]:
    """A line of a table: samples per second on one core and on all, and their ratio round by round."""
    ours = rows_of(workload, ["headrace"])[0]
    alone = replace(ours, name="headrace-1-core", options={**ours.options, "cores": 1})
    results = compete(workload, [ours, alone], settings)
    if any(one.error for one in results):
        return f"| {workload.name} | did not run: {results[0].error or results[1].error} | | |", results
    rates = [[got["samples"] / got["seconds"] for got in one.rounds] for one in results]
    ratio = statistics.median(both / one for both, one in zip(*rates, strict=True))
    return f"| {workload.name} | {digits(rate(results[1]))} | {digits(rate(results[0]))} | {digits(ratio)} |", results
