"""The death of Ray's head and of drivers: trainers go on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from conftest import Consumers, Nodes, wait_until


class Driver:
    """driver.py on a cluster. Ray ends it some time after the head."""

    def __init__(self, nodes: Nodes, config: Path) -> None:
        command = [sys.executable, str(Path(__file__).with_name("driver.py")), nodes.cluster.address, str(config)]
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = self._answer("address")

    def _answer(self, word: str) -> str:
        assert self.popen.stdout is not None
        while line := self.popen.stdout.readline():
            if line.startswith(word):
                return line.removeprefix(word).strip()
        raise AssertionError("the driver ended")

    def ask(self, word: str, answer: str) -> str:
        assert self.popen.stdin is not None
        self.popen.stdin.write(word + "\n")
        self.popen.stdin.flush()
        return self._answer(answer)

    def wait_for_rows(self) -> None:
        before = int(self.ask("made", "made"))
        wait_until(lambda: int(self.ask("made", "made")) > before, "rows")

    def end(self) -> None:
        self.popen.communicate("end\n", timeout=60)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.communicate()


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    started: list[Driver] = []
    yield started
    for driver in started:
        driver.kill()


def started(drivers: list[Driver], nodes: Nodes, config: Path) -> Driver:
    drivers.append(Driver(nodes, config))
    return drivers[-1]


def gone(address: str) -> bool:
    """Nothing is left of a server and its keeper."""
    folder = Path(address).parent
    return not folder.exists() and not any(folder.name in " ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"]))


def check(driver: Driver, consumers: Consumers) -> None:
    """Makers work, all epochs are right, and stop() leaves nothing."""
    driver.wait_for_rows()
    consumers.check()
    driver.ask("stop", "stopped")
    wait_until(lambda: gone(driver.address), "the end of the server")


def test_the_head_dies_and_the_next_cluster_takes_the_server_over(
    bare_nodes: Nodes, drivers: list[Driver], config: Path, alone: str
) -> None:
    bare_nodes.add()
    driver = started(drivers, bare_nodes, config)
    consumers = Consumers(driver.address, alone)
    driver.wait_for_rows()
    bare_nodes.cluster.head_node.kill_gcs_server(check_alive=False)
    raylet = bare_nodes.trainer.all_processes["raylet"][0].process
    wait_until(lambda: raylet.poll() is not None, "the end of the trainer's raylet")
    consumers.more_epochs(2)  # the server makes all rows
    log = (Path(driver.address).parent / "keeper.log").read_text()
    assert "the server's owner ended" in log and "goes on for its trainers" in log
    with Nodes() as after:
        after.add()
        again = started(drivers, after, config)
        assert again.address == driver.address
        check(again, consumers)


def test_the_head_returns_with_its_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, drivers: list[Driver], config: Path, alone: str
) -> None:
    monkeypatch.setenv("RAY_gcs_storage", "rocksdb")
    monkeypatch.setenv("RAY_gcs_storage_path", str(tmp_path / "head"))
    with Nodes() as nodes:
        nodes.add()
        driver = started(drivers, nodes, config)
        consumers = Consumers(driver.address, alone)
        driver.wait_for_rows()
        nodes.cluster.head_node.kill_gcs_server(check_alive=False)
        driver.wait_for_rows()  # also without the head
        nodes.cluster.head_node.start_gcs_server()
        check(driver, consumers)


@pytest.mark.parametrize("how", ["end", "kill"])
def test_a_driver_that_does_not_stop_its_servers_leaves_nothing(
    bare_nodes: Nodes, drivers: list[Driver], config: Path, alone: str, how: str
) -> None:
    bare_nodes.add()
    driver = started(drivers, bare_nodes, config)
    consumers = Consumers(driver.address, alone)
    driver.wait_for_rows()
    getattr(driver, how)()
    consumers.more_epochs(1)
    assert os.path.exists(driver.address)
    consumers.check()
    wait_until(lambda: gone(driver.address), "the end of the server")
    wait_until(lambda: not bare_nodes.processes("MakerActor"), "the end of the makers")
