"""The systems that remote.py and worker_death.py compare. Each is a trainer with what feeds it, and says which of its processes would run on
the trainer's node."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from peers import processes

HERE = Path(__file__).parent
START_SECONDS = 120.0
ANSWER_SECONDS = 300.0
STORE = 2**30  # bytes of the object store of each of Ray's nodes
RAY_SETTINGS = {  # those of tests/ray: its defaults notice a death only after minutes
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_USAGE_STATS_ENABLED": "0",
}
Pids = dict[str, list[int]]  # of the trainer's node, by column


def cpu_of(pids: list[int]) -> float:
    """User + system time of these processes, in seconds. Their children do not count."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3)
    return total


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(true: Callable[[], Any], what: str, seconds: float = START_SECONDS) -> Any:
    until = time.monotonic() + seconds
    while not (value := true()):
        if time.monotonic() > until:
            sys.exit(f"waited {seconds:g} s for {what}")
        time.sleep(0.1)
    return value


class Child:
    """A process that answers in JSON lines."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.command = command
        with log.open("ab") as file:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file)
        self._name, self._log = " ".join(Path(part).name for part in command[1:3]), log

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self, seconds: float = ANSWER_SECONDS, without: str | None = None) -> str:
        """The next line; `without`: what to return if there is none in time, instead of ending this program."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        if not ready and without is not None:
            return without
        text = self.process.stdout.readline().decode() if ready else ""
        if not text:
            sys.exit(f"{self._name} {'ended' if ready else 'did not answer'}:\n{self._log.read_text(errors='replace')[-2000:]}")
        return text.strip()

    def ask(self, **what: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.line())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Side:
    """What one row of the table measures."""

    def __init__(self, name: str, batch: int, client: Child, pids: Callable[[], Pids], address: str = "") -> None:
        self.name, self.batch, self.client, self.pids, self.address = name, batch, client, pids, address
        client.line(START_SECONDS)  # its first batch

    def made(self) -> tuple[int, int]:
        """The rows that this server has made, and those of them that came from elsewhere."""
        if not self.address:
            return 0, 0
        import headrace

        stats = headrace.stats(self.address)
        elsewhere = sum(int(node["samples"]) for node in stats["bridge"]["nodes"])
        return int(stats["streams"]["train"]["samples"]), elsewhere


