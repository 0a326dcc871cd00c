"""cd tests/bench; python -m training DATA [--seeds 3] [--device cpu] [--only 'srcnn*'] [--scratch DIR] [--out training/RESULTS.md]

Trains the examples of bindings/examples and their DataLoader versions on real data, in turn: Markdown on stdout or to --out, progress on
stderr. DATA: the same folder as HEADRACE_DATA in tests/python/test_real_data.py.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from peers.__main__ import machine

from . import real_sets, report

EXAMPLES = Path(__file__).resolve().parents[3] / "bindings/examples"


def cases(device: str) -> list[report.Case]:
    """Model sizes for this machine: two cores can train a VGG of width 8, not one of width 64."""
    gpu = device != "cpu"
    most = torch.cuda.device_count() if gpu else 4
    made = [report.Case("mnist_mlp", ("--epochs", "10"))]
    for ranks in (r for r in (1, 2, 4) if r <= most):
        size = ("--epochs", "20", "--width", "64", "--batch-size", "512") if gpu else ("--epochs", "2", "--width", "8")
        made.append(report.Case("cifar10_vgg", size, ranks, 1 if ranks > 1 and not gpu else 1_000_000))
    for batch, epochs in (("8", "4"), ("128", "8")):
        made.append(report.Case("srcnn", ("--epochs", "100" if gpu else epochs, "--batch-size", batch)))
    return made


@contextlib.contextmanager
def prepared(given: Path, scratch: Path | None) -> Iterator[Path]:
    """Writes the configurations, and the datasets in data/. Existing ones in a scratch folder are used as they are."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = scratch or Path(temporary)
        if not (folder / "data").is_dir():
            print("preparing", file=sys.stderr)
            (folder / "unfinished").mkdir(parents=True, exist_ok=True)
            real_sets.write_all(given, folder / "unfinished")
            (folder / "unfinished").rename(folder / "data")
        for config in EXAMPLES.glob("*.yaml"):
            shutil.copy(config, folder)
        yield folder


def run(case: report.Case, loader: str, folder: Path, seed: int, device: str) -> dict[str, Any]:
    """Runs one training. Returns its result line, and the CPU time of all its processes."""
    program = EXAMPLES / (case.program + ("_dataloader.py" if loader == "DataLoader" else ".py"))
    where = ("--data", folder / "data") if loader == "DataLoader" else ("--config", folder / f"{case.program}.yaml")
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={case.ranks}"] if case.ranks > 1 else []
    command = [sys.executable, *torchrun, program, *where, *case.arguments, "--seed", seed, "--device", device]
    # One thread for each process: threads that wait for each other by spinning lose most of their time on shared cores.
    env = {"OMP_NUM_THREADS": "1", **os.environ} if device == "cpu" else None
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    job = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=False, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if job.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit status {job.returncode}")
    line: dict[str, Any] = json.loads(job.stdout)
    line["cpu"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return line


def main() -> None:
    parser = argparse.ArgumentParser(prog="training", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--only", default="*", help="a pattern of programs")
    parser.add_argument("--scratch", type=Path, help="prepared data, kept between runs (default: a temporary folder)")
    parser.add_argument("--out", type=Path, help="the file for the tables (default: stdout)")
    given = parser.parse_args()
    begun = time.monotonic()
    results: dict[report.Case, dict[str, list[dict[str, Any]]]] = {}
    with prepared(given.data, given.scratch) as folder:
        for seed in range(given.seeds):
            for case in cases(given.device):
                if not fnmatch(case.program, given.only) or seed >= case.most_seeds:
                    continue
                for loader in report.LOADERS if seed % 2 == 0 else report.LOADERS[::-1]:
                    line = run(case, loader, folder, seed, given.device)
                    results.setdefault(case, {}).setdefault(loader, []).append(line)
                    told = {"case": case.name, "loader": loader, "seed": seed, **line["last"], "cpu": line["cpu"]}
                    print(f"[{time.monotonic() - begun:4.0f}s] {told}", file=sys.stderr, flush=True)
    gpu = torch.cuda.get_device_name() if given.device != "cpu" else None
    about = {**machine(), "torch": torch.__version__, "gpu": gpu, "load": os.getloadavg()[0]}
    text = report.markdown(results, about, time.monotonic() - begun)
    if given.out:
        given.out.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
