"""TensorSocket: one process with a DataLoader (torchvision on tensors, two workers) gives each batch to all trainers.

    python -m peers.loaders.tensor_socket JOB PORT         the producer, which the first trainer starts
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from peers import processes
from peers.workloads import Job

PORTS = 4
KEPT_BATCHES = 16  # for consumers that are behind; with its default the short epoch here leaves 2, and batches are dropped
LEAST_COLLATED = 2  # batches that it puts together; with 1 its producer raises IndexError
START_SECONDS = 120.0


def _free_ports() -> int:
    """The first of `PORTS` consecutive free ports."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first = int(probe.getsockname()[1])
        try:
            for port in range(first, first + PORTS):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue


def _ports(first: int) -> dict[str, Any]:
    return {"port": first, "ack_port": first + 1, "heart_ports": (first + 2, first + 3)}


def produce(job: Job, first: int) -> None:
    from tensorsocket import TensorProducer

    from peers.loaders.torch_dataset import data_loader

    loader = data_loader(job)
    kept = KEPT_BATCHES / len(loader)
    producer = TensorProducer(loader, **_ports(first), producer_batch_size=LEAST_COLLATED, rubber_band_pct=kept)
    while len(producer.hb.consumers) < (1 if job.workload.apart else job.workload.trainers):
        time.sleep(0.05)
    while True:
        for _ in producer:
            pass


def _follow(producer: subprocess.Popen[bytes]) -> None:
    """Ends the consumer if the producer dies, because it would wait for ever."""
    print(f"the producer process exited with status {producer.wait()}", file=sys.stderr, flush=True)
    os._exit(1)


def open_batches(job: Job) -> Iterator[Any]:
    from tensorsocket import TensorConsumer

    said = job.own("port")
    if job.rank == 0:
        first = _free_ports()
        command = [sys.executable, "-m", "peers.loaders.tensor_socket", job.to_json(), str(first)]
        threading.Thread(target=_follow, args=(subprocess.Popen(command),), daemon=True).start()
        said.write_text(f"{first}\n")
    until = time.monotonic() + START_SECONDS
    while not (said.exists() and said.read_text().endswith("\n")):
        if time.monotonic() > until:
            raise TimeoutError(f"waited {START_SECONDS:g} s for the producer")
        time.sleep(0.05)
    consumer = TensorConsumer(**_ports(int(said.read_text())), batch_size=job.workload.batch)

    def batches() -> Iterator[Any]:
        while True:
            yield from consumer

    return batches()


if __name__ == "__main__":
    processes.keep_descendants()
    processes.end_with_parent()
    produce(Job.from_json(sys.argv[1]), int(sys.argv[2]))
