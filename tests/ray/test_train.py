"""headrace.ray.Loader in Ray Train: one server for each node, and exact restarts, also with another number of workers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
import headrace.ray
import numpy as np
import pytest
import ray.train
from headrace.errors import ConfigInvalid, Error, InvalidArgument
from local_ray import alive, folders, node_ids, nodes, wait_until
from train_job import BATCH, SAMPLES, fit, trained, write_config

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with nodes(2) as running:
        yield running


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path)


def servers() -> list[dict[str, Any]]:
    """The server actors of this job."""
    names = ray.util.list_named_actors(all_namespaces=True)
    actors = [ray.get_actor(entry["name"], namespace="headrace") for entry in names if entry["name"].startswith("server-")]
    return [ray.get(actor.status.remote(), timeout=30) for actor in actors]


def test_each_node_has_one_server_and_its_workers_divide_the_epoch(cluster: Any, config: Path, tmp_path: Path) -> None:
    lines = fit(str(config), tmp_path, 4)
    assert Counter(sample for line in lines for sample in line["samples"]) == Counter(range(SAMPLES))
    assert {line["node"] for line in lines} == set(node_ids())
    assert {line["rank"] for line in lines} == {0, 1, 2, 3}
    where = {(line["node"], line["directory"]) for line in lines}
    assert len(where) == len({directory for _, directory in where}) == 2, "one server for each node"


def test_two_runs_of_one_job_read_from_the_same_servers_at_once(cluster: Any, config: Path, tmp_path: Path) -> None:
    before, lines = len(servers()), {}

    def run(name: str) -> None:
        (tmp_path / name).mkdir()
        lines[name] = fit(str(config), tmp_path / name, 1)

    threads = [threading.Thread(target=run, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(150)
    for each in lines["a"], lines["b"]:
        assert Counter(sample for line in each for sample in line["samples"]) == Counter(range(SAMPLES))
    directories = {line["directory"] for each in lines.values() for line in each}
    assert len(servers()) == before + len(directories)


@pytest.mark.parametrize("what", ["exception", "kill"])
def test_after_a_failure_the_workers_continue_with_the_batch_after_the_checkpoint(cluster: Any, config: Path, tmp_path: Path, what: str) -> None:
    before = len(servers())
    lines = fit(str(config), tmp_path, 2, what, last=5)
    assert trained(lines) == Counter(range(SAMPLES))
    assert len({line["directory"] for line in lines}) == 2, "the servers outlived the workers that had started them"
    assert all(alive(server["pid"]) for server in servers()) and len(servers()) == before + 2


def loader_here(config: Any, **options: Any) -> headrace.ray.Loader:
    """A loader in this process, which is no worker of Train but has a node, too."""
    return headrace.ray.Loader(config, **{"stream": "train", "rank": 0, "world_size": 1, "output": "numpy", **options})


def server_of(loader: headrace.Loader) -> dict[str, Any]:
    return next(server for server in servers() if loader._arguments["address"] == server["address"])


def samples_of(batches: Any) -> list[int]:
    return [int(sample) for batch in batches for sample in batch.sample_index[batch.valid]]


@pytest.mark.parametrize("which", ["pid", "owner_pid"])
def test_a_loop_continues_after_its_server_or_the_servers_actor_was_killed(cluster: Any, config: Path, which: str) -> None:
    with loader_here(str(config)) as loader:
        before = server_of(loader)
        seen = []
        for batch in loader:
            seen += samples_of([batch])
            if batch.number == 2:
                os.kill(before[which], signal.SIGKILL)
                wait_until(lambda: not alive(before[which]), f"the end of the {which}")
        assert seen == samples_of(loader_here(str(config), group="whole"))
        wait_until(lambda: {name for name, value in server_of(loader).items() if value != before[name]} >= {which}, "the next one")
        assert (server_of(loader)["pid"] == before["pid"]) == (which == "owner_pid"), "the server outlived its owner"


JOB = """
import os, sys
sys.path.insert(0, sys.argv[3])
import local_ray
from local_ray import ray
import headrace.ray

ray.init(address=sys.argv[1], log_to_driver=False)

@ray.remote(num_cpus=0)
def first_batch(config):
    with headrace.ray.Loader(config, stream="train", rank=0, world_size=1) as loader:
        next(iter(loader))
        return loader._arguments["address"]

