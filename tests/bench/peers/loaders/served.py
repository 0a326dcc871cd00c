"""Headrace: the first trainer starts the server, the others attach to it. Counted: server and trainers together."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
from headrace import _binary

from peers import prepare
from peers.workloads import COLOR_SIDE, LONG_EPOCH, PATCH, Job

STANDING_STILL = "999h"  # clients are stopped while others run, and must not be evicted
START_SECONDS = 60.0
PACK_SECONDS = 600.0


def source(job: Job) -> dict[str, Any]:
    family = job.workload.family
    if family == "mnist":
        folder = job.shared("mnist")
        return {"type": "idx", "images": str(folder / "t10k-images-idx3-ubyte"), "labels": str(folder / "t10k-labels-idx1-ubyte")}
    if family == "cifar":
        return {"type": "cifar", "path": str(job.shared("cifar"))}
    if family == "pairs":
        made = {"type": "paired_folders", "fields": {kind: str(job.shared(f"pairs/{kind}")) for kind in ("lr", "hr")}}
        return {**made, "cache": {"decoded": job.options["decoded"]}} if "decoded" in job.options else made
    if "store" in job.options:
        return {"type": "lmdb", "path": str(packed(job, job.options["store"]))}
    return {"type": "image_folder", "path": job.data}


def packed(job: Job, store: str) -> Path:
    """Packs the folder into one database with this server's `headrace pack`."""
    command = [_binary.path(), "pack", "--store", store, "--quiet", job.data]

    def write(path: Path) -> None:
        ran = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=PACK_SECONDS, check=False)
        if ran.returncode:
            raise RuntimeError(f"`headrace pack --store {store}` ended with status {ran.returncode}: {ran.stderr.strip()}")

    return prepare.once(job.shared(f"imagenet-{store}"), write)


def transforms(job: Job) -> list[Any]:
    flip = "random_horizontal_flip"
    drawn: dict[str, list[Any]] = {
        "mnist": [],
        "cifar": [{"random_crop": {"size": 32, "padding": 4}}, flip],
        "imagenet": [{"random_resized_crop": {"size": 224}}, flip],
        "pairs": [{"random_crop": {"size": PATCH}}, flip, "random_vertical_flip", "random_rotate90"],
        "color": [
            {"resize": {"size": [COLOR_SIDE, COLOR_SIDE]}},
            flip,
            "random_vertical_flip",
            {"color_jitter": {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.1}},
            {"random_grayscale": {"p": 0.2}},
        ],
    }
    made = drawn[job.workload.family]
    if job.workload.normalized:
        made.append({"normalize": {"mean": list(job.mean()), "std": list(job.std())}})
    return made


def sampler(job: Job) -> Any:
    """Repeats small datasets of files, as for the other loaders: an epoch of 100 samples has no batch of 128."""
    if job.workload.family in ("mnist", "cifar"):
        return "shuffled"
    samples = len(prepare.pair_files(Path(job.scratch)) if job.workload.family == "pairs" else prepare.image_files(Path(job.data))[0])
    path = job.own("indices.txt")
    path.write_text("".join(f"{position % samples}\n" for position in range(max(samples, LONG_EPOCH // samples * samples))))
    return {"list": {"path": str(path), "shuffle": True}}


def config(job: Job, directory: Path) -> dict[str, Any]:
    workload = job.workload
    stream: dict[str, Any] = {
        "source": "data",
        "sampler": sampler(job),
        "batch_size": workload.batch,
        "seed": job.seed,
        "last": "drop",
        "transforms": transforms(job),
        "output": {"dtype": workload.dtype, "layout": workload.layout},
        "delivery": workload.delivery if workload.trainers > 1 else "broadcast",
        "ring": {"max_clients": workload.trainers},
    }
    if workload.trainers > 1 and not workload.apart:
        stream["sharing"] = {"wait_for": workload.trainers}
        if workload.delivery == "broadcast":
            stream["sharing"]["on_lag"] = "wait"
    return {
        "server": {"directory": str(directory), "metrics": "off", "evict_after": STANDING_STILL},
        "sources": {"data": source(job)},
        "streams": {"train": stream},
    }


def _address(job: Job) -> str:
    """The server's address; rank 0 starts the server."""
    directory = prepare.server_folder(os.getppid(), Path(job.folder).name[-8:])
    if job.rank == 0:
        path = job.own("headrace.yaml")
        path.write_text(json.dumps(config(job, directory)))
        server = headrace.serve(path)
        atexit.register(server.stop)
        job.own("served").touch()
        return server.address
    until = time.monotonic() + START_SECONDS
    while not job.own("served").exists():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {START_SECONDS:g} s for the server of rank 0")
        time.sleep(0.05)
    return str(directory)


def open_batches(job: Job) -> Iterator[Any]:
    address = _address(job)
    several = job.workload.trainers > 1 and job.workload.delivery == "shard"
    place = {"rank": job.rank, "world_size": job.workload.trainers} if several else {}
    names = ("lr", "hr") if job.workload.family == "pairs" else ("image", "label")
    loader = headrace.Loader(address, stream="train", batch="dict", zero_copy=job.options.get("zero_copy", False), **place)

    def batches() -> Iterator[Any]:
        while True:
            for batch in loader:
                yield tuple(batch[name] for name in names)

    return batches()
