"""Counts the samples of an epoch that a trainer loses or receives twice when one of two processes that decode for it is killed (kill -9).

    .cache/ray/bin/python tests/bench/worker_death.py DIR --tensorflow .cache/tf/bin/python

DIR is a folder per class of JPEGs. An epoch has each of them `--repeat` times, under other names. The systems are tf.data service with dynamic
sharding, a server with a bridge and without Ray, and a server with Ray's nodes. The kill is in the middle of the epoch; in a case without
one, the second process goes on.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from remote_sides import Cluster, Sides, quiet

Batches = Iterator[list[int]]
Kill = Callable[[], object]


def linked(images: str, folder: Path, repeat: int) -> int:
    """Makes a folder that has each image several times. Returns the number of its files."""
    count = 0
    for of_class in sorted(path for path in Path(images).resolve().iterdir() if path.is_dir()):
        (folder / of_class.name).mkdir(parents=True)
        for image in sorted(of_class.iterdir()):
            for number in range(repeat):
                (folder / of_class.name / f"{number}-{image.name}").symlink_to(image)
                count += 1
    return count


def epoch(address: str, step: float) -> Batches:
    import headrace

    with headrace.Loader(address, stream="train", output="numpy") as loader:
        for batch in loader:
            yield batch.sample_index[batch.valid].tolist()
            time.sleep(step)


def tf_service(args: argparse.Namespace, sides: Sides, images: str, restart: bool = True) -> tuple[Batches, Kill]:
    """`restart`: another worker starts at the dead one's address, as Kubernetes would do it."""
    address, workers = sides.dispatcher(args.tensorflow, 2)
    time.sleep(args.settle)
    reader = sides.child("remote_tf.py", "epoch", address, images, str(args.batch), str(args.step), python=args.tensorflow)

    def batches() -> Batches:
        while (line := reader.line(args.stuck, without="stuck")) not in ("end", "stuck"):
            yield json.loads(line)

    def kill() -> None:
        workers[0].kill()
        if restart:
            sides.tf_worker(args.tensorflow, address, int(workers[0].command[-1]))

    return batches(), kill


def bridged(args: argparse.Namespace, sides: Sides, images: str) -> tuple[Batches, Kill]:
    config = sides.config(args.batch, images)
    server = sides.served(config)
    makers = json.loads(sides.child("remote_bridge.py", server.address, str(config), "2").line())["makers"]
    return epoch(server.address, args.step), lambda: os.kill(makers[0], signal.SIGKILL)


def on_ray(args: argparse.Namespace, cluster: Cluster, servers: Any) -> tuple[Batches, Kill]:
    ((trainer, address),) = servers.addresses.items()

    def kill() -> None:
        busy = servers.stats()[trainer]["makers"][0]["node"]
        cluster.kill(next(node for node in cluster.decode if node.node_id == busy))

    return epoch(address, args.step), kill


def counted(batches: Batches, kill: Kill | None, samples: int) -> tuple[int, int, int]:
    """How many samples came, how many did not, and how many came again."""
    seen: Counter[int] = Counter()
    for batch in batches:
        seen.update(batch)
        if kill is not None and seen.total() * 2 >= samples:
            kill()
            kill = None
    return seen.total(), samples - len(seen), seen.total() - len(seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images")
    parser.add_argument("--tensorflow", help="a Python with TensorFlow, for tf.data service")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("--step", type=float, default=0.04, help="seconds that the trainer sleeps after each batch")
    parser.add_argument("--settle", type=float, default=8, help="seconds until the workers of tf.data service are known to the dispatcher")
    parser.add_argument("--stuck", type=float, default=60, help="seconds without a batch after which tf.data service's epoch counts as unfinished")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rows: list[str] = []
    with Sides(args.images) as sides:
        images = str(sides.folder / "images")
        samples = linked(args.images, Path(images), args.repeat)

        def case(system: str, killed: str, batches: Batches, kill: Kill | None) -> None:
            rows.append(f"| {system} | {killed} | {samples} | {' | '.join(map(str, counted(batches, kill, samples)))} |")
            print(rows[-1], file=sys.stderr)

        for number in range(args.rounds):
            if args.tensorflow:
                if number == 0:
                    case("tf.data service", "nothing", tf_service(args, sides, images)[0], None)
                    case("tf.data service", "worker, not restarted (the epoch does not end)", *tf_service(args, sides, images, restart=False))
                case("tf.data service", "worker, restarted", *tf_service(args, sides, images))
            case("bridge alone", "maker", *bridged(args, sides, images))
        if importlib.util.find_spec("ray") is not None:
            cluster = sides.cluster(1 + args.rounds)  # each round kills one
            for _ in range(args.rounds):
                # Ray reports each death.
                with quiet(sides.folder / "log"), cluster.start(sides.config(args.batch, images), 2) as servers:
                    case("bridge and Ray", "decode node", *on_ray(args, cluster, servers))
    print("| system | killed | samples | received | lost | twice |\n|---|---|---|---|---|---|")
    print(*sorted(rows), sep="\n")


if __name__ == "__main__":
    main()
