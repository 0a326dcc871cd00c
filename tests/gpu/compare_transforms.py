"""The transform kernel beside torchvision.transforms.v2 and Kornia on the same GPU, in turn in one run, microseconds for a batch.

  compare_transforms.py TRANSFORM_BENCH [DEVICE] [--rows 256] [--turns 7]

Crop out of pictures of about 350 x 300, resize to 224, flip, normalize, and the same with colour jitter and grayscale; pictures lie on the
GPU as bytes. What each does is drawn per picture, but for the rows "one draw", which stand for orientation: v2 draws once a call.

  torchvision, a loop  its functional calls picture by picture with the very draws of the kernel's, values and layout for the whole batch;
                       drawing is not counted. Its rows are compared with the kernel's
  torchvision, one draw, kornia  the whole chain on one tensor of 300 x 350 for all, as they take no pictures of several sizes; Kornia
                       draws per picture, crops by slices (its default) or by a warp without antialiasing

DEVICE "host": all of it on the CPU, to try the program; such figures mean nothing and are not printed as such.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
AIM = 3.0
LOOP, ONE_DRAW = "torchvision, a loop", "torchvision, one draw"
CASES = [f"{chain}-{dtype}" for chain in ("crop", "colours") for dtype in ("float16", "float32")]
ALIKE = {"crop": 1.0, "colours": 3.0}  # mean difference in levels of 255: both round to bytes after each step, not alike
Work = Callable[[], torch.Tensor]


class Kernel:
    """TRANSFORM_BENCH, which stays there from turn to turn."""

    def __init__(self, program: str, device: str, rows: int, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen([program, device, str(rows), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.plan: dict[str, Any] = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"compare_transforms: {self._process.args!r} ended with status {self._process.wait()}")
        return json.loads(line)

    def microseconds(self, case: str, rounds: int) -> list[float]:
        assert self._process.stdin
        self._process.stdin.write(f"{case} {rounds}\n")
        self._process.stdin.flush()
        found: list[float] = self._answer()
        return found

    def made(self, case: str) -> torch.Tensor:
        dtype = np.float16 if case.endswith("float16") else np.float32
        side = self.plan["side"]
        return torch.from_numpy(np.fromfile(self._folder / case, dtype).reshape(-1, 3, side, side))

    def pictures(self) -> list[torch.Tensor]:
        pixels = np.fromfile(self._folder / "pixels", np.uint8)
        shapes = [(row["offset"], *row["size"]) for row in self.plan["rows"]]
        return [torch.from_numpy(pixels[at : at + 3 * h * w].reshape(h, w, 3).transpose(2, 0, 1).copy()) for at, h, w in shapes]

    def close(self) -> None:
        self._process.communicate()


def in_a_loop(plan: dict[str, Any], pictures: list[torch.Tensor], case: str) -> Work:
    from torchvision.transforms.v2 import functional as v2

    side, dtype, coloured = plan["side"], getattr(torch, case.split("-")[1]), case.startswith("colours")
    # The numbers of PixelStepKind.
    colours: list[Callable[[torch.Tensor, int, float], torch.Tensor]] = [
        lambda image, _, factor: v2.adjust_brightness(image, factor),
        lambda image, _, factor: v2.adjust_contrast(image, factor),
        lambda image, _, factor: v2.adjust_saturation(image, factor),
        lambda image, shift, _: v2.adjust_hue(image, shift / 255),
        lambda image, *_: v2.rgb_to_grayscale(image, num_output_channels=3),
    ]

    def work() -> torch.Tensor:
        made = []
        for picture, row in zip(pictures, plan["rows"], strict=True):
            image = v2.resized_crop(picture, *row["crop"], size=[side, side], antialias=True)
            if row["mirrored"]:
                image = v2.horizontal_flip(image)
            for kind, shift, factor in row["ops"] if coloured else ():
                image = colours[kind](image, shift, factor)
            made.append(image)
        return v2.normalize(v2.to_dtype(torch.stack(made), dtype, scale=True), MEAN, STD, inplace=True)

    return work


def with_one_draw(plan: dict[str, Any], batch: torch.Tensor, case: str) -> Work:
    from torchvision.transforms import v2

    chain: list[Any] = [v2.RandomResizedCrop(plan["side"], antialias=True), v2.RandomHorizontalFlip()]
    if case.startswith("colours"):
        chain += [v2.ColorJitter(0.4, 0.4, 0.4, 0.1), v2.RandomGrayscale(0.2)]
    whole = v2.Compose([*chain, v2.ToDtype(getattr(torch, case.split("-")[1]), scale=True), v2.Normalize(MEAN, STD, inplace=True)])
    return lambda: whole(batch)


def by_kornia(plan: dict[str, Any], batch: torch.Tensor, case: str, cropping: str) -> Work:
    import kornia.augmentation as k

    dtype = getattr(torch, case.split("-")[1])
    chain: list[Any] = [k.RandomResizedCrop((plan["side"], plan["side"]), cropping_mode=cropping), k.RandomHorizontalFlip()]
    if case.startswith("colours"):
        chain += [k.ColorJitter(0.4, 0.4, 0.4, 0.1), k.RandomGrayscale(p=0.2)]
    whole = k.AugmentationSequential(*chain, k.Normalize(MEAN, STD))

    def work() -> torch.Tensor:
        made: torch.Tensor = whole(batch.to(dtype).div_(255))
        return made.to(dtype)

    return work


def microseconds(work: Work, device: str, rounds: int) -> list[float]:
    found = []
    for _ in range(rounds):
        if device == "host":
            begun = time.perf_counter()
            work()
            found.append(1e6 * (time.perf_counter() - begun))
            continue
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        found.append(1e3 * begin.elapsed_time(end))
    return found


def same(case: str, ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Levels of 255 by which they differ, on average."""
    std = torch.tensor(STD).reshape(3, 1, 1)
    levels = ((ours.float() - theirs.cpu().float()) * std * 255).abs().mean().item()
    if not levels < ALIKE[case.split("-")[0]]:
        sys.exit(f"compare_transforms: {case}: torchvision's rows differ by {levels:.2f} levels of 255 on average: not the same work")
    return levels


