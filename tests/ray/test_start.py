"""start(): which nodes get servers and makers, what it refuses, and that nothing stays."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import headrace
import pytest
import ray
import yaml
from conftest import SAMPLES, Nodes, Running, wait_until
from headrace.errors import Closed, ConfigInvalid, InvalidArgument, VersionMismatch

Start = Callable[..., Running]


def test_another_version_of_headrace_is_refused_at_once(nodes: Nodes, config: Path) -> None:
    node = nodes.add("version:0.0.9")
    with pytest.raises(VersionMismatch, match=rf"{node.node_id[:8]} has headrace 0\.0\.9, this program has {headrace.__version__}; install"):
        headrace.ray.start(config, trainers="trainer")
    assert not nodes.processes("ServerActor")


def test_a_node_of_another_version_that_joins_later_gets_no_orders(nodes: Nodes, running: Start) -> None:
    run = running(makers=(1, 1))
    other = nodes.add("version:0.0.9")
    why = wait_until(lambda: run.stats()["excluded"].get(other.node_id), "the exclusion of the node")
    assert "VERSION_MISMATCH" in why and "0.0.9" in why
    run.check()


def test_a_node_with_other_data_gets_no_orders(nodes: Nodes, running: Start, data: Path) -> None:
    other = nodes.add(f"data:sources.arrays.fields.image={data / 'other.npy'}")
    good = nodes.add()
    run = running()
    why = wait_until(lambda: run.stats()["excluded"].get(other.node_id), "the exclusion of the node")
    assert "FINGERPRINT_MISMATCH" in why and "copy the data again" in why
    run.wait_for_rows()
    assert [each["node"] for each in run.stats()["makers"]] == [good.node_id]
    run.check()


def test_a_node_that_cannot_open_the_data_is_named_with_the_remedy(nodes: Nodes, running: Start, data: Path) -> None:
    other = nodes.add(f"data:sources.arrays.fields.image={data / 'missing.npy'}")
    run = running(makers=(1, 1))
    why = wait_until(lambda: run.stats()["excluded"].get(other.node_id), "the exclusion of the node")
    assert "missing.npy" in why and "use a shared mount" in why
    run.check()


@pytest.mark.parametrize("least", [0, 1])
def test_waiting_trainers_get_more_makers_and_full_rings_fewer(nodes: Nodes, config: Path, tmp_path: Path, least: int) -> None:
    for _ in range(2):
        nodes.add(num_cpus=2)
    heavy = tmp_path / "heavy.yaml"
    heavy.write_text(config.read_text().replace("random_resized_crop: 24", "random_resized_crop: 224}, {gaussian_blur: 9"))
    with headrace.ray.start(heavy, trainers="trainer", makers=(least, 3)) as servers:
        ((node, address),) = servers.addresses.items()
        with headrace.Loader(address, stream="train") as loader:
            for epoch in range(1000):
                loader.set_epoch(epoch)
                assert sum(len(labels) for _, labels in loader) == SAMPLES
                if len(servers.stats()[node].get("makers", [])) == 3:
                    break
            else:
                raise AssertionError(servers.stats()[node])
            wait_until(lambda: servers.stats()[node].get("wanted") == least, "the least number of makers")  # the ring is full
            wait_until(lambda: len(servers.stats()[node]["makers"]) == least, "the end of the others")


def test_without_makers_the_server_orders_nothing(running: Start) -> None:
    run = running(makers=(0, 1))
    wait_until(lambda: run.stats()["connected"], "the bridge")
    run.consumers.more_epochs(3)
    found = run.stats()
    assert (found["orders"], found["failed"]) == (0, 0)
    run.check()


def test_makers_run_only_where_their_resource_is(nodes: Nodes, running: Start) -> None:
    nodes.add(num_cpus=4)
    chosen = nodes.add(resources={"decode": 2})
    run = running(makers=(1, 2), resources={"decode": 1})
    run.wait_for_rows()
    assert {each["node"] for each in run.stats()["makers"]} == {chosen.node_id}
    run.check()


def test_the_configuration_may_be_a_dict(nodes: Nodes, config: Path, running: Start) -> None:
    nodes.add()
    run = running(yaml.safe_load(config.read_text().replace("off", "'off'")), makers=(1, 1))
    run.wait_for_rows()
    run.check()


def test_servers_go_on_if_nobody_keeps_what_start_returned(nodes: Nodes, config: Path) -> None:
    nodes.add()
    address = headrace.ray.start(config, trainers="trainer", makers=(1, 1)).addresses.popitem()[1]
    gc.collect()
    (servers,) = headrace.ray._start._running
    with headrace.Loader(address, stream="train") as loader:
        for epoch in range(1000):
            loader.set_epoch(epoch)
            assert sum(len(labels) for _, labels in loader) == SAMPLES
            if any(each.get("rows") for each in servers.stats().values()):
                break
        else:
            raise AssertionError(servers.stats())
    servers.stop()
    assert not headrace.ray._start._running
    with pytest.raises(Closed, match="these servers were stopped"):
        servers.address()


def test_a_resource_that_no_node_has_is_named(nodes: Nodes, config: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "headrace"), headrace.ray.start(config, trainers="trainer", resources={"decod": 1}, threads=2):
        assert "no node has the resources of a maker (CPU: 2, decod: 1); the servers make all rows until such a node joins" in caplog.text


def test_tasks_and_actors_have_the_stream_s_name(nodes: Nodes, running: Start) -> None:
    nodes.add()
    run = running(makers=(1, 1))
    run.wait_for_makers(1)
    names = [each["name"] for each in ray.util.list_named_actors(all_namespaces=True)]
    assert any(name.startswith("headrace maker train ") for name in names), names
    assert any(name.startswith("headrace server train.yaml ") for name in names), names
    run.check()


def test_a_task_on_a_trainer_s_node_finds_its_server(nodes: Nodes, running: Start) -> None:
    run = running(makers=(0, 0))

    @ray.remote(num_cpus=0, resources={"trainer": 0.1})
    def address(servers: headrace.ray.Servers) -> str:
        return servers.address()

    assert ray.get(address.remote(run.servers), timeout=60) == run.address
    with pytest.raises(InvalidArgument, match="has no server"):
        run.servers.address("f" * 56)
    run.check()


def test_wrong_arguments_are_named(nodes: Nodes, config: Path, tmp_path: Path) -> None:
    for options, message in (
        ({"makers": (3, 1)}, "expected min <= max"),
        ({"makers": 3}, r"expected \(min, max\)"),
        ({"trainers": "nothing"}, "no node has this resource"),
        ({"trainers": ["abc"]}, "no node has the id 'abc'"),
        ({"threads": 0}, "threads=0"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            headrace.ray.start(config, **options)
    bad = tmp_path / "bad.yaml"
    bad.write_text("streams: {train: {batch: 3}}")
    with pytest.raises(ConfigInvalid, match="bad.yaml"):
        headrace.ray.start(bad, trainers="trainer")


def test_import_headrace_does_not_import_ray() -> None:
    asked = "import sys, headrace; print([name for name in sys.modules if name.split('.')[0] == 'ray'])"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=60).stdout.strip() == "[]"
