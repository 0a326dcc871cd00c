"""tf.data service: a process with a dispatcher and a worker makes batches for all trainers, with its cache across trainers. A trainer that is
behind by more than the cache holds, or comes late, misses batches: unlike the others here, it does not give each trainer every batch.

    python -m peers.loaders.tf_service FOLDER         the service, which the first trainer starts
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from peers import processes
from peers.loaders import tf_data
from peers.workloads import Job

START_SECONDS = 120.0


def serve(folder: Path) -> None:
    tf.config.threading.set_inter_op_parallelism_threads(tf_data.THREADS)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.partition("://")[2]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
    said = folder / "address.new"
    said.write_text(dispatcher.target)
    said.rename(folder / "address")
    worker.join()


def open_batches(job: Job) -> Iterator[Any]:
    options = tf_data.set_up(job)
    said = job.own("address")
    if job.rank == 0:
        subprocess.Popen([sys.executable, "-m", "peers.loaders.tf_service", job.folder])
    until = time.monotonic() + START_SECONDS
    while not said.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {START_SECONDS:g} s for the service")
        time.sleep(0.05)
    service = tf.data.experimental.service
    shared = service.distribute(
        processing_mode=service.ShardingPolicy.OFF,
        service=said.read_text(),
        job_name="train",
        cross_trainer_cache=service.CrossTrainerCache(trainer_id=f"trainer{job.rank}"),
    )
    return iter(tf_data.batched(job).with_options(options).apply(shared).as_numpy_iterator())


if __name__ == "__main__":
    processes.keep_descendants()
    processes.end_with_parent()
    serve(Path(sys.argv[1]))