def compare(kernel: Kernel, pictures: list[torch.Tensor], batch: torch.Tensor, case: str, device: str, turns: int) -> None:
    makers: dict[str, Callable[[], Work]] = {
        LOOP: lambda: in_a_loop(kernel.plan, pictures, case),
        ONE_DRAW: lambda: with_one_draw(kernel.plan, batch, case),
        "kornia, slices": lambda: by_kornia(kernel.plan, batch, case, "slice"),
        "kornia, a warp": lambda: by_kornia(kernel.plan, batch, case, "resample"),
    }
    kernel.microseconds(case, 5)
    others: dict[str, Work] = {}
    levels = None
    for name, maker in makers.items():
        try:
            work = maker()
            made = work()  # and warm
        except (ImportError, RuntimeError, NotImplementedError) as error:
            print(f"[not run] {case}, {name}: {str(error).splitlines()[0]}", flush=True)
            continue
        others[name] = work
        if name == LOOP:
            levels = same(case, kernel.made(case), made)
    ours: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in others}
    for _ in range(turns):
        ours += kernel.microseconds(case, 20 if device != "host" else 1)
        for name, work in others.items():
            theirs[name] += microseconds(work, device, 3 if device != "host" else 1)
    for name, found in theirs.items():
        us, other = statistics.median(ours), statistics.median(found)
        figure = {"figure": "transforms", "case": case, "rows": len(pictures), "other": name, "headrace_us": us, "other_us": other}
        figure |= {"ratio": other / us, "aim": "" if name == ONE_DRAW else AIM, "differ_by_levels": levels if name == LOOP else ""}
        print(("[figure] " if device != "host" else "tried   ") + json.dumps(figure), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("device", nargs="?", default="cuda:0")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    device, at = arguments.device, arguments.device.replace("host", "cpu")
    with tempfile.TemporaryDirectory() as folder:
        kernel = Kernel(arguments.program, device, arguments.rows, Path(folder))
        pictures = [picture.to(at) for picture in kernel.pictures()]
        batch = torch.randint(0, 256, (arguments.rows, 3, 300, 350), dtype=torch.uint8, device=at)
        for case in CASES:
            compare(kernel, pictures, batch, case, device, arguments.turns)
        kernel.close()


if __name__ == "__main__":
    main()