print(ray.get([first_batch.remote(sys.argv[2]) for _ in range(3)])[0], flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_the_server_and_its_folder_are_gone_after_the_job(cluster: Any, config: Path, how: str) -> None:
    others = folders()
    arguments = [cluster.address, str(config), str(Path(__file__).parent)]
    with subprocess.Popen([sys.executable, "-c", JOB, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        try:
            assert job.stdout is not None
            address = job.stdout.readline().strip()
            server = next(server for server in servers() if address == server["address"])
            assert alive(server["pid"]) and Path(address).is_dir()
            if how == "kill":
                job.kill()
            job.communicate("\n", timeout=60)
        finally:
            job.kill()
    wait_until(lambda: not alive(server["pid"]) and not alive(server["owner_pid"]), "the end of the server and its actor")
    wait_until(lambda: folders() <= others, "the removal of its folder")


def test_nothing_is_left_when_the_cluster_ends(config: Path) -> None:
    code = """
import sys
sys.path.insert(0, sys.argv[2])
from local_ray import nodes, ray
import headrace.ray
with nodes(1):
    with headrace.ray.Loader(sys.argv[1], stream="train", rank=0, world_size=1) as loader:
        next(iter(loader))
        print(loader._arguments["address"], flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code, str(config), str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True, timeout=120)
    address = done.stdout.split()[-1]
    assert done.returncode == 0 and address.startswith(tempfile.gettempdir())
    wait_until(lambda: not Path(address).parent.exists(), "the removal of its folder")


def test_a_server_that_does_not_start_for_one_worker_may_start_for_the_next(cluster: Any, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.loads(config.read_text())
    rows = config.parent / "later.npy"
    body["sources"]["rows"]["fields"]["x"] = str(rows)
    killed: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(ray, "kill", lambda actor, **_: killed.append(actor))
        with pytest.raises(Error, match="later.npy"):
            loader_here(body)
    assert not killed, "another worker may use it by now"
    rows.symlink_to(config.parent / "x.npy")
    with loader_here(body) as loader:
        time.sleep(3)
        assert sorted(samples_of(loader)) == list(range(SAMPLES))


def test_a_configuration_may_be_a_dict_and_its_set_changes_it(cluster: Any, config: Path) -> None:
    body = json.loads(config.read_text())
    body["sources"]["rows"]["fields"]["x"] = str(config.parent / "x.npy")
    with loader_here(str(config)) as one, loader_here(body) as two, loader_here(body, set={"streams.train.batch_size": np.int64(6)}) as three:
        assert (two.batch_size, three.batch_size) == (BATCH, 6)
        assert len({loader._arguments["address"] for loader in (one, two, three)}) == 3
        assert samples_of(one) == samples_of(two)
        with loader_here(body, group="another") as again:
            assert again._arguments["address"] == two._arguments["address"]


class Placed:
    """Servers that run already."""

    def __init__(self, address: str) -> None:
        self._address = address

    def address(self, node: str | None = None) -> str:
        return self._address


def test_servers_that_run_already_are_used_as_they_are(cluster: Any, config: Path) -> None:
    before = len(servers())
    with headrace.serve(config) as server:
        with loader_here(Placed(server.address)) as loader:
            assert loader._arguments["address"] == server.address
            assert sorted(samples_of(loader)) == list(range(SAMPLES))
        with pytest.raises(InvalidArgument, match="these servers run already"):
            loader_here(Placed(server.address), set={"server.threads": 2})
        with pytest.raises(InvalidArgument, match="found Server"):
            loader_here(server)
    assert len(servers()) == before


def test_a_state_is_saved_by_any_ranks_and_loaded_at_any_world_size(cluster: Any, config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    pair = [loader_here(str(config), rank=rank, world_size=2, group="pair") for rank in range(2)]
    seen = []
    for loader in pair:
        for batch in loader:
            seen += samples_of([batch])
            if batch.number == 3:
                loader.save(folder)
                break
        loader.close()
    with loader_here(str(config), checkpoint=ray.train.Checkpoint.from_directory(str(folder))) as alone:
        assert sorted(seen + samples_of(alone)) == list(range(SAMPLES))
    (folder / "headrace-train-rank0.json").unlink()
    with loader_here(str(config), checkpoint=folder) as alone:
        assert sorted(seen + samples_of(alone)) == list(range(SAMPLES)), "one rank's file is enough"


def test_wrong_checkpoints_and_arguments_are_named(cluster: Any, config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    with pytest.raises(InvalidArgument, match="has no state of stream 'train'"):
        loader_here(str(config), checkpoint=folder)
    with loader_here(str(config), rank=0, world_size=2) as loader:
        loader.save(folder)
        next(iter(loader))
        other = json.loads((folder / "headrace-train-rank0.json").read_text()) | {"rank": 1, "state": loader.state_dict()}
        (folder / "headrace-train-rank1.json").write_text(json.dumps(other))
    with pytest.raises(InvalidArgument, match="ranks 0 and 1 saved different positions"):
        loader_here(str(config), checkpoint=folder)
    with pytest.raises(InvalidArgument, match="no worker of Ray Train"):
        headrace.ray.Loader(str(config), stream="train")
    with pytest.raises(InvalidArgument, match="absolute path that each node has"):
        loader_here("missing.yaml")
    with pytest.raises(ConfigInvalid, match="batch_sice"):
        loader_here(str(config), set={"streams.train.batch_sice": 3})
    with pytest.raises(InvalidArgument, match="both given"):
        loader_here(str(config), checkpoint=folder, state={"a": 1})
    with pytest.raises(TypeError, match="did you mean transform"):
        loader_here(str(config), transfrom=None)


def test_the_pages_program_trains_and_reports_checkpoints(cluster: Any, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    page = (Path(__file__).parents[2] / "bindings" / "many-machines.md").read_text()
    code = next(block for block in re.findall(r"```python[^\n]*\n(.*?)```", page, re.DOTALL) if "TorchTrainer(train, scaling_config" in block)
    body = json.loads(config.read_text())
    np.save(tmp_path / "y.npy", np.arange(SAMPLES))
    body["sources"]["rows"]["fields"]["y"] = "y.npy"
    config.write_text(json.dumps(body))
    for old, new in {"/shared/train.yaml": str(config), "/shared/runs": str(tmp_path / "runs"), "step % 100": "step % 5", "(1, 4)": "2"}.items():
        assert old in code
        code = code.replace(old, new)
    results: list[Any] = []

    class Trainer(DataParallelTrainer):
        """In place of TorchTrainer, which needs torch."""

        def fit(self) -> Any:
            results.append(super().fit())

    monkeypatch.setitem(sys.modules, "ray.train.torch", types.SimpleNamespace(TorchTrainer=Trainer))
    exec(code, {"__name__": "page"})
    assert results[0].metrics == {"step": 5}
    with results[0].checkpoint.as_directory() as folder:
        assert sorted(os.listdir(folder))[-2:] == ["headrace-train-rank0.json", "headrace-train-rank1.json"]
