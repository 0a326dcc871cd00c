"""Compares the CPU time per batch of two trainers that have a loader each and of two trainers that share one (headrace.share), in turn.

    python3 tests/bench/share.py --rounds 5

A batch is 64 rows of 3 x 64 x 64 float32 (3.1 MB); `transform` is numpy work in the loader. Trainers read one number of each row. Each
process counts its CPU time after its imports; the owner includes its server's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np


class Loader:
    def __init__(self, batches: int, transform: int) -> None:
        self.batches, self.transform = batches, transform
        self.pixels = np.random.default_rng(0).random((64, 3, 64, 64), np.float32)

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.batches):
            images = self.pixels + np.float32(number)
            for _ in range(self.transform):
                np.sqrt(images, out=images)
            yield images, np.arange(64)


def cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def train(batches: Any) -> None:
    total = 0.0
    for images, labels in batches:
        total += float(images[:, 0, 0, 0].sum()) + int(labels[0])


def play(role: str, batches: int, transform: int, address: str) -> None:
    import headrace

    began = cpu()
    if role == "alone":
        train(Loader(batches, transform))
    elif role == "owner":
        with headrace.share(Loader(batches, transform), epochs=1, wait_for=2) as share:
            print(share.address, flush=True)
            share.wait()
    else:
        with headrace.Loader(address, stream="train") as loader:
            train(loader)
    print(cpu() - began, flush=True)


def cost(roles: list[str], arguments: argparse.Namespace) -> float:
    """Microseconds of CPU per batch, of all processes together."""
    processes, address = [], "-"
    for role in roles:
        command = [sys.executable, __file__, "--role", role, "--batches", str(arguments.batches)]
        command += ["--transform", str(arguments.transform), "--address", address]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        if role == "owner":
            assert processes[-1].stdout is not None
            address = processes[-1].stdout.readline().strip()
    return sum(float(process.communicate()[0].split()[-1]) for process in processes) / arguments.batches * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--transform", type=int, default=4)
    parser.add_argument("--role")
    parser.add_argument("--address")
    arguments = parser.parse_args()
    if arguments.role:
        return play(arguments.role, arguments.batches, arguments.transform, arguments.address)
    rounds = []
    print("two loaders  one shared  CPU us per batch")
    for _ in range(arguments.rounds):
        rounds.append((cost(["alone", "alone"], arguments), cost(["owner", "trainer", "trainer"], arguments)))
        print(f"{rounds[-1][0]:11.0f} {rounds[-1][1]:11.0f}", flush=True)
    apart, shared = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(f"{apart:11.0f} {shared:11.0f}  medians: sharing takes {shared / apart:.2f} of the CPU")


if __name__ == "__main__":
    main()
