"""A Ray cluster of a trainer's node and decode nodes on this machine, and consumers that compare every epoch with a lone server's."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Ray's sockets need a short path. Its defaults notice a death only after minutes.
_TEMP = tempfile.mkdtemp(prefix="hrt-")
os.environ |= {
    "RAY_TMPDIR": _TEMP,
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "8",
    "RAY_USAGE_STATS_ENABLED": "0",
}

import headrace  # noqa: E402
import headrace.ray  # noqa: E402
import numpy as np  # noqa: E402
import psutil  # noqa: E402
import pytest  # noqa: E402
import ray  # noqa: E402
from local_ray import wait_until  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

SAMPLES = 320
CONFIG = """
server: {{threads: 1, metrics: off}}
sources:
  arrays: {{type: npy, fields: {{image: {folder}/image.npy, label: {folder}/label.npy}}}}
streams:
  train:
    source: arrays
    batch_size: 16
    seed: 3
    transforms: [{{random_resized_crop: 24}}, random_horizontal_flip]
"""
_STORE = 80 * 2**20  # bytes of each node's object store
_PAUSE = 0.02  # seconds of a consumer for a batch, so that an epoch lasts long enough for a fault


def epoch_digest(loader: headrace.Loader, epoch: int, pause: float = 0) -> str:
    loader.set_epoch(epoch)
    digest = headrace.Digest()
    for batch in loader:
        digest.add(batch)
        time.sleep(pause)
    return digest.hexdigest()


class Consumers:
    """Two trainers on one server. check() ends them after their current epochs and compares these, which are at least two."""

    def __init__(self, address: str, alone: str) -> None:
        self._alone = alone
        self._end = threading.Event()
        self._digests: list[list[str]] = [[], []]
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(address, found), daemon=True) for found in self._digests]
        for thread in self._threads:
            thread.start()

    def _run(self, address: str, found: list[str]) -> None:
        try:
            with headrace.Loader(address, stream="train", output="numpy", reconnect_timeout=60) as loader:
                while not self._end.is_set() or len(found) < 2:
                    found.append(epoch_digest(loader, len(found), _PAUSE))
        except BaseException as error:
            self._errors.append(error)

    @property
    def epochs(self) -> int:
        """Epochs that both have finished."""
        return min(map(len, self._digests))

    def more_epochs(self, count: int) -> None:
        """Waits until both have finished `count` more."""
        before = self.epochs
        wait_until(lambda: self._errors or self.epochs >= before + count, "epochs")
        assert not self._errors

    def check(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(90)
            assert not thread.is_alive(), "a consumer waits"
        assert not self._errors
        with headrace.Loader(self._alone, stream="train", output="numpy") as loader:
            for epoch in range(max(map(len, self._digests))):
                right = epoch_digest(loader, epoch)
                for found in self._digests:
                    assert found[epoch : epoch + 1] in ([], [right]), f"epoch {epoch}"


class Nodes:
    """The cluster: a head without CPUs, a trainer's node without CPUs, and decode nodes of one CPU."""

    def __init__(self) -> None:
        os.environ["RAY_TMPDIR"] = _TEMP  # other clusters of this process have folders of their own
        (Path(_TEMP) / "ray").mkdir(parents=True, exist_ok=True)
        self.cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": _STORE}
        )
        self.trainer = self.cluster.add_node(num_cpus=0, resources={"trainer": 1}, object_store_memory=_STORE)

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.shutdown()

    def add(self, fault: str = "", **options: Any) -> Any:
        """Adds a decode node; with a fault of faulty/sitecustomize.py."""
        if fault:
            options["env_vars"] = {"PYTHONPATH": str(Path(__file__).parent / "faulty"), "RAY_TEST_FAULT": fault}
        return self.cluster.add_node(**{"num_cpus": 1, "object_store_memory": _STORE, **options})

    def processes(self, name: str) -> list[int]:
        """The process ids of an actor's class in this cluster."""
        found = []
        for node in self.cluster.list_all_nodes():
            with contextlib.suppress(psutil.NoSuchProcess):
                children = psutil.Process(node.all_processes["raylet"][0].process.pid).children(recursive=True)
                found += [child.pid for child in children if child.name().startswith(f"ray::{name}"[:15])]
        return found

    def kill(self, node: Any) -> None:
        """As if its machine lost power: raylet and workers at once."""
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="session", autouse=True)
def temporary_folder() -> Iterator[None]:
    yield

    def removed() -> bool:
        shutil.rmtree(_TEMP, ignore_errors=True)  # Ray's last processes may still write
        return not os.path.exists(_TEMP)

    wait_until(removed, f"the removal of {_TEMP}")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    np.save(folder / "image.npy", random.integers(0, 256, (SAMPLES, 32, 32, 3), dtype=np.uint8))
    np.save(folder / "label.npy", np.arange(SAMPLES) % 10)
    np.save(folder / "other.npy", random.integers(0, 256, (SAMPLES, 32, 32, 3), dtype=np.uint8))
    return folder


@pytest.fixture(scope="session")
def config(data: Path) -> Path:
    path = data / "train.yaml"
    path.write_text(CONFIG.format(folder=data))
    return path


@pytest.fixture(scope="session")
def alone(config: Path) -> Iterator[str]:
    """The address of a server without a bridge."""
    with headrace.serve(config) as server:
        yield server.address


@pytest.fixture
def bare_nodes() -> Iterator[Nodes]:
    """A cluster without decode nodes, to which this process is not connected."""
    with Nodes() as nodes:
        yield nodes


@pytest.fixture
def nodes(bare_nodes: Nodes) -> Iterator[Nodes]:
    """A cluster without decode nodes, with this process as its driver."""
    ray.init(address=bare_nodes.cluster.address, log_to_driver=False)
    yield bare_nodes
    ray.shutdown()


class Running:
    """headrace.ray.start() for the trainer's node, and two consumers there."""

    def __init__(self, config: Any, alone: str, **options: Any) -> None:
        self.servers = headrace.ray.start(config, trainers="trainer", **{"makers": (2, 2), **options})
        (self.node, self.address), = self.servers.addresses.items()
        self.consumers = Consumers(self.address, alone)

    def stats(self) -> dict[str, Any]:
        found = self.servers.stats()[self.node]
        return {"makers": [], "rows": {}, "excluded": {}, "made": 0, "connected": False, **found}

    def wait_for_makers(self, count: int) -> None:
        wait_until(lambda: len(self.stats()["makers"]) == count, f"{count} makers")

    def wait_for_rows(self, *names: str) -> None:
        """Waits until each of these nodes, or any, has made more rows."""
        before = self.stats()["rows"]

        def more() -> bool:
            now = self.stats()["rows"]
            grown = {name for name, rows in now.items() if rows > before.get(name, 0)}
            return grown.issuperset(names) if names else bool(grown)

        wait_until(more, f"rows of {names or 'any node'}")

    def check(self) -> None:
        """Ends the consumers, and compares all epochs."""
        self.consumers.check()


@pytest.fixture
def running(nodes: Nodes, config: Path, alone: str) -> Iterator[Callable[..., Running]]:
    """running(config, **options of start()): a Running, stopped at the test's end, after which nothing is left of it."""
    started: list[Running] = []

    def start(given: Any = config, **options: Any) -> Running:
        started.append(Running(given, alone, **options))
        return started[-1]

    yield start
    for each in started:
        each.servers.stop()
        assert not Path(each.address).parent.exists()
