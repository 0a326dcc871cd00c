"""Code that the training examples share: arguments, the job's ranks, its server, and a clock.

A program without `_dataloader` in its name is fed by Headrace and uses --config and --address; its `_dataloader` version is fed by
torch's DataLoader and uses --data and --workers. All else is the same line by line.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headrace
import torch
import torch.distributed as dist
import torch.distributed.nn  # if it is first imported later, it keeps the process group, and gloo's threads may abort the process at exit

RANK = int(os.environ.get("RANK", "0"))  # torchrun sets both
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", "0"))


def arguments(program: str, about: str, *, epochs: int, batch_size: int, on_ranks: bool = False, **more: int) -> argparse.Namespace:
    """Parses the arguments. `program`: its __file__. `batch_size`: of all ranks together. `on_ranks`: torchrun may start it. `more`:
    further integer arguments and their defaults."""
    here = Path(program).resolve()
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=epochs, help=f"epochs to train (default: {epochs})")
    parser.add_argument("--batch-size", type=int, default=batch_size, help=f"samples in a batch of all ranks together (default: {batch_size})")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda; with torchrun each rank uses a GPU of its own")
    parser.add_argument("--seed", type=int, default=0, help="of the model and the order of samples (default: 0)")
    for name, default in more.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    if here.stem.endswith("_dataloader"):
        parser.add_argument("--data", type=Path, default=here.parent / "data", help="the folder with the data")
        parser.add_argument("--workers", type=int, default=2, help="worker processes of each DataLoader (default: 2)")
    else:
        parser.add_argument("--config", type=Path, default=here.with_suffix(".yaml"), help="the server's configuration, which says where the data is")
        parser.add_argument("--address", help="the directory of a running server (default: starts a server with --config)")
    known = parser.parse_args()
    if WORLD_SIZE > 1 and not on_ranks:
        parser.error(
            f"torchrun started {WORLD_SIZE} ranks, and this program trains one model on one device: start it with python. What ranks need "
            "(a process group, DistributedDataParallel, `delivery: shard`) is in cifar10_vgg.py"
        )
    if known.device == "cuda":
        known.device = f"cuda:{LOCAL_RANK}"
    torch.manual_seed(known.seed)  # the same model on every rank
    known.program = here.stem
    if known.batch_size % WORLD_SIZE:
        parser.error(f"--batch-size {known.batch_size} is of all ranks together: give a multiple of {WORLD_SIZE}")
    known.batch_size //= WORLD_SIZE
    return known


@contextmanager
def ranks(device: str) -> Iterator[None]:
    """torch's process group during the block; does nothing if torchrun did not start this process."""
    if "RANK" in os.environ:
        if device != "cpu":
            torch.cuda.set_device(device)
        dist.init_process_group("gloo" if device == "cpu" else "nccl")
    try:
        yield
    finally:
        if dist.is_initialized():
            gc.collect()  # a DistributedDataParallel that still exists would keep the group, too
            dist.destroy_process_group()


@contextmanager
def served(given: argparse.Namespace) -> Iterator[str]:
    """The address of the job's server: --address, else a server that rank 0 starts during the block. (On several machines, run `headrace
    serve` on each, and pass its --address.)"""
    if given.address:
        yield given.address
    elif RANK == 0:
        changes = {"streams.train.batch_size": given.batch_size, "streams.train.seed": given.seed}
        with (
            tempfile.TemporaryDirectory(prefix="headrace-") as folder,  # concurrent jobs each have their own server
            headrace.serve(given.config, set={"server.directory": folder, **changes}) as server,
        ):
            yield told_to_all(server.address)
            if dist.is_initialized():
                dist.barrier()  # the other ranks have received their last batch
    else:
        yield told_to_all(None)
        dist.barrier()


def told_to_all(address: str | None) -> str:
    said = [address]
    if dist.is_initialized():
        dist.broadcast_object_list(said)
    return str(said[0])


class Clock:
    """Seconds per epoch, and how many of them the loop waited for its loader. Call `end` after each epoch."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._epochs: list[dict[str, float]] = []
        self._waited = self._seconds = 0.0
        self._samples = 0

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """One epoch of `loader`."""
        begun = asked = time.perf_counter()
        iterator = iter(loader)
        self._waited, self._samples = 0.0, 0
        while (batch := next(iterator, None)) is not None:
            self._waited += time.perf_counter() - asked
            self._samples += len(next(iter(batch.values())) if isinstance(batch, dict) else batch[0])
            yield batch
            asked = time.perf_counter()
        self._waited += time.perf_counter() - asked
        if self._given.device != "cpu":
            torch.cuda.synchronize(self._given.device)  # queued work belongs to this epoch
        self._seconds = time.perf_counter() - begun

    def end(self, **results: float) -> None:
        line = {"seconds": self._seconds, "waited": self._waited, "samples": self._samples, **results}
        self._epochs.append({name: round(value, 5) for name, value in line.items()})

    def print(self) -> None:
        """Rank 0 prints one line of JSON. Its summaries omit the first epoch, which includes the start-up."""
        if RANK != 0:
            return
        steady = self._epochs[1:] or self._epochs
        seconds = statistics.median(epoch["seconds"] for epoch in steady)
        share = sum(epoch["waited"] for epoch in steady) / sum(epoch["seconds"] for epoch in steady)
        line = {
            "program": self._given.program,
            "device": self._given.device,
            "ranks": WORLD_SIZE,
            "batch_size": self._given.batch_size * WORLD_SIZE,
            "seconds_per_epoch": round(seconds, 3),
            "wait_share": round(share, 4),
            "last": self._epochs[-1],
            "epochs": self._epochs,
        }
        print(json.dumps(line), flush=True)
