"""tf.data service for remote.py and worker_death.py, run by an interpreter that has TensorFlow.

    python3 remote_tf.py dispatcher                                     prints its address
    python3 remote_tf.py worker DISPATCHER PORT
    python3 remote_tf.py client DISPATCHER IMAGES BATCH COMPRESSION     a trainer, as remote_client.py
    python3 remote_tf.py epoch DISPATCHER IMAGES BATCH STEP             prints the samples of each batch of an epoch

The rows are those of W3 in peers/: decode the crop, resize, flip, uint8. A worker makes whole batches.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import remote_client
import tensorflow as tf
from peers import prepare, processes, workloads
from peers.loaders import tf_data

HEARTBEAT_MS = 500
DEAD_MS = 3000  # without a heartbeat; the default is a minute
service = tf.data.experimental.service


def job(images: str, batch: int) -> workloads.Job:
    workload = replace(workloads.WORKLOADS["w3-u8"], batch=batch)
    return workloads.Job(workload, data=images, scratch="", folder="", row="tf.data-service", module="tf_service")


def dispatch() -> Any:
    config = service.DispatcherConfig(worker_timeout_ms=DEAD_MS, job_gc_check_interval_ms=HEARTBEAT_MS, job_gc_timeout_ms=DEAD_MS)
    dispatcher = service.DispatchServer(config)
    print(dispatcher.target.partition("://")[2], flush=True)
    return dispatcher


def work(address: str, port: int) -> Any:
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    config = service.WorkerConfig(
        dispatcher_address=address, worker_address=f"localhost:{port}", port=port, heartbeat_interval_ms=HEARTBEAT_MS
    )  # fmt: skip
    return service.WorkerServer(config)


def batches(address: str, images: str, batch: int, compression: str) -> Any:
    made = job(images, batch)
    options = tf_data.set_up(made)
    shared = service.distribute(
        processing_mode=service.ShardingPolicy.OFF, service=f"grpc://{address}", compression=compression if compression == "AUTO" else None
    )
    return iter(tf_data.batched(made).with_options(options).apply(shared).as_numpy_iterator())


def epoch(address: str, images: str, batch: int, step: float) -> None:
    """Reads one epoch with dynamic sharding, and prints the samples of each batch. A row's label is the number of its file."""
    made = job(images, batch)
    options = tf_data.set_up(made)
    files, _ = prepare.image_files(Path(images))
    numbers = np.random.default_rng(1).permutation(len(files))  # shuffle() would keep more samples in a worker, which could be lost
    data = tf.data.Dataset.from_tensor_slices(([files[number] for number in numbers], numbers))
    data = data.map(lambda file, number: tf_data.image(made, file, number), 1).batch(batch).with_options(options)
    shared = service.distribute(processing_mode=service.ShardingPolicy.DYNAMIC, service=f"grpc://{address}")
    for _, samples in data.apply(shared).as_numpy_iterator():
        print(json.dumps(samples.tolist()), flush=True)
        time.sleep(step)
    print("end", flush=True)


def main() -> None:
    verb, *given = sys.argv[1:]
    processes.end_with_parent()
    if verb == "dispatcher":
        dispatch().join()
    elif verb == "worker":
        work(given[0], int(given[1])).join()
    elif verb == "client":
        remote_client.answer(batches(given[0], given[1], int(given[2]), given[3]))
    else:
        epoch(given[0], given[1], int(given[2]), float(given[3]))


if __name__ == "__main__":
    main()
