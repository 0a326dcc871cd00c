#!/usr/bin/env python3
"""Measures the cost of a batch on a device for the loop's thread: CPU microseconds per batch, for small batches that are ready in advance.

  device_loop.py [--device host] [--rows 2] [--batches 20000] [--epochs 5]

`loop` is the CPU time of the whole thread. `python` is the part of it in which Headrace's Python code allocates the batch's memory and
creates its tensors; it does not include waiting for the batch. The fastest epoch counts. "host" is the CPU backend, without torch's
calls for CUDA streams.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import yaml
from headrace import _device
from headrace._headrace import DeviceBatch as RawDeviceBatch


def write_config(folder: Path, rows: int, batches: int) -> Path:
    np.save(folder / "x.npy", np.random.default_rng(0).integers(0, 256, (rows * batches, 8, 8), dtype=np.uint8))
    np.save(folder / "y.npy", np.arange(rows * batches) % 10)
    stream = {"source": "digits", "batch_size": rows, "output": {"dtype": "float32"}}
    config = {
        "server": {"metrics": "off", "directory": str(folder / "run")},
        "sources": {"digits": {"type": "npy", "fields": {"image": str(folder / "x.npy"), "label": str(folder / "y.npy")}}},
        "streams": {"ring": stream, "resident": {**stream, "residence": "gpu"}},
    }
    (folder / "headrace.yaml").write_text(yaml.safe_dump(config))
    return folder / "headrace.yaml"


def clock_seconds() -> float:
    """The duration of a call of time.thread_time(): the minimum of 1000 calls."""
    least = 1.0
    for _ in range(1000):
        began = time.thread_time()
        least = min(least, time.thread_time() - began)
    return least


def time_calls(owner: type, name: str, spent: list[float], sign: int = 1) -> Callable[[], None]:
    """Wraps a method so that the thread's CPU time of each call is added to spent[0] (with -1: subtracted). Returns a function that
    restores the method."""
    call, clock = getattr(owner, name), clock_seconds()

    def wrapped(*given: Any) -> Any:
        began = time.thread_time()
        made = call(*given)
        spent[0] += sign * (time.thread_time() - began - clock)
        return made

    setattr(owner, name, wrapped)
    return lambda: setattr(owner, name, call)


def measure(loader: headrace.Loader, epochs: int, spent: list[float]) -> tuple[float, float]:
    """(CPU time of the thread, time added to spent[0]) per batch, in microseconds."""
    found = []
    for _ in range(epochs):
        count, spent[0], began = 0, 0.0, time.thread_time()
        for _ in loader:
            count += 1
        found.append(((time.thread_time() - began) / count * 1e6, spent[0] / count * 1e6))
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="host", help='"cuda:N", or "host" for the CPU backend (default: host)')
    parser.add_argument("--rows", type=int, default=2, help="rows of a batch (default: 2)")
    parser.add_argument("--batches", type=int, default=20_000, help="batches of an epoch (default: 20000)")
    parser.add_argument("--epochs", type=int, default=5, help="epochs to measure; the fastest counts (default: 5)")
    options = parser.parse_args()
    print(f"{'stream':10}{'output':8}{'loop':>8}{'python':>8}  CPU us per batch", flush=True)
    with tempfile.TemporaryDirectory() as folder, headrace.serve(write_config(Path(folder), options.rows, options.batches)) as server:
        for stream in ("ring", "resident"):
            for output in ("torch", "dlpack"):
                with headrace.Loader(server.address, stream=stream, device=options.device, output=output, prefetch=8) as loader:
                    spent = [0.0]
                    loop, _ = measure(loader, options.epochs, spent)
                    maker = _device.TorchAssembler if output == "torch" else _device.ArrayAssembler
                    restores = [time_calls(maker, "__call__", spent), time_calls(_device.TorchBlocks, "__call__", spent)]
                    restores.append(time_calls(RawDeviceBatch, "wait", spent, -1))  # for the CPU backend; on a GPU the stream waits instead
                    _, python = measure(loader, options.epochs, spent)
                    for restore in restores:
                        restore()
                    print(f"{stream:10}{output:8}{loop:8.1f}{python:8.1f}", flush=True)


if __name__ == "__main__":
    main()
