"""Measures whether copies to the device run while the trainer computes: it profiles a training loop with torch's profiler.

  overlap.py [DEVICE] [--out FOLDER]

It reports two fractions of the copies' time: `share`, while a kernel of the trainer ran, and `hidden`, while no queued kernel of the
trainer waited. `hidden` is higher, because a copy delays nothing while the GPU is idle. It writes the trace to
FOLDER/overlap-STREAM.json.gz (for chrome://tracing or ui.perfetto.dev). There are two streams: the server computes the batches of
`finished`; a kernel on the device completes those of `left` (`device: gpu`).
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SIDE, BATCH, STEPS = 64, 512, 40
Span = tuple[float, float]


def united(spans: Iterable[Span]) -> list[Span]:
    """Sorts spans and joins those that touch."""
    made: list[Span] = []
    for begin, end in sorted(spans):
        if made and begin <= made[-1][1]:
            made[-1] = (made[-1][0], max(made[-1][1], end))
        else:
            made.append((begin, end))
    return made


def in_both(left: list[Span], right: list[Span]) -> float:
    """The time that is in spans of both lists, each from united()."""
    total, i, j = 0.0, 0, 0
    while i < len(left) and j < len(right):
        total += max(0.0, min(left[i][1], right[j][1]) - max(left[i][0], right[j][0]))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return total


def waits(kernels: Iterable[tuple[float, Span]]) -> list[Span]:
    """The spans in which the next kernel was queued and none ran. `kernels`: when each was queued, and when it ran."""
    found: list[Span] = []
    end: float | None = None
    for queued, (begin, finish) in sorted(kernels, key=lambda kernel: kernel[1]):
        if end is not None and begin > max(end, queued):
            found.append((max(end, queued), begin))
        end = max(end or finish, finish)
    return found


def overlap(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The overlap of copies and kernels in a trace's events, in microseconds. The stream that copies most bytes to the device is taken as the
    loader's. Kernels on that stream are the loader's, all others the trainer's. The shares are None if nothing was copied, and `hidden` also if the trace
    does not have the launch of each kernel."""
    copies: list[tuple[Any, Span]] = []
    kernels: list[tuple[Any, Span]] = []
    queued: dict[Any, float] = {}  # by the number that connects a kernel with the call that launched it
    numbers: list[Any] = []  # of `kernels`
    taken: Counter[Any] = Counter()
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {}):
            queued[event["args"]["correlation"]] = float(event["ts"]) + float(event["dur"])
        if event.get("ph") != "X" or event.get("cat") not in ("kernel", "gpu_memcpy"):
            continue
        arguments = event.get("args", {})
        stream = (arguments.get("device"), arguments.get("stream"))
        span = (float(event["ts"]), float(event["ts"]) + float(event["dur"]))
        if event["cat"] == "kernel":
            kernels.append((stream, span))
            numbers.append(arguments.get("correlation"))
        elif "HtoD" in event["name"]:
            copies.append((stream, span))
            taken[stream] += int(arguments.get("bytes", 0))
    loaders = max(taken, key=lambda stream: taken[stream]) if taken else None
    copied = united(span for stream, span in copies if stream == loaders)
    computed = united(span for stream, span in kernels if stream != loaders)
    copy_us = sum(end - begin for begin, end in copied)
    overlapped = in_both(copied, computed)
    trainers = [(queued.get(number), span) for number, (stream, span) in zip(numbers, kernels, strict=True) if stream != loaders]
    known = [(at, span) for at, span in trainers if at is not None]
    hidden = 1 - in_both(copied, waits(known)) / copy_us if copy_us and len(known) == len(trainers) else None
    return {
        "copies": sum(stream == loaders for stream, _ in copies),
        "copy_us": copy_us,
        "trainer_kernels_us": sum(end - begin for begin, end in computed),
        "overlapped_us": overlapped,
        "share": overlapped / copy_us if copy_us else None,
        "hidden": hidden,
    }


def config(folder: Path, batch: int) -> Path:
    import numpy as np

    rows = 16 * batch
    random = np.random.default_rng(0)
    np.save(folder / "images.npy", random.integers(0, 256, (rows, SIDE, SIDE, 3), dtype=np.uint8))
    np.save(folder / "labels.npy", random.integers(0, 10, rows))
    source = {"type": "npy", "fields": {"image": str(folder / "images.npy"), "label": str(folder / "labels.npy")}}
    chain = [{"random_crop": {"size": SIDE, "padding": 4}}, "random_horizontal_flip", {"normalize": {"mean": [0.5] * 3, "std": [0.25] * 3}}]
    stream = {"source": "set", "batch_size": batch, "transforms": chain, "output": {"dtype": "float32"}}
    streams = {"finished": stream, "left": stream | {"device": "gpu"}}
    written = folder / "config.yaml"
    written.write_text(json.dumps({"server": {"directory": str(folder / "run"), "metrics": "off"}, "sources": {"set": source}, "streams": streams}))
    return written


def train(address: str, stream: str, device: str, steps: int, trace: Path) -> None:
    """Trains a small network; the profiler records the second half of the steps."""
    import headrace
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile

    layers = [nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3, stride=2), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64 * 16, 10)]
    model = nn.Sequential(*layers).to(device.replace("host", "cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    profiler = profile(activities=[ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device != "host" else []))
    step = 0
    with headrace.Loader(address, stream=stream, device=device) as loader:
        while step < steps:  # takes several epochs
            for image, label in loader:
                if step == steps // 2:
                    profiler.start()
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(image), label)
                loss.backward()
                optimizer.step()
                step += 1
                if step % 8 == 0:
                    loss.item()  # trainers read their loss now and then
                if step == steps:
                    break
        if device != "host":
            torch.cuda.synchronize()
        profiler.stop()
    profiler.export_chrome_trace(str(trace))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", default="cuda:0", help='"cuda:N", or "host" to try the loop on the CPU backend, whose copies no trace shows (default: cuda:0)')
    parser.add_argument("--out", type=Path, default=Path("tests/gpu/results"), help="the folder for traces (default: tests/gpu/results)")
    arguments = parser.parse_args()
    import headrace

    device, batch, steps = (arguments.device, BATCH, STEPS) if arguments.device != "host" else ("host", 8, 2)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, headrace.serve(config(Path(folder), batch)) as server:
        for stream in ("finished", "left"):
            trace = Path(folder) / "trace.json"
            train(server.address, stream, device, steps, trace)
            found = overlap(json.loads(trace.read_text())["traceEvents"])
            kept = arguments.out / f"overlap-{stream}.json.gz"
            kept.write_bytes(gzip.compress(trace.read_bytes(), mtime=0))
            if device == "host":
                print(f"[not run] the share of {stream}: no trace shows the copies of the CPU backend")
            elif found["hidden"] is None and found["share"] is not None:
                sys.exit(f"overlap: {stream}: the trace does not show when each kernel of the trainer was launched, so nobody knows how long they waited; see {kept}")
            elif not found["share"]:
                sys.exit(f"overlap: {stream}: expected copies to run beside kernels of the trainer, found none that did: {found}; see the trace {kept}")
            else:
                print("[figure] " + json.dumps({"figure": "copies beside the trainer's kernels", "stream": stream, **found, "trace": kept.name}), flush=True)


if __name__ == "__main__":
    main()
