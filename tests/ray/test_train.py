"""headrace.ray.Loader in Ray Train: one server for each node, and exact restarts, also with another number of workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_ray import alive, folders, node_ids, nodes, ray, wait_until

import headrace
import headrace.ray
from headrace.errors import ConfigInvalid, InvalidArgument

SAMPLES, BATCH = 60, 4
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with nodes(2) as running:
        yield running


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
    line["t"] = time.time()
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
        run_config=ray.train.RunConfig(storage_path=str(folder / "storage"), name="run", failure_config=ray.train.FailureConfig(max_failures=2)),
    ).fit()
    return lines_of(log)


def trained(lines: list[dict[str, Any]]) -> Counter[int]:
    """How often each sample is part of the model: the first group's batches count up to the checkpoint from which the second one began."""
    second = [line for line in lines if line["resumed"]]
    assert len({line["resumed"] for line in second}) == 1
    first = [line for line in lines if not line["resumed"] and line["number"] <= second[0]["resumed"]]
    return Counter(sample for line in first + second for sample in line["samples"])


def servers() -> list[dict[str, Any]]:
    """The server actors of this job."""
    names = ray.util.list_named_actors(all_namespaces=True)
    actors = [ray.get_actor(entry["name"], namespace="headrace") for entry in names if entry["name"].startswith("server-")]
    return [ray.get(actor.describe.remote(), timeout=30) for actor in actors]


def test_each_node_has_one_server_and_its_workers_divide_the_epoch(cluster: Any, config: Path, tmp_path: Path) -> None:
    lines = fit(str(config), tmp_path, 4)
    assert Counter(sample for line in lines for sample in line["samples"]) == Counter(range(SAMPLES))
    assert {line["node"] for line in lines} == set(node_ids())
    assert {line["rank"] for line in lines} == {0, 1, 2, 3}
    where = {(line["node"], line["directory"]) for line in lines}
    assert len(where) == len({directory for _, directory in where}) == 2, "one server for each node"


@pytest.mark.parametrize("what", ["exception", "kill"])
def test_after_a_failure_the_workers_continue_with_the_batch_after_the_checkpoint(cluster: Any, config: Path, tmp_path: Path, what: str) -> None:
    before = len(servers())
    lines = fit(str(config), tmp_path, 2, what, last=5)
    assert trained(lines) == Counter(range(SAMPLES))
    assert len({line["directory"] for line in lines}) == 2, "the servers outlived the workers that had started them"
    assert all(alive(server["server"]) for server in servers()) and len(servers()) == before + 2


def test_an_elastic_restart_with_fewer_workers_delivers_each_remaining_sample_once(config: Path, tmp_path: Path) -> None:
    with nodes(2, cpus=1) as cluster:
        log = tmp_path / "log"

        def end_a_node() -> None:
            wait_until(lambda: log.exists() and sum(line["number"] == 5 for line in lines_of(log)) == 2, "both workers at batch 5", 120)
            cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=True)

        ending = threading.Thread(target=end_a_node)
        ending.start()
        lines = fit(str(config), tmp_path, (1, 2), "wait", last=5)
        ending.join(60)
    assert {line["world_size"] for line in lines if not line["resumed"]} == {2}
    assert {line["world_size"] for line in lines if line["resumed"]} == {1}
    assert trained(lines) == Counter(range(SAMPLES))


if __name__ == "__main__":
    pytest.main([__file__, *sys.argv[1:]])
