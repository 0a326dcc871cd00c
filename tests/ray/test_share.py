"""headrace.ray.share(): each node reads a Ray Dataset once, for all of its trainers."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
import headrace.ray
import numpy as np
import pytest
import ray.data
import ray.train
from headrace.errors import DatasetInvalid, Error, InvalidArgument, ServerLost, StreamFailed
from local_ray import alive, folders, node_ids, nodes, wait_until
from ray._private.internal_api import node_stats
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ROWS, BATCH, WIDTH = 50, 8, 3
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with nodes(2) as running:
        yield running


def dataset(log: Path | None = None, fails_at: int = -1, rows: int = ROWS, width: int = WIDTH) -> ray.data.Dataset:
    """Numbered rows in 5 blocks. Writes a line to `log` for each row that is made."""

    def make(row: dict[str, Any]) -> dict[str, Any]:
        index = int(row["id"])
        if index == fails_at:
            raise ValueError(f"no row {index} today")
        if log is not None:
            with log.open("a") as out:
                out.write(f"{index}\n")
        return {"id": index, "x": np.full(width, index, np.float32), "caption": f"row {index}"}

    return ray.data.range(rows, override_num_blocks=5).map(make)


@ray.remote(num_cpus=0)
def consume(shared: headrace.ray.Shared, epochs: int) -> list[list[int]]:
    """The rows of each epoch, checked, as a trainer on this task's node gets them; at the end, the error."""
    seen: list[Any] = []
    try:
        with headrace.ray.Loader(shared, batch="dict", output="numpy", reconnect_timeout=3) as loader:
            for _ in range(epochs):
                seen.append([])
                for batch in loader:
                    values, offsets = batch["caption"]
                    for row, index in enumerate(batch["id"]):
                        assert (batch["x"][row] == index).all()
                        assert bytes(values[offsets[row] : offsets[row + 1]]).decode() == f"row {index}"
                    seen[-1] += batch["id"].tolist()
    except Error as error:
        seen.append(f"{error}")
    return seen


def consumers(shared: headrace.ray.Shared, each: int, epochs: int = 1) -> dict[str, list[Any]]:
    """Starts `each` consumers on every node."""
    there = {node: consume.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)) for node in shared.nodes}
    return {node: [task.remote(shared, epochs) for _ in range(each)] for node, task in there.items()}


