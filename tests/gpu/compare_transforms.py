"""Compares Headrace's kernel with torchvision.transforms.v2 and Kornia on the same GPU: microseconds for 256 images of 224 x 224 pixels.

  compare_transforms.py ROWS_BENCH [DEVICE] [--turns 7]

The libraries run alternately in one run. The transforms are a flip, color jitter and normalize, to float16. Images are uint8 tensors on the GPU.

  torchvision, per image  v2's functional calls image by image, with random draws for each; the time for drawing is not counted
  torchvision, one draw   v2's transforms on the whole batch, which draw once per call
  Kornia                  Kornia's augmentations on the whole batch, with random draws for each image

A figure has two times of a library:

  device_us  the time of its kernels and copies on the GPU, from torch's profiler; the time of Headrace's kernel is also GPU time alone
  wall_us    the time until the GPU has finished, including the Python calls; a trainer with no other work waits that long
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
JITTER = (0.4, 0.4, 0.4, 0.1)
ROWS, FEW_ROWS = 256, 2  # as many as rows_bench computes; on the CPU, where times mean nothing
KERNEL = "224 x 224, flip, color jitter, normalize, float16"  # a figure of rows_bench
Work = Callable[[], torch.Tensor]


def kernel_us(program: str) -> float:
    done = subprocess.run([program, "--rounds", "5"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"compare_transforms: {program} ended with status {done.returncode}: {done.stderr}")
    figures = [json.loads(line.removeprefix("[figure] ")) for line in done.stdout.splitlines() if line.startswith("[figure] ")]
    found: list[float] = [figure["us"] for figure in figures if figure["of"] == KERNEL]
    if not found:
        sys.exit(f"compare_transforms: {program} printed no figure of {KERNEL!r}: expected a rows_bench of the same version")
    return found[0]


def per_image(batch: torch.Tensor) -> Work:
    from torchvision.transforms.v2 import functional as v2

    draw = random.Random(0)
    colors: list[tuple[Callable[..., torch.Tensor], Callable[[], float]]] = [
        (v2.adjust_brightness, lambda: draw.uniform(0.6, 1.4)),
        (v2.adjust_contrast, lambda: draw.uniform(0.6, 1.4)),
        (v2.adjust_saturation, lambda: draw.uniform(0.6, 1.4)),
        (v2.adjust_hue, lambda: draw.uniform(-0.1, 0.1)),
    ]
    draws = [(draw.random() < 0.5, [(adjust, factor()) for adjust, factor in draw.sample(colors, 4)]) for _ in batch]

    def work() -> torch.Tensor:
        made = []
        for image, (flip, steps) in zip(batch, draws, strict=True):
            if flip:
                image = v2.horizontal_flip(image)
            for adjust, factor in steps:
                image = adjust(image, factor)
            made.append(image)
        return v2.normalize(v2.to_dtype(torch.stack(made), torch.float16, scale=True), MEAN, STD, inplace=True)

    return work


def one_draw(batch: torch.Tensor) -> Work:
    from torchvision.transforms import v2

    whole = v2.Compose([v2.RandomHorizontalFlip(), v2.ColorJitter(*JITTER), v2.ToDtype(torch.float16, scale=True), v2.Normalize(MEAN, STD, inplace=True)])
    return lambda: whole(batch)


def by_kornia(batch: torch.Tensor) -> Work:
    import kornia.augmentation as k

    whole = k.AugmentationSequential(k.RandomHorizontalFlip(), k.ColorJitter(*JITTER, p=1.0), k.Normalize(torch.tensor(MEAN), torch.tensor(STD))).to(batch.device)

    def work() -> torch.Tensor:
        made: torch.Tensor = whole(batch.half().div_(255))
        return made.half()

    return work


def device_us(events: Iterable[dict[str, Any]]) -> float:
    """The time that a trace's kernels and copies take on the device. They are on one stream, so none overlaps with another."""
    busy = ("kernel", "gpu_memcpy", "gpu_memset")
    return sum(float(event["dur"]) for event in events if event.get("ph") == "X" and event.get("cat") in busy)


def profiled(work: Work, on_gpu: bool) -> float:
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        work()
        if on_gpu:
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        return device_us(json.loads(trace.read_text())["traceEvents"])


def microseconds(work: Work, on_gpu: bool) -> float:
    """The time until the device has finished, including the Python calls."""
    if on_gpu:
        torch.cuda.synchronize()
    begun = time.perf_counter()
    work()
    if on_gpu:
        torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="ROWS_BENCH", help="the built rows_bench, which measures Headrace's kernel")
    parser.add_argument(
        "device", nargs="?", default="cuda:0", help='"cuda:N", or "host" to try the program on the CPU, with a few images and without the kernel (default: cuda:0)'
    )
    parser.add_argument("--turns", type=int, default=7, help="how often each library is measured; the median counts (default: 7)")
    arguments = parser.parse_args()
    on_gpu = arguments.device != "host"
    rows = ROWS if on_gpu else FEW_ROWS
    batch = torch.randint(0, 256, (rows, 3, 224, 224), dtype=torch.uint8, device=arguments.device if on_gpu else "cpu")
    makers = {"torchvision, per image": per_image, "torchvision, one draw": one_draw, "Kornia": by_kornia}
    others: dict[str, Work] = {}
    for name, maker in makers.items():
        try:
            work = maker(batch)
            made = work()  # also warms up
        except (ImportError, RuntimeError, NotImplementedError) as error:
            print(f"[not run] {name}: {str(error).splitlines()[0]}", flush=True)
            continue
        if made.shape != batch.shape or made.dtype != torch.float16:
            sys.exit(f"compare_transforms: {name}: expected float16 {tuple(batch.shape)}, found {made.dtype} {tuple(made.shape)}")
        others[name] = work
    ours: list[float] = []
    walls: dict[str, list[float]] = {name: [] for name in others}
    devices: dict[str, list[float]] = {name: [] for name in others}
    for _ in range(arguments.turns):
        if on_gpu:
            ours.append(kernel_us(arguments.program))
        for name, work in others.items():
            walls[name].append(microseconds(work, on_gpu))  # without the profiler, which slows calls
            devices[name].append(profiled(work, on_gpu))
    for name in others:
        wall, device = statistics.median(walls[name]), statistics.median(devices[name])
        figure: dict[str, Any] = {"figure": "transforms", "other": name, "rows": rows, "wall_us": wall}
        if ours:
            us = statistics.median(ours)
            figure |= {"kernel_us": us, "wall_ratio": wall / us}
            if device:
                figure |= {"device_us": device, "device_ratio": device / us}
            else:
                print(f"[not run] device time of {name}: torch's profiler saw no kernel", flush=True)
        print(("[figure] " if on_gpu else "tried   ") + json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
