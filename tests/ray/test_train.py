"""headrace.ray.Loader in Ray Train: one server for each node, and exact restarts, also with another number of workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_ray import alive, folders, nodes, ray, wait_until

import headrace
import headrace.ray
from headrace.errors import ConfigInvalid, InvalidArgument

SAMPLES, BATCH = 60, 4
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[str]]:
    with nodes(2) as ids:
        yield ids


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """60 numbered samples, shuffled, divided by ranks in batches of 4."""
    np.save(tmp_path / "x.npy", np.arange(SAMPLES * 3, dtype=np.float32).reshape(SAMPLES, 3))
    stream = {"source": "rows", "batch_size": BATCH, "seed": 3, "delivery": "shard"}
    path = tmp_path / "train.yaml"
    body = {"server": {"threads": 1, "metrics": "off"}, "sources": {"rows": {"type": "npy", "fields": {"x": "x.npy"}}}, "streams": {"train": stream}}
    path.write_text(json.dumps(body))
    return path


def write_line(path: str, **line: Any) -> None:
    """Appends a line in one write, so that the lines of several processes do not mix."""
    with open(path, "a") as out:
        out.write(json.dumps(line) + "\n")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def train_loop(given: dict[str, Any]) -> None:
    """Trains an epoch, with a checkpoint after each batch. Workers of the first group end after `fail_after` batches, one beyond the last
    checkpoint."""
    context = ray.train.get_context()
    checkpoint = ray.train.get_checkpoint()
    loader = headrace.ray.Loader(given["config"], stream="train", checkpoint=checkpoint, reconnect_timeout=30)
    about = {"rank": context.get_world_rank(), "world_size": context.get_world_size(), "node": ray.get_runtime_context().get_node_id()}
    steps = 0
    for batch in loader:
        steps += 1
        write_line(given["log"], **about, samples=batch.sample_index[batch.valid].tolist(), begun=checkpoint is None, number=steps, directory=loader._arguments["address"])
        if checkpoint is None and steps == given["fail_after"]:
            if given["fail_hard"]:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("this worker fails as the test wants")
        with tempfile.TemporaryDirectory() as folder:
            loader.save(folder)
            ray.train.report({"step": steps}, checkpoint=ray.train.Checkpoint.from_directory(folder))


def fit(config: Any, folder: Path, workers: Any, **given: Any) -> list[dict[str, Any]]:
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    log = folder / "log"
    options = {"config": config, "log": str(log), "fail_after": 0, "fail_hard": False, **given}
    DataParallelTrainer(
        train_loop,
        train_loop_config=options,
        scaling_config=ray.train.ScalingConfig(num_workers=workers, placement_strategy="SPREAD"),
        run_config=ray.train.RunConfig(storage_path=str(folder / "storage"), name="run", failure_config=ray.train.FailureConfig(max_failures=1)),
    ).fit()
    return lines_of(log)


def servers() -> list[dict[str, Any]]:
    """The server actors of this job."""
    names = ray.util.list_named_actors(all_namespaces=True)
    actors = [ray.get_actor(entry["name"], namespace="headrace") for entry in names if entry["name"].startswith("server-")]
    return [ray.get(actor.describe.remote(), timeout=30) for actor in actors]


def test_each_node_has_one_server_and_its_workers_divide_the_epoch(cluster: list[str], config: Path, tmp_path: Path) -> None:
    lines = fit(str(config), tmp_path, 4)
    assert Counter(sample for line in lines for sample in line["samples"]) == Counter(range(SAMPLES))
    assert {line["node"] for line in lines} == set(cluster)
    assert {line["rank"] for line in lines} == {0, 1, 2, 3}
    where = {(line["node"], line["directory"]) for line in lines}
    assert len(where) == len({directory for _, directory in where}) == 2, "one server for each node"


@pytest.mark.parametrize("fail_hard", [False, True], ids=["exception", "kill"])
def test_after_a_failure_the_workers_continue_with_the_batch_after_the_checkpoint(cluster: list[str], config: Path, tmp_path: Path, fail_hard: bool) -> None:
    before = {server["server"] for server in servers()}
    lines = fit(str(config), tmp_path, 2, fail_after=4, fail_hard=fail_hard)
    kept = [line for line in lines if not line["begun"] or line["number"] <= 3]
    assert Counter(sample for line in kept for sample in line["samples"]) == Counter(range(SAMPLES))
    assert {line["begun"] for line in lines} == {True, False}
    assert len({line["directory"] for line in lines}) == 2, "the servers outlived the workers that had started them"
    assert all(alive(server["server"]) for server in servers()) and len(servers()) == len(before) + 2


if __name__ == "__main__":
    pytest.main([__file__, *sys.argv[1:]])
