"""A Ray cluster on this machine for tests, in a folder of its own, and what it leaves behind."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

QUIET = {
    "RAY_TRAIN_ENABLE_STATE_TRACKING": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "15",  # Train finds out by this that a node is gone
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
}
os.environ.update(QUIET)

sys.path.append(str(Path(__file__).parents[1] / "python"))

import ray  # noqa: E402
import running  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

wait_until = partial(running.wait_until, seconds=60)


def node_ids() -> list[str]:
    """The ids of the cluster's living nodes."""
    return [entry["NodeID"] for entry in ray.nodes() if entry["Alive"]]


def folders() -> set[str]:
    """The folders of headrace.ray's actors and of servers that are left on this machine."""
    names = os.listdir(tempfile.gettempdir())
    return {name for name in names if name.startswith(("headrace-kept-", "headrace-ray-", "headrace-serve-", "headrace-share-"))}


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]
    except OSError:
        return False


@contextmanager
def nodes(count: int, cpus: int = 2) -> Iterator[Cluster]:
    """A cluster whose `count` nodes are raylets on this machine, with this process as a driver, on the first one. The driver's job and
    the cluster end with the block."""
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as folder:
        before = os.environ.get("RAY_TMPDIR")
        os.environ["RAY_TMPDIR"] = folder  # also of the file in which Ray notes the current cluster
        (Path(folder) / "ray").mkdir()
        options = {"num_cpus": cpus, "object_store_memory": 100 << 20, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=options)
        try:
            for _ in range(count - 1):
                cluster.add_node(**options)
            ray.init(address=cluster.address, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": paths, **QUIET}})
            cluster.wait_for_nodes(60)
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()
            if before is not None:
                os.environ["RAY_TMPDIR"] = before