class Sides:
    """Starts sides in one folder, and ends all of their processes."""

    def __init__(self, images: str) -> None:
        self.images = os.path.abspath(images)
        self.folder = Path(tempfile.mkdtemp(prefix="hrb-"))  # a short name: Ray's sockets are below it
        self._ending = contextlib.ExitStack()
        self._count = 0

    def __enter__(self) -> Sides:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()
        subprocess.run(["rm", "-rf", str(self.folder)], check=False)

    def config(self, batch: int, images: str = "") -> Path:
        self._count += 1
        path = self.folder / f"{self._count}.yaml"
        chain = [{"random_resized_crop": {"size": 224}}, "random_horizontal_flip"]
        output = {"dtype": "uint8", "layout": "NHWC"}
        stream = {"source": "images", "seed": 7, "batch_size": batch, "transforms": chain, "output": output}
        sources = {"images": {"type": "image_folder", "path": images or self.images}}
        path.write_text(json.dumps({"server": {"threads": 1, "metrics": "off"}, "sources": sources, "streams": {"train": stream}}))
        return path

    def child(self, *command: str, python: str = sys.executable) -> Child:
        started = Child([python, str(HERE / command[0]), *command[1:]], self.folder / "log")
        self._ending.callback(started.kill)
        return started

    def served(self, config: Path) -> Any:
        import headrace

        return self._ending.enter_context(headrace.serve(config))

    # --- Headrace

    def local(self, batch: int) -> Side:
        """The server decodes."""
        server = self.served(self.config(batch))
        client = self.child("remote_client.py", server.address)
        return Side("decodes here", batch, client, lambda: {"server": [server.pid], "client": [client.pid]}, server.address)

    def bridged(self, batch: int, makers: int) -> Side:
        """A bridge without Ray."""
        config = self.config(batch)
        server = self.served(config)
        bridge = self.child("remote_bridge.py", server.address, str(config), str(makers))
        bridge.line(START_SECONDS)
        client = self.child("remote_client.py", server.address)
        pids = {"server": [server.pid], "bridge": [bridge.pid], "client": [client.pid]}
        return Side("bridge alone", batch, client, lambda: pids, server.address)

    def cluster(self, decoding: int) -> Cluster:
        made = Cluster(self.folder, decoding)
        self._ending.callback(made.close)
        return made

    def on_ray(self, cluster: Cluster, batch: int, makers: int) -> Side:
        """Makers of Ray, and the bridge beside the server."""
        started = self._ending.enter_context(cluster.start(self.config(batch), makers))
        ((node, address),) = started.addresses.items()
        client = self.child("remote_client.py", address)

        def pids() -> Pids:
            stats = started.stats()[node]
            server, bridge = int(stats["pid"]), int(stats["bridge_pid"])
            others = [pid for pid in cluster.trainers_processes() if pid not in (server, bridge)]
            return {"server": [server], "bridge": [bridge], "Ray": others, "client": [client.pid]}

        return Side("bridge and Ray", batch, client, pids, address)

    # --- tf.data service

    def dispatcher(self, python: str, workers: int) -> tuple[str, list[Child]]:
        """Its address, and its workers."""
        address = self.child("remote_tf.py", "dispatcher", python=python).line(START_SECONDS)
        return address, [self.tf_worker(python, address, free_port()) for _ in range(workers)]

    def tf_worker(self, python: str, address: str, port: int) -> Child:
        return self.child("remote_tf.py", "worker", address, str(port), python=python)

    def tf_service(self, python: str, batch: int, workers: int, compression: str) -> Side:
        address, _ = self.dispatcher(python, workers)
        client = self.child("remote_tf.py", "client", address, self.images, str(batch), compression, python=python)
        return Side(f"tf.data service, {compression}", batch, client, lambda: {"client": [client.pid]})


class Cluster:
    """Ray's nodes on this machine: a head, a trainer's node without CPUs for makers, and decode nodes of one CPU."""

    def __init__(self, folder: Path, decoding: int) -> None:
        (folder / "ray").mkdir()
        os.environ.update(RAY_SETTINGS, RAY_TMPDIR=str(folder))
        import ray
        from ray.cluster_utils import Cluster as Nodes

        with quiet(folder / "log"):
            self.nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE})
            self.trainer = self.nodes.add_node(num_cpus=0, resources={"trainer": 1}, object_store_memory=STORE)
            self.decode = [self.nodes.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(decoding)]
            ray.init(address=self.nodes.address, log_to_driver=False)
        self._log = folder / "log"

    def start(self, config: Path, makers: int) -> Any:
        import headrace.ray

        started = headrace.ray.start(config, trainers="trainer", makers=(makers, makers))
        (node,) = started.addresses
        wait_until(lambda: len(started.stats()[node].get("makers", [])) == makers, f"{makers} makers")
        return started

    def trainers_processes(self) -> list[int]:
        """Of Ray on the trainer's node: the raylet with its object store, its agents, and its workers."""
        return processes.tree([self.trainer.all_processes["raylet"][0].process.pid])

    def kill(self, node: Any) -> None:
        """As if its machine lost power."""
        with quiet(self._log):
            self.nodes.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        import ray

        with quiet(self._log):
            ray.shutdown()
            self.nodes.shutdown()


@contextlib.contextmanager
def quiet(log: Path) -> Iterator[None]:
    """Sends what Ray says to a file."""
    kept = [os.dup(1), os.dup(2)]
    sys.stdout.flush()
    with log.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    try:
        yield
    finally:
        sys.stdout.flush()
        for stream, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, stream)
            os.close(descriptor)
