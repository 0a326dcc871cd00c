"""A training with Ray Train for tests: its data, its loop, and which samples became part of the model."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import headrace.ray
import numpy as np
import ray.train

SAMPLES, BATCH = 60, 4


def write_config(folder: Path) -> Path:
    """60 numbered samples, shuffled, divided by ranks in batches of 4."""
    np.save(folder / "x.npy", np.arange(SAMPLES * 3, dtype=np.float32).reshape(SAMPLES, 3))
    stream = {"source": "rows", "batch_size": BATCH, "seed": 3, "delivery": "shard"}
    path = folder / "train.yaml"
    body = {"server": {"threads": 1, "metrics": "off"}, "sources": {"rows": {"type": "npy", "fields": {"x": "x.npy"}}}, "streams": {"train": stream}}
    path.write_text(json.dumps(body))
    return path


def write_line(path: str, **line: Any) -> None:
    """Appends a line in one write, so that the lines of several processes do not mix."""
    with open(path, "a") as out:
        out.write(json.dumps(line) + "\n")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def saved_batches(checkpoint: Any) -> int:
    """How many batches each rank had received when it was saved."""
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        return int(json.loads(Path(folder, "headrace-train-rank0.json").read_text())["state"]["cursor"]["batch"])


def train_loop(given: dict[str, Any]) -> None:
    """Trains an epoch, with a checkpoint after each batch. In the first group of workers, something happens at batch `last`."""
    context = ray.train.get_context()
    checkpoint = ray.train.get_checkpoint()
    loader = headrace.ray.Loader(given["config"], stream="train", checkpoint=checkpoint, reconnect_timeout=30)
    about = {"rank": context.get_world_rank(), "world_size": context.get_world_size(), "node": ray.get_runtime_context().get_node_id()}
    about |= {"resumed": saved_batches(checkpoint), "directory": loader._arguments["address"]}
    for number, batch in enumerate(loader, 1):
        write_line(given["log"], **about, number=number, samples=batch.sample_index[batch.valid].tolist())
        if checkpoint is None and number == given["last"]:
            if given["what"] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if given["what"] == "wait":
                time.sleep(100)  # until the test ends a node
            raise RuntimeError("this worker fails as the test wants")
        with tempfile.TemporaryDirectory() as folder:
            loader.save(folder)
            ray.train.report({"step": number}, checkpoint=ray.train.Checkpoint.from_directory(folder))


def fit(config: Any, folder: Path, workers: Any, what: str = "nothing", last: int = 0) -> list[dict[str, Any]]:
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    log = folder / "log"
    DataParallelTrainer(
        train_loop,
        train_loop_config={"config": config, "log": str(log), "what": what, "last": last},
        scaling_config=ray.train.ScalingConfig(num_workers=workers, placement_strategy="SPREAD"),
        run_config=ray.train.RunConfig(storage_path=str(folder / "storage"), name=f"run-{folder.name}", failure_config=ray.train.FailureConfig(max_failures=2)),
    ).fit()
    return lines_of(log)


def trained(lines: list[dict[str, Any]]) -> Counter[int]:
    """How often each sample is part of the model: the first group's batches count up to the checkpoint from which the second one began."""
    second = [line for line in lines if line["resumed"]]
    assert len({line["resumed"] for line in second}) == 1
    first = [line for line in lines if not line["resumed"] and line["number"] <= second[0]["resumed"]]
    return Counter(sample for line in first + second for sample in line["samples"])
