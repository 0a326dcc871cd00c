"""CPU time of the server per delivered sample when several trainers read the same images, relative to one trainer. Trainers start at
different times, are killed and restarted, or have other batch sizes, dtypes and colors. Cases run in turn, each with a server of its own.

    python3 tests/bench/skew.py IMAGES --headrace build/release/server/verbs/headrace --seconds 60 --rounds 3

IMAGES is a folder per class of JPEGs. A case is a training of 10 minutes, scaled to `--seconds`: what is decoded twice depends on the delays'
part of the whole. Trainers wait `--step` seconds after each batch of 64 samples (in proportion for other sizes), as if they trained.
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


JOBS = {f"job{i}": stream((32, 64, 96, 128)[i], i, i % 2 == 1) for i in range(4)}
SWEEP = {f"job{i}": stream((32, 64, 128, 256)[i % 4], i % 4, i >= 4) for i in range(8)}
ONE = {"train": stream()}

NOMINAL = 600  # seconds
# name: streams, and the trainers: stream, start, and the time at which it is killed, to be restarted (nominal seconds)
CASES: dict[str, tuple[dict[str, Any], list[tuple[str, float, float | None]]]] = {
    "1 trainer": (ONE, [("train", 0, None)]),
    "2 trainers, 10 s apart": (ONE, [("train", 0, None), ("train", 10, None)]),
    "4 trainers within 45 s": (ONE, [("train", 0, None), ("train", 15, None), ("train", 30, None), ("train", 45, None)]),
    "2 trainers, one restarted": (ONE, [("train", 0, None), ("train", 0, 300)]),
    "4 jobs": (JOBS, [(name, 0, None) for name in JOBS]),
    "sweep of 8 jobs": (SWEEP, [(name, 0, None) for name in SWEEP]),
}


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


def play(args: argparse.Namespace, case: str, folder: Path) -> tuple[float, dict[str, Any]]:
    """CPU us of the server per delivered sample, and its streams' figures."""
    streams, parts = CASES[case]
    config = folder / "headrace.yaml"
    settings = {"server": {"threads": os.cpu_count(), "metrics": "off", "directory": str(folder / "run")}}
    config.write_text(json.dumps({**settings, "sources": {"images": {"type": "image_folder", "path": args.images}}, "streams": streams}))
    server = subprocess.Popen([args.headrace, "serve", str(config)], stderr=subprocess.DEVNULL)
    trainers: list[Trainer] = []
    try:
        subprocess.run([args.headrace, "health", "--address", folder / "run", "--timeout", "30"], check=True, stdout=subprocess.DEVNULL)
        before, begun = cpu_of(server.pid), time.monotonic()
        starts = sorted(enumerate(parts), key=lambda part: part[1][1])
        kills = [(at, index) for index, (_, _, at) in enumerate(parts) if at is not None]
        by_index: dict[int, Trainer] = {}
        while (now := (time.monotonic() - begun) * NOMINAL / args.seconds) < NOMINAL:
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
        return 1e6 * used / sum(trainer.samples for trainer in trainers), stats["streams"]
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
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--step", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    args = parser.parse_args()
    figures: dict[str, list[float]] = {case: [] for case in args.cases}
    streams: dict[str, dict[str, Any]] = {}
    for number in range(args.rounds):
        for case in args.cases:
            print(f"round {number + 1} of {args.rounds}: {case}", file=sys.stderr)
            with tempfile.TemporaryDirectory() as folder:
                figure, streams[case] = play(args, case, Path(folder))
            figures[case].append(figure)
    alone = statistics.median(figures["1 trainer"]) if "1 trainer" in figures else None
    print("| case | us per delivered sample | relative to 1 trainer | decoded | delivered | sharing factor |\n|---|---|---|---|---|---|")
    for case, values in figures.items():
        decoded = sum(one["samples"] - one.get("shared", 0) for one in streams[case].values())
        delivered = sum(one.get("granted", 0) for one in streams[case].values())
        middle = statistics.median(values)
        relative = f"{middle / alone:.2f}" if alone else "-"
        print(f"| {case} | {middle:.0f} | {relative} | {decoded} | {delivered} | {delivered / decoded:.2f} |")


if __name__ == "__main__":
    main()
