#!/usr/bin/env python3
"""Runs the fuzz targets of build/fuzz, one after the other, each for its share of the time; prints a table.

    ./run fuzz [--seconds N] [TARGET...]       builds them first
    ./run fuzz --coverage [TARGET...]          instead: the lines of the code under test that the inputs found so far reach

What a target finds new is kept in .cache/fuzz/TARGET, beside the committed corpus. An input that breaks a rule is written to
build/fuzz/findings, and the exit code is 1."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/coverage"))
from llvm import Lines, lines_of  # noqa: E402

HERE = ROOT / "tests/fuzz"
BUILD = ROOT / "build/fuzz/tests/fuzz"
COVERAGE = ROOT / "build/coverage/tests/fuzz"
FINDINGS = ROOT / "build/fuzz/findings"
CACHE = ROOT / ".cache/fuzz"
LONGEST = {"jpeg": 4096, "tiles": 8192, "tar": 12288}  # bytes of an input; longer ones only cost time
LONGEST_OTHERWISE = 2048
STATUS = re.compile(r"^#\d+\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)/", re.MULTILINE)
UNDER_TEST = {
    "config": ["server/config/*.cpp", "server/described/*.cpp"],
    "control": ["server/session/control.cpp", "server/session/sessions.cpp"],
    "handshake": ["server/session/handshake.cpp"],
    "http": ["server/remote/content_range.cpp", "server/remote/remote.cpp", "server/remote/s3.cpp", "server/remote/transfer.cpp"],
    "jpeg": ["server/decode/decoder.cpp", "server/decode/huffman_table.*", "server/decode/jpeg_entropy.cpp", "server/decode/jpeg_handle.*"],
    "lease": ["clientlib/ring/ring_writer.cpp"],
    "lmdb": ["server/store/lmdb_env.*", "server/store/store.cpp", "server/source/formats/lmdb.cpp"],
    "manifest": ["server/source/formats/manifest*.cpp", "server/source/files/text_lines.cpp"],
    "npy": ["server/source/formats/npy*.cpp"],
    "packets": ["server/session/feeder.cpp", "server/session/bridge*.cpp", "clientlib/ring/fd_passing.cpp", "server/exec/remote_batch.cpp"],
    "pipe": ["server/pack/record_input.cpp"],
    "png": ["server/decode/png.cpp"],
    "query": ["server/metrics/http_query.cpp"],
    "record": ["server/store/record.cpp", "server/store/meta.cpp", "server/store/field_json.cpp", "server/store/compression.cpp"],
    "ring": ["clientlib/ring/ring_open.cpp", "clientlib/ring/ring_reader.cpp", "clientlib/ring/slot_layout.cpp", "clientlib/client/batch_view.cpp"],
    "table": ["server/source/formats/idx.cpp", "server/source/formats/cifar.cpp", "server/source/formats/pixel_table.cpp"],
    "tar": ["server/source/shards/tar_reader.cpp", "server/source/shards/shard_index.cpp"],
    "tiles": ["server/decode/jpeg.cpp", "server/decode/jpeg_tiles.cpp", "server/decode/tile_jpeg.cpp"],
    "url": ["server/remote/url.cpp"],
    "wire": ["clientlib/wire/*.cpp"],
}


@dataclass
class Result:
    name: str
    runs: int
    seconds: float
    edges: int
    features: int
    corpus: int
    findings: list[str]

    def row(self) -> str:
        numbers = (self.runs, round(self.runs / self.seconds), self.edges, self.features, self.corpus, len(self.findings))
        return f"| `{self.name}` | {' | '.join(f'{number:,}' for number in numbers)} |"


def environment(**more: str) -> dict[str, str]:
    """Datasets of targets are files: in memory, if there is such a folder. Long stacks of allocations would cost half of the time."""
    in_memory = {"TMPDIR": "/dev/shm"} if os.access("/dev/shm", os.W_OK) else {}
    return {"ASAN_OPTIONS": "malloc_context_size=3"} | os.environ | in_memory | more


def run(name: str, seconds: int) -> Result:
    for folder in (CACHE / name, FINDINGS):
        folder.mkdir(parents=True, exist_ok=True)
    before = set(FINDINGS.glob(f"{name}-*"))
    command = [BUILD / f"{name}_fuzz", f"-max_total_time={seconds}", f"-max_len={LONGEST.get(name, LONGEST_OTHERWISE)}"]
    command += ["-rss_limit_mb=2048", "-timeout=10", "-report_slow_units=60", "-print_final_stats=1", f"-artifact_prefix={FINDINGS}/{name}-"]
    begin = time.monotonic()
    done = subprocess.run([*command, CACHE / name, HERE / "corpus" / name], env=environment(), capture_output=True, text=True, errors="replace", check=False)
    elapsed = time.monotonic() - begin
    log = BUILD / f"{name}.log"
    log.write_text(done.stderr)
    findings = sorted(str(file.relative_to(ROOT)) for file in set(FINDINGS.glob(f"{name}-*")) - before)
    if done.returncode != 0 and not findings:
        findings = [f"{log.relative_to(ROOT)}: exit code {done.returncode}"]
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    edges, features, corpus = (int(number) for number in (STATUS.findall(done.stderr) or [(0, 0, 0)])[-1])
    return Result(name, int(runs[1]) if runs else 0, elapsed, edges, features, corpus, findings)


def run_all(targets: list[str], seconds: int) -> int:
    print("| target | executions | per second | edges | features | corpus | findings |\n|---|---:|---:|---:|---:|---:|---:|", flush=True)
    results = []
    for name in targets:
        results.append(run(name, max(1, seconds // len(targets))))
        print(results[-1].row(), flush=True)
    for result in results:
        for finding in result.findings:
            print(f"\n{result.name}: {finding}\n  its report: {(BUILD / result.name).relative_to(ROOT)}.log")
            print(f"  again: build/fuzz/tests/fuzz/{result.name}_fuzz {finding}")
    failed = sum(bool(result.findings) for result in results)
    print(f"\n{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


def files_of(name: str) -> list[str]:
    """The files under test of a target."""
    return sorted(str(path.relative_to(ROOT)) for pattern in UNDER_TEST[name] for path in ROOT.glob(pattern))


def cover(targets: list[str]) -> int:
    """Line coverage of each target's files by its corpus and what it found; in the last row by all targets together."""
    print("| target | inputs | lines | reached | least |\n|---|---:|---:|---:|---|", flush=True)
    profiles, programs, total = [], [], 0
    for name in targets:
        folders = [folder for folder in (HERE / "corpus" / name, CACHE / name) if folder.is_dir()]
        inputs = sum(1 for folder in folders for _ in folder.iterdir())
        profiles.append(COVERAGE / f"{name}.profraw")
        programs.append(COVERAGE / f"{name}_fuzz")
        subprocess.run([programs[-1], *folders], env=environment(LLVM_PROFILE_FILE=str(profiles[-1])), stdout=subprocess.DEVNULL, check=True)
        print(row_of(name, inputs, lines_of(profiles[-1:], programs[-1:]), files_of(name)), flush=True)
        total += inputs
    print(row_of("all", total, lines_of(profiles, programs), sorted({file for name in targets for file in files_of(name)})))
    return 0


def row_of(name: str, inputs: int, found: dict[str, Lines], files: list[str]) -> str:
    lines = {file: found[file] for file in files if file in found}
    everything = sum(lines.values(), Lines())
    least = sorted((file for file in lines if lines[file].share < 1), key=lambda file: lines[file].share)[:3]
    return f"| `{name}` | {inputs:,} | {everything.count:,} | {everything.share:.1%} | {', '.join(f'`{Path(file).name}` {lines[file].share:.0%}' for file in least)} |"


def main() -> int:
    targets = sorted(UNDER_TEST)
    parser = argparse.ArgumentParser(prog="./run fuzz")
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together (default: 60)")
    parser.add_argument("--coverage", action="store_true", help="line coverage of the code under test, by the inputs found so far")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"only these: {' '.join(targets)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(targets):
        parser.error(f"no target is called {', '.join(sorted(unknown))}; there are {', '.join(targets)}")
    chosen = arguments.targets or targets
    return cover(chosen) if arguments.coverage else run_all(chosen, arguments.seconds)


if __name__ == "__main__":
    sys.exit(main())
