"""The workloads: the same work for all loaders is defined here."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

MEANS = {"mnist": (0.1307,), "cifar": (0.4914, 0.4822, 0.4465), "imagenet": (0.485, 0.456, 0.406)}
STDS = {"mnist": (0.3081,), "cifar": (0.2470, 0.2435, 0.2616), "imagenet": (0.229, 0.224, 0.225)}
MEANS["color"], STDS["color"] = MEANS["imagenet"], STDS["imagenet"]

PATCH, SCALE = 48, 4  # of the low resolution, and the high one's factor
COLOR_SIDE = 384  # pixels; large JPEGs are resized to squares of this side, because arrays of one size can be stacked
PADDING = 4  # of CIFAR's random crop
LONG_EPOCH = 10_000  # loaders that begin anew at each epoch see small sets repeated to so many samples


@dataclass(frozen=True)
class Workload:
    """`float32` is normalized, `uint8` is not; pairs are fractions of 255 as float32.

    data      the name of the folder of --data that it reads
    group     has its own table, so that cached and uncached loaders are never in one table
    trainers  processes that read batches
    delivery  `shard` divides an epoch among the trainers, `broadcast` gives each of them every batch
    apart     seconds from the start of one trainer to that of the next
    """

    name: str
    family: str
    data: str
    batch: int
    dtype: str
    title: str
    layout: str = "NCHW"
    group: str = ""
    trainers: int = 1
    delivery: str = "shard"
    apart: float = 0

    @property
    def normalized(self) -> bool:
        return self.dtype == "float32" and self.family in MEANS


@dataclass(frozen=True)
class Job:
    """The job of one trainer process."""

    workload: Workload
    data: str
    scratch: str
    folder: str  # for this loader only; new for each run
    row: str
    module: str
    options: dict[str, Any] = field(default_factory=dict)
    rank: int = 0
    seed: int = 1

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        fields = json.loads(text)
        return Job(**{**fields, "workload": Workload(**fields["workload"])})

    def mean(self) -> tuple[float, ...]:
        return MEANS[self.workload.family]

    def std(self) -> tuple[float, ...]:
        return STDS[self.workload.family]

    def shared(self, name: str) -> Path:
        """Prepared data in the scratch folder, which loaders and runs share."""
        return Path(self.scratch) / name

    def own(self, name: str) -> Path:
        return Path(self.folder) / name

    def seed_of_rank(self) -> int:
        return self.seed * 1000 + self.rank


def _all() -> list[Workload]:
    made = []
    for dtype, short in (("float32", "f32"), ("uint8", "u8")):
        normalize = ", normalize" if short == "f32" else ""
        made.append(Workload(f"w1-{short}", "mnist", "mnist", 300, dtype, f"MNIST, 60,000 of 1x28x28: shuffle{normalize}"))
        for ranks in (1, 4):
            name = f"w2-{short}" + (f"-{ranks}ranks" if ranks > 1 else "")
            title = f"CIFAR-10, 50,000 of 3x32x32: random_crop 32 padding 4, flip{normalize}; to {ranks} rank(s)"
            made.append(Workload(name, "cifar", "cifar", 768, dtype, title, trainers=ranks))
        made.append(
            Workload(
                f"w3-{short}",
                "imagenet",
                "imagenet",
                64,
                dtype,
                f"ImageNet JPEGs: random_resized_crop 224, flip{normalize}",
                layout="NCHW" if short == "f32" else "NHWC",
            )
        )
        for kind in ("cached", "uncached"):
            for batch in (8, 128):
                title = "PNG pairs x4: aligned patches of 48 and 192, flips, quarter turns; " + (
                    "decoded once" if kind == "cached" else "decoded each time"
                )
                made.append(Workload(f"w4-{kind}-{short}-b{batch}", "pairs", "pairs", batch, dtype, title, group=kind))
        title = (
            f"ImageNet JPEGs: resize {COLOR_SIDE}x{COLOR_SIDE}, both flips, color_jitter(.3, .3, .3, .1), "
            f"random_grayscale .2{normalize}"
        )
        made.append(Workload(f"w5-{short}", "color", "imagenet", 32, dtype, title))
    for trainers, apart in ((1, 0), (2, 0), (4, 0), (2, 10), (4, 5)):
        start = f", each started {apart} s after the one before" if apart else ""
        title = f"ImageNet JPEGs as in w3-f32, each batch to {trainers} trainer(s){start}: per delivered sample"
        name = f"share-{trainers}" + ("-late" if apart else "")
        made.append(
            Workload(name, "imagenet", "imagenet", 64, "float32", title, group="share", trainers=trainers, delivery="broadcast", apart=apart)
        )
    return made


WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _all()}
