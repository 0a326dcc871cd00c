"""Which loaders take part in which workloads, what they keep in memory, and what else is to be known of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from peers.workloads import Workload


@dataclass(frozen=True)
class Row:
    """
    families      of workloads
    groups        of workloads: `cached`, `uncached`, `share`; "" are all others
    cached        what is kept in memory, or was made beforehand
    dtypes        of workloads
    warm_samples  taken before the first round: so many as fill a cache
    """

    name: str
    module: str
    families: tuple[str, ...]
    cached: str
    options: dict[str, Any] = field(default_factory=dict)
    groups: tuple[str, ...] = ("",)
    dtypes: tuple[str, ...] = ("float32", "uint8")
    trainers: tuple[int, ...] = (1,)
    warm_samples: int = 0

    def takes_part(self, workload: Workload) -> bool:
        return (
            workload.family in self.families
            and workload.group in self.groups
            and workload.dtype in self.dtypes
            and workload.trainers in self.trainers
        )


SMALL, FILES = ("mnist", "cifar"), ("imagenet", "colour")
ARRAYS = "raw pixels"
RANKS = (1, 4)

ROWS = [
    Row("headrace", "served", SMALL, ARRAYS, {"zero_copy": True}, trainers=RANKS),
    Row("headrace", "served", FILES, "-", {"zero_copy": True}),
    Row("headrace-copies", "served", SMALL, ARRAYS, trainers=RANKS),
    Row("numpy", "numpy_loop", SMALL, ARRAYS, trainers=RANKS),
    Row("numpy-normalised", "numpy_loop", ("mnist",), "normalised float32", {"normalised": True}, dtypes=("float32",)),
    Row("tensor", "tensor_loop", SMALL, ARRAYS, trainers=RANKS),
    Row("tensor-normalised", "tensor_loop", ("mnist",), "normalised float32", {"normalised": True}, dtypes=("float32",)),
    Row("tensordataset-0", "torch_dataset", ("mnist",), "normalised float32", {"kind": "tensors", "workers": 0}, dtypes=("float32",)),
    Row("tensordataset-2", "torch_dataset", ("mnist",), "normalised float32", {"kind": "tensors", "workers": 2}, dtypes=("float32",)),
    Row("dataloader-pil-0", "torch_dataset", (*SMALL, *FILES), ARRAYS, {"kind": "pil", "workers": 0}),
    Row("dataloader-pil-2", "torch_dataset", (*SMALL, *FILES), ARRAYS, {"kind": "pil", "workers": 2}),
    Row("dataloader-cv2-2", "torch_dataset", FILES, "-", {"kind": "cv2", "workers": 2}),
    Row("dataloader-tensors-2", "torch_dataset", FILES, "-", {"kind": "tensors", "workers": 2}),
    Row("dali", "dali", (*SMALL, *FILES), "-"),
]


def rows_of(workload: Workload, names: list[str] | None = None) -> list[Row]:
    """Headrace first: it is what the others are compared with."""
    return [row for row in ROWS if row.takes_part(workload) and (names is None or row.name in names)]