def test_all_trainers_of_each_node_get_every_row_of_each_epoch(cluster: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    data = dataset(log)
    with headrace.ray.share(data, batch_size=BATCH, epochs=2, samples=ROWS, wait_for=2) as shared:
        assert set(shared.nodes) == set(node_ids())
        running = consumers(shared, 2, epochs=2)
        for each in running.values():
            for seen in ray.get(each, timeout=120):
                assert [sorted(epoch) for epoch in seen] == [list(range(ROWS))] * 2
        shared.wait(60)
        assert {node: stats["batches"] for node, stats in shared.stats().items()} == dict.fromkeys(shared.nodes, 2 * -(-ROWS // BATCH))
    made = Counter(int(line) for line in log.read_text().split())
    assert made == Counter({index: 2 * 2 for index in range(ROWS)}), "each node executed it once for each epoch"


def test_with_split_the_nodes_divide_the_rows(cluster: Any) -> None:
    with headrace.ray.share(dataset(), batch_size=BATCH, epochs=2, split=True, wait_for=2) as shared:
        running = consumers(shared, 2, epochs=2)
        seen = {node: ray.get(each, timeout=120) for node, each in running.items()}
    for first, second in seen.values():
        assert first == second and [len(epoch) for epoch in first] == [ROWS // 2] * 2
    for epoch in range(2):
        assert Counter(index for first, _ in seen.values() for index in first[epoch]) == Counter(range(ROWS))


def created_bytes(node: str) -> int:
    """Bytes of all objects that a node's object store has ever held, those copied from other nodes included."""
    entry = next(entry for entry in ray.nodes() if entry["NodeID"] == node)
    return int(node_stats(entry["NodeManagerAddress"], entry["NodeManagerPort"]).store_stats.cumulative_created_bytes)


def test_a_block_crosses_the_network_once_whatever_the_number_of_trainers(cluster: Any) -> None:
    here = ray.get_runtime_context().get_node_id()
    there = next(node for node in node_ids() if node != here)
    width = 40_000  # 160 kB in a row, so that blocks are in the object store
    crossed = {}
    for trainers in (1, 3):
        on_here = NodeAffinitySchedulingStrategy(here, soft=False)
        numbers = ray.data.range(20, override_num_blocks=4).materialize()
        blocks = numbers.map(lambda row: {"id": row["id"], "x": np.full(width, row["id"], np.float32), "caption": f"row {row['id']}"}, scheduling_strategy=on_here)
        held = blocks.materialize()
        before = created_bytes(there)
        with headrace.ray.share(held, batch_size=4, epochs=1, nodes=[there], wait_for=trainers) as shared:
            for seen in ray.get(consumers(shared, trainers)[there], timeout=120):
                assert [sorted(epoch) for epoch in seen] == [list(range(20))]
        crossed[trainers] = created_bytes(there) - before
    whole = 20 * width * 4
    assert all(whole <= count < 1.5 * whole for count in crossed.values()), f"{crossed}, the blocks have {whole} bytes"


def train_loop(given: dict[str, Any]) -> None:
    with headrace.ray.Loader(given["shared"], batch="dict", output="numpy") as loader:
        rows = [int(index) for batch in loader for index in batch["id"]]
    with open(f"{given['folder']}/{ray.train.get_context().get_world_rank()}", "w") as out:
        out.write(" ".join(map(str, rows)))


def test_the_workers_of_train_read_it(cluster: Any, tmp_path: Path) -> None:
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    with headrace.ray.share(dataset(), batch_size=BATCH, epochs=1, num_cpus=0, samples=ROWS) as shared:
        assert pickle.loads(pickle.dumps(shared.name)) == "train"
        DataParallelTrainer(
            train_loop,
            train_loop_config={"shared": shared, "folder": str(tmp_path)},
            scaling_config=ray.train.ScalingConfig(num_workers=2, placement_strategy="SPREAD"),
            run_config=ray.train.RunConfig(storage_path=str(tmp_path / "storage")),
        ).fit()
    for rank in ("0", "1"):
        assert sorted(map(int, (tmp_path / rank).read_text().split())) == list(range(ROWS))


def test_stop_ends_the_consumers_with_an_error_and_leaves_nothing(cluster: Any) -> None:
    others = folders()
    shared = headrace.ray.share(dataset(), batch_size=BATCH, samples=ROWS)
    running = consumers(shared, 1, epochs=10**6)
    wait_until(lambda: all(stats["batches"] > 20 for stats in shared.stats().values()), "some epochs")
    pids = [int(stats["pid"]) for stats in shared.stats().values()]
    shared.stop()
    for each in running.values():
        assert ray.get(each, timeout=60)[0][-1].startswith(("STREAM_FAILED", "SERVER_LOST"))
    wait_until(lambda: not any(alive(pid) for pid in pids), "the end of the actors")
    wait_until(lambda: folders() <= others, "the removal of their folders")


def test_a_killed_actor_ends_its_consumers_and_is_not_started_again(cluster: Any) -> None:
    others = folders()
    here = ray.get_runtime_context().get_node_id()
    with headrace.ray.share(dataset(), batch_size=BATCH, samples=ROWS, nodes=[here]) as shared:
        loader = headrace.ray.Loader(shared, batch="dict", output="numpy", reconnect_timeout=3)
        iterator = iter(loader)
        first = [next(iterator)["id"].tolist() for _ in range(2)]
        os.kill(int(shared.stats()[here]["pid"]), signal.SIGKILL)
        with pytest.raises((StreamFailed, ServerLost)):
            for _ in range(1000):
                first.append(next(iterator)["id"].tolist())
        flat = [index for batch in first for index in batch]
        assert len(set(flat)) == len(flat) or len(flat) > ROWS, "no row came twice in an epoch"
        loader.close()
        with pytest.raises(StreamFailed, match="call headrace.ray.share.. again"):
            headrace.ray.Loader(shared, batch="dict")
        with pytest.raises(StreamFailed, match="ended"):
            shared.wait(10)
    wait_until(lambda: folders() <= others, "the removal of its folder")


def test_an_error_of_the_dataset_reaches_the_consumers_and_wait(cluster: Any) -> None:
    here = ray.get_runtime_context().get_node_id()
    with headrace.ray.share(dataset(fails_at=45), batch_size=BATCH, samples=ROWS, nodes=[here], epochs=1) as shared:
        seen = ray.get(consumers(shared, 1)[here][0], timeout=60)
        assert seen[-1].startswith("STREAM_FAILED") and "no row 45 today" in seen[-1]
        with pytest.raises(Exception, match="no row 45 today"):
            shared.wait(30)


JOB = """
import sys
sys.path.insert(0, sys.argv[2])
from local_ray import ray
import headrace.ray, ray.data
ray.init(address=sys.argv[1], log_to_driver=False)
shared = headrace.ray.share(ray.data.range(100), batch_size=10)
next(iter(headrace.ray.Loader(shared)))
print(*(int(stats["pid"]) for stats in shared.stats().values()), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_nothing_is_left_after_the_job(cluster: Any, how: str) -> None:
    others = folders()
    arguments = [cluster.address, str(Path(__file__).parent)]
    with subprocess.Popen([sys.executable, "-c", JOB, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        try:
            assert job.stdout is not None
            pids = [int(pid) for pid in job.stdout.readline().split()]
            assert len(pids) == 2 and all(alive(pid) for pid in pids)
            if how == "kill":
                job.kill()
            job.communicate("\n", timeout=60)
        finally:
            job.kill()
    wait_until(lambda: not any(alive(pid) for pid in pids), "the end of the actors")
    wait_until(lambda: folders() <= others, "the removal of their folders")


def test_wrong_arguments_are_named(cluster: Any) -> None:
    here = ray.get_runtime_context().get_node_id()
    data = ray.data.range(10)
    with pytest.raises(InvalidArgument, match="headrace.share.. takes a DataLoader"):
        headrace.ray.share([1, 2], batch_size=2)
    with pytest.raises(InvalidArgument, match="no node has the id 'ab'"):
        headrace.ray.share(data, batch_size=2, nodes=["ab"])
    with pytest.raises(InvalidArgument, match="address="):
        headrace.ray.share(data, batch_size=2, address="/tmp/a")
    with pytest.raises(InvalidArgument, match="too few for one batch of 20"):
        headrace.ray.share(data, batch_size=20, drop_last=True)
    with pytest.raises(DatasetInvalid, match="is empty"):
        headrace.ray.share(data.filter(lambda row: False), batch_size=2, samples=10, nodes=[here])
    with headrace.ray.share(data, batch_size=2, nodes=[here]) as shared:
        with pytest.raises(InvalidArgument, match="give headrace.ray.share.. the nodes of the trainers"):
            shared.address("another")
        with pytest.raises(InvalidArgument, match="checkpoint=: a shared Ray Dataset"):
            headrace.ray.Loader(shared, checkpoint=tempfile.gettempdir())
