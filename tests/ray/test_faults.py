"""Whatever happens to nodes and processes, each consumer receives the bytes of one machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from conftest import Nodes, Running, wait_until

Start = Callable[..., Running]


@pytest.fixture
def decode(nodes: Nodes) -> list[Any]:
    return [nodes.add(), nodes.add()]


def test_a_decode_node_dies_in_the_middle_of_a_batch(nodes: Nodes, running: Start) -> None:
    nodes.add()
    slow = nodes.add("slow:0.5")  # always in the middle of one
    run = running()
    run.wait_for_makers(2)
    name = next(each["name"] for each in run.stats()["makers"] if each["node"] == slow.node_id)
    wait_until(lambda: any(each["name"] == name and each["busy"] for each in run.stats()["makers"]), "an order on the slow node")
    nodes.kill(slow)
    run.wait_for_makers(1)
    run.wait_for_rows()
    run.check()


def test_all_decode_nodes_die_and_another_one_comes(nodes: Nodes, decode: list[Any], running: Start) -> None:
    run = running()
    run.wait_for_makers(2)
    run.wait_for_rows()
    for node in decode:
        nodes.kill(node)
    run.wait_for_makers(0)
    run.consumers.more_epochs(2)  # the server makes all rows
    nodes.add()
    run.wait_for_makers(1)
    run.wait_for_rows()
    run.check()


def test_a_maker_dies_and_comes_back(decode: list[Any], running: Start) -> None:
    run = running()
    run.wait_for_makers(2)
    dead = run.stats()["makers"][0]["pid"]
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: run.stats().get("lost_makers") == 1, "the loss of a maker")
    run.wait_for_makers(2)
    assert dead not in [each["pid"] for each in run.stats()["makers"]]
    run.wait_for_rows()
    run.check()


def test_the_bridge_dies(nodes: Nodes, decode: list[Any], running: Start) -> None:
    run = running()
    run.wait_for_rows()
    (dead,) = nodes.processes("BridgeActor")
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: run.stats().get("connected") and run.stats().get("bridge_pid", dead) != dead, "the next bridge")
    run.wait_for_makers(2)
    run.wait_for_rows()
    run.check()


def test_the_server_dies(decode: list[Any], running: Start) -> None:
    run = running()
    run.wait_for_rows()
    os.kill(run.stats()["pid"], signal.SIGKILL)
    wait_until(lambda: run.stats().get("restarts") == 1 and run.stats().get("connected"), "the next server with the bridge")
    run.wait_for_rows()
    run.check()


def test_the_server_s_actor_dies_and_the_server_goes_on(nodes: Nodes, decode: list[Any], running: Start) -> None:
    run = running()
    run.wait_for_rows()
    server = run.stats()["pid"]
    (actor,) = nodes.processes("ServerActor")
    os.kill(actor, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(actor) and "pid" in run.stats(), "the next actor")
    assert run.stats()["pid"] == server
    run.check()


def test_the_server_and_its_keeper_die(decode: list[Any], running: Start) -> None:
    run = running()
    run.wait_for_rows()
    server = run.stats()["pid"]
    keeper = psutil.Process(server).ppid()
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: run.stats().get("pid", server) != server and run.stats().get("connected"), "the next server with the bridge")
    run.wait_for_rows()
    run.check()


def test_a_node_makes_wrong_rows(nodes: Nodes, running: Start) -> None:
    wrong = nodes.add("wrong")
    good = nodes.add()
    run = running()
    why = wait_until(lambda: run.stats()["excluded"].get(wrong.node_id), "the exclusion of the node")
    assert "its rows were wrong" in why
    run.wait_for_rows()
    assert [each["node"] for each in run.stats()["makers"]] == [good.node_id]
    run.check()


def test_a_node_is_slow(nodes: Nodes, running: Start) -> None:
    nodes.add()
    slow = nodes.add("slow:0.6")
    run = running()
    run.wait_for_makers(2)
    run.consumers.more_epochs(3)
    names = {each["node"]: each["name"] for each in run.stats()["makers"]}
    rows = run.stats()["rows"]
    slows = rows.pop(names[slow.node_id], 0)
    assert slows < sum(rows.values())
    run.check()


def test_a_maker_that_hangs_is_dropped(nodes: Nodes, running: Start) -> None:
    hanging = nodes.add("hanging")
    run = running(makers=(1, 1))
    why = wait_until(lambda: run.stats()["excluded"].get(hanging.node_id), "the exclusion of the node")
    assert "a maker there hangs: it has not made an order within" in why
    run.wait_for_makers(0)
    nodes.add()
    run.wait_for_rows()
    run.check()


def test_a_node_whose_orders_always_fail_is_dropped(nodes: Nodes, running: Start) -> None:
    nodes.add()
    run = running(makers=(2, 2))
    run.wait_for_makers(1)
    failing = nodes.add("raising")
    why = wait_until(lambda: run.stats()["excluded"].get(failing.node_id), "the exclusion of the node")
    assert "failed 3 times in a row" in why and "TRANSIENT_IO: disk on fire" in why
    assert run.stats()["failed"] == 0, "the other node has made the orders"
    run.wait_for_rows()
    run.check()


def test_a_node_whose_batches_are_too_large_to_send_is_dropped_with_the_reason(nodes: Nodes, running: Start) -> None:
    huge = nodes.add("huge")
    run = running(makers=(1, 1))
    why = wait_until(lambda: run.stats()["excluded"].get(huge.node_id), "the exclusion of the node")
    assert "has 4294967297 bytes; a maker can send 4294967296: choose a smaller batch_size" in why
    run.check()
