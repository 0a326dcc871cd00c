"""The loaders of each workload, their caches, and remarks."""

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


SMALL, FILES, IMAGES = ("mnist", "cifar"), ("imagenet", "color"), ("imagenet",)
RAW, NOTHING, NORMALIZED = "raw pixels", "-", "normalized float32"
PAIRS, CACHED, UNCACHED = ("pairs",), ("cached",), ("uncached",)
SHARE, SHARES = ("share",), (1, 2, 4)
RANKS, F32 = (1, 4), ("float32",)
ZERO_COPY = {"zero_copy": True}

ROWS = [
    Row("headrace", "served", SMALL, RAW, ZERO_COPY, trainers=RANKS),
    Row("headrace", "served", FILES, NOTHING, ZERO_COPY),
    Row("headrace-tiled", "served", IMAGES, "its tiled set, mapped", {**ZERO_COPY, "store": "tiled"}),
    Row("headrace-copies", "served", SMALL, RAW, trainers=RANKS),
    Row("numpy", "numpy_loop", SMALL, RAW, trainers=RANKS),
    Row("numpy-normalized", "numpy_loop", ("mnist",), NORMALIZED, {"normalized": True}, dtypes=F32),
    Row("tensor", "tensor_loop", SMALL, RAW, trainers=RANKS),
    Row("tensor-normalized", "tensor_loop", ("mnist",), NORMALIZED, {"normalized": True}, dtypes=F32),
    Row("tensordataset-0", "torch_dataset", ("mnist",), NORMALIZED, {"kind": "tensors", "workers": 0}, dtypes=F32),
    Row("tensordataset-2", "torch_dataset", ("mnist",), NORMALIZED, {"kind": "tensors", "workers": 2}, dtypes=F32),
    Row("dataloader-pil-0", "torch_dataset", SMALL, RAW, {"kind": "pil", "workers": 0}, trainers=RANKS),
    Row("dataloader-pil-2", "torch_dataset", SMALL, RAW, {"kind": "pil", "workers": 2}),
    Row("dataloader-pil-0", "torch_dataset", FILES, NOTHING, {"kind": "pil", "workers": 0}),
    Row("dataloader-pil-2", "torch_dataset", FILES, NOTHING, {"kind": "pil", "workers": 2}),
    Row("dataloader-cv2-2", "torch_dataset", FILES, NOTHING, {"kind": "cv2", "workers": 2}),
    Row("dataloader-tensors-2", "torch_dataset", FILES, NOTHING, {"kind": "tensors", "workers": 2}),
    Row("dali", "dali", SMALL, RAW, trainers=RANKS),
    Row("dali", "dali", FILES, NOTHING),
    Row("ffcv", "ffcv_beton", SMALL, "its file, mapped"),
    Row("ffcv", "ffcv_beton", IMAGES, "its file of JPEGs encoded again, mapped"),
    Row("tf.data", "tf_data", SMALL, RAW, trainers=RANKS),
    Row("tf.data", "tf_data", FILES, NOTHING),
    Row("spdl", "spdl_threads", SMALL, RAW, trainers=RANKS),
    Row("spdl", "spdl_threads", IMAGES, NOTHING),
    Row("grain", "grain_threads", SMALL, RAW, trainers=RANKS),
    Row("grain", "grain_threads", FILES, NOTHING),
    Row("litdata-0", "litdata_chunks", SMALL, "its chunks, mapped", {"workers": 0}),
    Row("litdata-2", "litdata_chunks", FILES, NOTHING, {"workers": 2}),
    # Pairs: loaders that decode once, and loaders that decode each time.
    Row("headrace", "served", PAIRS, RAW, {**ZERO_COPY, "decoded": "256MB"}, groups=CACHED, warm_samples=600),
    Row("numpy", "numpy_loop", PAIRS, RAW, groups=CACHED),
    Row("dataloader-lz4-0", "torch_dataset", PAIRS, "LMDB of lz4-compressed pixels, mapped", {"kind": "lz4-lmdb", "workers": 0}, CACHED),
    Row("dataloader-lz4-2", "torch_dataset", PAIRS, "LMDB of lz4-compressed pixels, mapped", {"kind": "lz4-lmdb", "workers": 2}, CACHED),
    Row("dali", "dali", PAIRS, RAW, groups=CACHED),
    Row("tf.data", "tf_data", PAIRS, "raw pixels (cache())", groups=CACHED, warm_samples=600),
    Row("spdl", "spdl_threads", PAIRS, RAW, groups=CACHED),
    Row("grain", "grain_threads", PAIRS, RAW, groups=CACHED),
    Row("headrace", "served", PAIRS, NOTHING, ZERO_COPY, UNCACHED),
    Row("dataloader-pil-2", "torch_dataset", PAIRS, NOTHING, {"kind": "pil", "workers": 2}, UNCACHED),
    Row("dataloader-basicsr-0", "torch_dataset", PAIRS, "LMDB of PNG files, mapped", {"kind": "png-lmdb", "workers": 0}, UNCACHED),
    Row("dataloader-basicsr-2", "torch_dataset", PAIRS, "LMDB of PNG files, mapped", {"kind": "png-lmdb", "workers": 2}, UNCACHED),
    Row("dali", "dali", PAIRS, NOTHING, groups=UNCACHED),
    Row("tf.data", "tf_data", PAIRS, NOTHING, groups=UNCACHED),
    Row("spdl", "spdl_threads", PAIRS, NOTHING, groups=UNCACHED),
    Row("grain", "grain_threads", PAIRS, NOTHING, groups=UNCACHED),
    Row("litdata-2", "litdata_chunks", PAIRS, "its chunks of PNG files", {"workers": 2}, UNCACHED),
    # One stream to several trainers, against a loader for each of them.
    Row("headrace", "served", IMAGES, NOTHING, ZERO_COPY, SHARE, trainers=SHARES),
    Row("tensorsocket", "tensor_socket", IMAGES, "-, each batch pickled", {"kind": "tensors", "workers": 2}, SHARE, trainers=SHARES),
    Row("tf.data-service", "tf_service", IMAGES, "its last batches, for other trainers", {}, SHARE, trainers=SHARES),
    Row("dataloader-tensors-2", "torch_dataset", IMAGES, NOTHING, {"kind": "tensors", "workers": 2}, SHARE, trainers=SHARES),
]


def rows_of(workload: Workload, names: list[str] | None = None) -> list[Row]:
    """Headrace first, because the others are compared with it."""
    return [row for row in ROWS if row.takes_part(workload) and (names is None or row.name in names)]
