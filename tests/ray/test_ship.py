"""start(ship="encoded"): only the trainer's node has the data."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from conftest import Nodes, Running, wait_until
from headrace.errors import InvalidArgument
from headrace.ray._remote import Plan
from headrace.ray._shipping import NotRead, Shipping
from PIL import Image

Start = Callable[..., Running]
SAMPLES = 200


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos, of which some are bad, in the part `train` of a folder."""
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(1)
    for i in range(SAMPLES):
        (folder / f"{i % 2}").mkdir(exist_ok=True)
        path = folder / f"{i % 2}" / f"{i}.jpg"
        Image.fromarray(random.integers(0, 256, (40 + i % 9, 50, 3), dtype=np.uint8)).save(path)
        if i % 60 == 7:
            path.write_bytes(b"no image")
    path = folder.parent / "photos.yaml"
    path.write_text(f"""
server: {{threads: 1, metrics: off}}
sources:
  photos: {{type: image_folder, path: {folder}, split: {{seed: 1, fractions: {{train: 0.8, val: 0.2}}}}}}
streams:
  train: {{source: photos, part: train, batch_size: 16, seed: 3, transforms: [{{random_resized_crop: 24}}, random_horizontal_flip]}}
""")
    return path


@pytest.fixture(scope="module")
def alone(config: Path) -> Iterator[str]:
    with headrace.serve(config) as server:
        yield server.address


def without_data(nodes: Nodes) -> Any:
    """A decode node on which the source's path leads nowhere."""
    return nodes.add("data:sources.photos.path=/nowhere")


def test_nodes_without_the_data_make_rows_of_what_the_trainer_s_node_sends(nodes: Nodes, running: Start) -> None:
    for _ in range(2):
        without_data(nodes)
    run = running(ship="encoded")
    run.wait_for_makers(2)
    run.wait_for_rows(*(each["name"] for each in run.stats()["makers"]))
    run.consumers.more_epochs(2)
    stats = run.stats()
    assert stats["excluded"] == {} and stats["failed"] == 0
    files = stats["sent_bytes"] / sum(stats["rows"].values())
    assert 1000 < files < 10000, "the files' sizes"
    assert stats["received_bytes"] >= sum(stats["rows"].values()) * 24 * 24 * 3
    used = headrace.stats(run.address)["bridge"]["nodes"]
    assert all(each["samples"] > 0 and each["sent_bytes"] > 0 for each in used)
    run.check()


def test_without_ship_the_error_names_it(nodes: Nodes, running: Start) -> None:
    other = without_data(nodes)
    run = running(makers=(1, 1))
    why = wait_until(lambda: run.stats()["excluded"].get(other.node_id), "the exclusion of the node")
    assert "/nowhere" in why and "ship='encoded'" in why
    run.check()


def test_a_decode_node_dies_and_another_one_comes(nodes: Nodes, running: Start) -> None:
    first = without_data(nodes)
    run = running(ship="encoded", makers=(1, 1))
    run.wait_for_rows()
    nodes.kill(first)
    run.consumers.more_epochs(1)
    without_data(nodes)
    run.wait_for_makers(1)
    run.wait_for_rows()
    run.check()


def test_the_server_and_the_bridge_die(nodes: Nodes, running: Start) -> None:
    without_data(nodes)
    run = running(ship="encoded", makers=(1, 1))
    run.wait_for_rows()
    os.kill(run.stats()["pid"], signal.SIGKILL)
    wait_until(lambda: run.stats().get("restarts") == 1 and run.stats()["connected"], "the next server with the bridge")
    run.wait_for_rows()
    (dead,) = nodes.processes("BridgeActor")
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: run.stats()["connected"] and run.stats().get("bridge_pid", dead) != dead, "the next bridge")
    run.wait_for_rows()
    run.check()


def test_a_wrong_argument_is_named(nodes: Nodes, config: Path) -> None:
    with pytest.raises(InvalidArgument, match="ship='decoded': expected 'encoded'"):
        headrace.ray.start(config, trainers="trainer", ship="decoded")


def test_samples_that_cannot_be_read_are_no_fault_of_the_maker(config: Path) -> None:
    plan = Plan(
        path=str(config), text=config.read_bytes(), changes={"sources.photos.path": "/nowhere"}, env={}, version="", token="", threads=1,
        makers=(0, 0), resources={}, trainers=(),
    )  # fmt: skip
    shipping = Shipping(plan)
    error = shipping.call(None, b"key", "train", 0, 0, 4).exception(timeout=60)
    assert isinstance(error, NotRead) and "/nowhere" in str(error)
    shipping.close()
