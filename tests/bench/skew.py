"""CPU time of the server per delivered sample when several trainers read the same images, relative to one trainer. Trainers start at
different times, are killed and restarted, or have other batch sizes, dtypes and colors. Cases run in turn, each with a server of its own.
`headrace bench` measures each job of a sweep alone. The first job makes uint8 without color transforms. What the others need in addition,
relative to the first one, is their own work, which sharing cannot save.

    python3 tests/bench/skew.py IMAGES --headrace build/release/server/verbs/headrace --seconds 60 --rounds 3

IMAGES is a folder per class of JPEGs. A case is a training of `--minutes`, scaled to `--seconds`: the longer the delays are relative to
it, the more is decoded twice. Trainers wait `--step` seconds after each batch of 64 samples (in proportion for other sizes), as if they
trained.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CROP = [{"random_resized_crop": {"size": 224}}, "random_horizontal_flip"]
NORMALIZE = {"normalize": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}}
COLORS: list[list[Any]] = [
    [],
    [{"color_jitter": {"brightness": 0.4}}],
    [{"color_jitter": {"contrast": 0.4, "saturation": 0.4}}],
    [{"random_grayscale": {"p": 0.2}}],
]


def stream(batch: int = 64, colors: int = 0, floats: bool = False) -> dict[str, Any]:
    chain = [*CROP, *COLORS[colors], *([NORMALIZE] if floats else [])]
    out = {"dtype": "float32" if floats else "uint8"}
    return {"source": "images", "seed": 7, "batch_size": batch, "transforms": chain, "output": out, "ring": {"max_clients": 4}}


Streams = dict[str, dict[str, Any]]
JOBS: Streams = {f"job{i}": stream((32, 64, 96, 128)[i], i, i % 2 == 1) for i in range(4)}
SWEEP: Streams = {f"job{i}": stream((32, 64, 128, 256)[i % 4], i % 4, i >= 4) for i in range(8)}
ONE: Streams = {"train": stream()}

# name: streams, and the trainers: stream, start, and the time at which it is killed, to be restarted (seconds of the training)
CASES: dict[str, tuple[Streams, list[tuple[str, float, float | None]]]] = {
    "1 trainer": (ONE, [("train", 0, None)]),
    "2 trainers, 10 s apart": (ONE, [("train", 0, None), ("train", 10, None)]),
    "4 trainers within 45 s": (ONE, [("train", 0, None), ("train", 15, None), ("train", 30, None), ("train", 45, None)]),
    "2 trainers, one restarted": (ONE, [("train", 0, None), ("train", 0, 300)]),
    "4 jobs": (JOBS, [(name, 0, None) for name in JOBS]),
    "sweep of 8 jobs": (SWEEP, [(name, 0, None) for name in SWEEP]),
}
ALONE = {"4 jobs": JOBS, "sweep of 8 jobs": SWEEP}  # cases whose jobs are also measured one by one


def train(address: str, stream: str, client: str, step: float, state: str) -> None:
    import headrace

    saved = Path(state)
    with headrace.Loader(address, stream=stream, client=client, zero_copy=True, output="numpy") as loader:
        if saved.exists():
            loader.load_state_dict(json.loads(saved.read_text()))
        samples = 0
        while True:
            for batch in loader:
                samples += len(batch[1])
                time.sleep(step * len(batch[1]) / 64)
                saved.with_suffix(".new").write_text(json.dumps(loader.state_dict()))
                saved.with_suffix(".new").rename(saved)
                print(samples, flush=True)


class Trainer:
    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.samples = 0
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.kill()
        out = self.process.communicate()[0].split()
        self.samples += int(out[-1]) if out else 0


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Run:
    us: float  # CPU time of the server
    delivered: int  # samples that trainers counted
    streams: list[dict[str, Any]]

    @property
    def per_delivered(self) -> float:
        return self.us / self.delivered

    @property
    def made(self) -> int:
        samples: int = sum(stream["samples"] for stream in self.streams)
        return samples or sys.exit("no batch was made: give more --seconds")

    @property
    def per_made(self) -> float:
        """Counts what was made ahead as well: in a short run, that is much of it."""
        return self.us / self.made

    @property
    def decoded(self) -> int:
        return sum(stream.get("decoded", stream["samples"] - stream.get("shared", 0)) for stream in self.streams)

    @property
    def granted(self) -> int:
        return sum(stream.get("granted", 0) for stream in self.streams)


def bench(args: argparse.Namespace, streams: Streams, name: str) -> float:
    """CPU time of one worker per sample of the stream, in us, without clients."""
    with tempfile.TemporaryDirectory() as folder:
        config = settings(Path(folder), args, streams, threads=1)
        command = [args.headrace, "bench", config, "--stream", name, "--clients", "0", "--seconds", "1", "--json"]
        return float(json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["runs"][0]["cpu_us_per_sample"])


def settings(folder: Path, args: argparse.Namespace, streams: Streams, threads: int) -> Path:
    config = folder / "headrace.yaml"
    server = {"threads": threads, "metrics": "off", "directory": str(folder / "run")}
    sources = {"images": {"type": "image_folder", "path": args.images}}
    config.write_text(json.dumps({"server": server, "sources": sources, "streams": streams}))
    return config


def play(args: argparse.Namespace, streams: Streams, parts: list[tuple[str, float, float | None]], seconds: float) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        return play_in(Path(folder), args, streams, parts, seconds)


def play_in(
    folder: Path, args: argparse.Namespace, streams: Streams, parts: list[tuple[str, float, float | None]], seconds: float
) -> Run:
    config = settings(folder, args, streams, threads=os.cpu_count() or 1)
    server = subprocess.Popen([args.headrace, "serve", str(config)], stderr=subprocess.DEVNULL)
    trainers: list[Trainer] = []
    try:
        subprocess.run([args.headrace, "health", "--address", folder / "run", "--timeout", "30"], check=True, stdout=subprocess.DEVNULL)
        before, begun = cpu_of(server.pid), time.monotonic()
        starts = sorted(enumerate(parts), key=lambda part: part[1][1])
        kills = [(at, index) for index, (_, _, at) in enumerate(parts) if at is not None]
        by_index: dict[int, Trainer] = {}
        whole = 60 * args.minutes
        while (now := (time.monotonic() - begun) * whole / seconds) < whole:
            while starts and starts[0][1][1] <= now:
                index, (name, _, _) = starts.pop(0)
                command = [sys.executable, __file__, "--train", str(folder / "run"), name, f"client{index}", str(args.step), str(folder / f"state{index}")]
                by_index[index] = Trainer(command)
                trainers.append(by_index[index])
            if kills and kills[0][0] <= now:
                trainer = by_index[kills.pop(0)[1]]
                trainer.kill()
                trainer.start()
            time.sleep(0.02)
        stats = json.loads(subprocess.run([args.headrace, "stats", "--address", folder / "run"], check=True, capture_output=True).stdout)
        used = cpu_of(server.pid) - before
        for trainer in trainers:
            trainer.kill()
        return Run(1e6 * used, sum(trainer.samples for trainer in trainers), list(stats["streams"].values()))
    finally:
        for trainer in trainers:
            trainer.process.kill()
        server.terminate()
        server.wait()


def main() -> None:
    if sys.argv[1:2] == ["--train"]:
        address, name, client, step, state = sys.argv[2:]
        return train(address, name, client, float(step), state)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images")
    parser.add_argument("--headrace", default="headrace")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--step", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    args = parser.parse_args()
    runs: dict[str, list[Run]] = {case: [] for case in args.cases}
    alone: dict[str, list[list[float]]] = {case: [] for case in args.cases if case in ALONE}  # us per sample of each job, six times a round
    for number in range(args.rounds):
        for case in args.cases:
            print(f"round {number + 1} of {args.rounds}: {case}", file=sys.stderr)
            runs[case].append(play(args, *CASES[case], args.seconds))
            if jobs := ALONE.get(case):
                alone[case] += [[bench(args, jobs, name) for name in jobs] for _ in range(6)]
    report(runs, alone)


def report(runs: dict[str, list[Run]], alone: dict[str, list[list[float]]]) -> None:
    one = runs.get("1 trainer")
    print("| case | us per delivered sample | relative to 1 trainer | decoded | granted | sharing factor |\n|---|---|---|---|---|---|")
    for case, played in runs.items():
        figures = [run.per_delivered for run in played]
        relative = f"{statistics.median(f / o.per_delivered for f, o in zip(figures, one, strict=True)):.2f}" if one else "-"
        decoded, granted = played[-1].decoded, played[-1].granted
        print(f"| {case} | {statistics.median(figures):.0f} | {relative} | {decoded} | {granted} | {granted / decoded:.2f} |")
    if not one or not alone:
        return
    print("\n| jobs | us per sample | own work, relative | all jobs / 1 trainer | all jobs without own work / 1 trainer |\n|---|---|---|---|---|")
    for case, each in alone.items():
        jobs, together = len(ALONE[case]), [run.per_made for run in runs[case]]
        medians = [statistics.median(job) for job in zip(*each, strict=True)]
        own = statistics.mean(medians) / medians[0] - 1
        total = statistics.median(jobs * t / o.per_made for t, o in zip(together, one, strict=True))
        print(f"| {case} | {statistics.median(together):.0f} | {own:.3f} | {total:.2f} | {total - jobs * own:.2f} |")


if __name__ == "__main__":
    main()
