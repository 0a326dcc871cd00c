"""A demo: a trainer's node with one thread for decoding, and two other nodes of a Ray cluster that decode for it. One of them is killed.

All three nodes are on this machine. `./run ray-demo` starts it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EPOCHS = 5
KILLED_IN = 2  # this epoch
_STORE = 200 * 2**20  # bytes of each node's object store
CONFIG = """
server: {{threads: 1, metrics: off}}
sources:
  photos: {{type: image_folder, path: {folder}}}
streams:
  train:
    source: photos
    batch_size: 32
    transforms: [{{random_resized_crop: 224}}, random_horizontal_flip]
"""


def table_row(cells: list[str]) -> str:
    return "  " + "  ".join(cell.ljust(width) for cell, width in zip(cells, (5, 7, 9, 13, 13, 16), strict=True)).rstrip()


class Nodes:
    """A head and a trainer's node without CPUs for makers, and two decode nodes."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": _STORE}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.cluster.add_node(num_cpus=0, resources={"trainer": 1}, object_store_memory=_STORE)
        self.decode = [self.cluster.add_node(num_cpus=1, object_store_memory=_STORE) for _ in range(2)]

    def kill(self, number: int) -> None:
        """As if the machine lost power."""
        self.cluster.remove_node(self.decode[number], allow_graceful=False)


@contextlib.contextmanager
def quiet(log: Path) -> Iterator[Any]:
    """Sends what Ray says to a file. Yields a print() for the terminal."""
    terminal = os.fdopen(os.dup(1), "w")
    kept = [os.dup(1), os.dup(2)]
    sys.stdout.flush()
    with log.open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)

    def said(line: str) -> None:
        print(line, file=terminal, flush=True)

    try:
        yield said
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, stream)
            os.close(descriptor)


def digests_of_one_machine(config: Path) -> list[str]:
    import headrace

    found = []
    with headrace.serve(config, server__threads=2) as server, headrace.Loader(server.address, stream="train", output="numpy") as loader:
        for epoch in range(EPOCHS):
            loader.set_epoch(epoch)
            digest = headrace.Digest()
            for batch in loader:
                digest.add(batch)
            found.append(digest.hexdigest())
    return found


def made_by(address: str, names: list[str]) -> tuple[int, list[int]]:
    """The samples that the server has made, and those that each decode node has."""
    import headrace

    stats = headrace.stats(address)
    by_node = {each["node"]: int(each["samples"]) for each in stats["bridge"]["nodes"]}
    elsewhere = [next((count for node, count in by_node.items() if node.endswith(name)), 0) for name in names]
    return int(stats["streams"]["train"]["samples"]) - sum(elsewhere), elsewhere


def read_epochs(address: str, nodes: Nodes, right: list[str], said: Any) -> bool:
    import headrace

    names = [node.node_id[:8] for node in nodes.decode]
    equal, killing = True, None
    said(table_row(["epoch", "seconds", "made here", "decode node 1", "decode node 2", "digest"]))
    said(table_row(["-" * width for width in (5, 7, 9, 13, 13, 16)]))
    with headrace.Loader(address, stream="train", output="numpy") as loader:
        before, before_elsewhere = made_by(address, names)
        for epoch in range(EPOCHS):
            loader.set_epoch(epoch)
            digest, began = headrace.Digest(), time.perf_counter()
            for number, batch in enumerate(loader):
                digest.add(batch)
                if epoch == KILLED_IN and number == 3:
                    killing = threading.Thread(target=nodes.kill, args=(1,))
                    killing.start()
            here, elsewhere = made_by(address, names)
            made = [here - before, *(now - then for now, then in zip(elsewhere, before_elsewhere, strict=True))]
            before, before_elsewhere = here, elsewhere
            same = digest.hexdigest() == right[epoch]
            equal = equal and same
            cells = [str(epoch), f"{time.perf_counter() - began:.1f}", *map(str, made), digest.hexdigest() + ("" if same else " DIFFERENT")]
            said(table_row(cells) + ("   <- decode node 2 is killed" if epoch == KILLED_IN else ""))
    if killing is not None:
        killing.join(60)
    return equal


def run(config: Path, log: Path) -> bool:
    import headrace.ray
    import ray

    right = digests_of_one_machine(config)
    with quiet(log) as said:
        nodes = Nodes()
        try:
            ray.init(address=nodes.cluster.address, log_to_driver=False)
            with headrace.ray.start(config, trainers="trainer", makers=(2, 2)) as servers:
                ((node, address),) = servers.addresses.items()
                end = time.monotonic() + 60
                while len(servers.stats()[node].get("makers", [])) < 2 and time.monotonic() < end:
                    time.sleep(0.2)
                equal = read_epochs(address, nodes, right, said)
        finally:
            ray.shutdown()
            nodes.cluster.shutdown()
    left = Path(address).parent.exists()
    print(f"  digests: {f'equal to those of one machine in all {EPOCHS} epochs' if equal else 'DIFFERENT'}")
    print(f"  left behind: {Path(address).parent if left else 'nothing'}")
    return equal and not left


def main() -> int:
    work = Path(tempfile.mkdtemp(prefix="hrd-"))  # a short name: Ray's sockets are below it
    os.environ.setdefault("RAY_TMPDIR", str(work))
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    (work / "ray").mkdir()
    log = work / "ray.log"
    try:
        from demo_images import Unusable, made_folder

        try:
            folder = made_folder()
        except Unusable as error:
            print(f"ray-demo: {error}", file=sys.stderr)
            return 1
        config = work / "train.yaml"
        config.write_text(CONFIG.format(folder=folder))
        print("a trainer's node with 1 thread, and 2 decode nodes of 1 CPU; samples by where they were made, a few batches ahead of the loop:\n", flush=True)
        return 0 if run(config, log) else 1
    except KeyboardInterrupt:
        print("ray-demo: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        said = log.read_text(errors="replace").splitlines()[-20:] if log.exists() else []
        print(f"ray-demo: {type(error).__name__}: {error}", *said, sep="\n", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
