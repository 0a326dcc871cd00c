"""The kernel beside torchvision.transforms.v2 and Kornia on the same GPU, in turns in one run, microseconds for 256 pictures of 224 x 224.

  compare_transforms.py ROWS_BENCH [DEVICE] [--rows 256] [--turns 7]

The pointwise chain: flip, color jitter, normalize to float16. Pictures are uint8 tensors on the GPU.

  torchvision, per picture  v2's functional calls picture by picture, with draws for each; drawing is not counted
  torchvision, one draw     v2's transforms on the whole batch, which draw once a call
  Kornia                    its augmentations on the whole batch, with draws for each picture

device_us   the device's work alone, as the kernel's time is: of a call's kernels by torch's profiler
wall_us     until the device has made them, the Python calls included: a trainer that has nothing else to do waits for both

DEVICE "host": a few pictures on the CPU and no kernel, to try the program. Its times are no figures.
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
KERNEL = "224 x 224, flip, color jitter, normalize, float16"  # of rows_bench
Work = Callable[[], torch.Tensor]


def kernel_us(program: str) -> float:
    done = subprocess.run([program, "--rounds", "5"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"compare_transforms: {program} ended with status {done.returncode}: {done.stderr}")
    figures = [json.loads(line.removeprefix("[figure] ")) for line in done.stdout.splitlines() if line.startswith("[figure] ")]
    found: list[float] = [figure["us"] for figure in figures if figure["of"] == KERNEL]
    if not found:
        sys.exit(f"compare_transforms: {program} has no figure of {KERNEL!r}")
    return found[0]


def per_picture(batch: torch.Tensor) -> Work:
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
    """For which a trace's events keep the device busy. Those of one stream: none is beside another."""
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
    if on_gpu:
        torch.cuda.synchronize()
    begun = time.perf_counter()
    work()
    if on_gpu:
        torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("device", nargs="?", default="cuda:0")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    on_gpu = arguments.device != "host"
    batch = torch.randint(0, 256, (arguments.rows, 3, 224, 224), dtype=torch.uint8, device=arguments.device if on_gpu else "cpu")
    makers = {"torchvision, per picture": per_picture, "torchvision, one draw": one_draw, "Kornia": by_kornia}
    others: dict[str, Work] = {}
    for name, maker in makers.items():
        try:
            work = maker(batch)
            made = work()  # and warm
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
            walls[name].append(microseconds(work, on_gpu))  # not under the profiler, which slows calls
            devices[name].append(profiled(work, on_gpu))
    for name in others:
        wall, device = statistics.median(walls[name]), statistics.median(devices[name])
        figure: dict[str, Any] = {"figure": "transforms", "other": name, "rows": arguments.rows, "wall_us": wall}
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
