"""`headrace ls --cluster`: what other nodes made for a server."""

from __future__ import annotations

import subprocess
from typing import Any

import headrace
import pytest
from bridging import NODE, Making
from conftest import ServerFactory
from running import Server, headrace_binary, wait_until

ORDER_BYTES = 100  # that bridging.Making says it received for each order


@pytest.fixture
def server(start_server: ServerFactory, quiet_config: dict[str, Any]) -> Server:
    return start_server(quiet_config)


def listed(server: Server, *options: str) -> list[str]:
    command = [headrace_binary(), "ls", "--address", server.address, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()


def bridge(server: Server) -> dict[str, Any]:
    found: dict[str, Any] = headrace.stats(server.address)["bridge"]
    return found


def read_until_made(server: Server, making: Making) -> None:
    """Reads until rows have been made elsewhere, and waits for the end of all orders."""
    with headrace.Loader(server.address, stream="train") as loader:

        def read() -> bool:
            for _ in loader:
                pass
            return bool(bridge(server)["nodes"])

        wait_until(read, "rows made elsewhere")
    wait_until(lambda: len(making.released) == len(making.orders), "the release of each order")


def totals(server: Server, samples: int, connected: bool = True) -> str:
    found = bridge(server)
    said = "" if connected else " (the bridge is not connected)"
    counts = f"orders: 0 open, {found['late']} late, {found['failed']} failed; {found['samples_made_twice']} samples made twice"
    return f"other nodes: 1 made {samples} samples{said}; {counts}"


def test_it_says_that_no_node_makes_rows(server: Server) -> None:
    sentence = "no other node makes rows for this server (headrace.ray.start() places nodes)"
    assert listed(server, "--cluster")[-1] == sentence
    assert listed(server) == listed(server, "--cluster")[:-1]
    with Making(server.address, server.config):
        assert sentence not in listed(server, "--cluster")  # one is connected


def test_it_lists_what_a_node_made_and_what_came_over_the_network(server: Server) -> None:
    with Making(server.address, server.config) as making:
        read_until_made(server, making)
        (node,) = bridge(server)["nodes"]
        samples, received = node["samples"], node["received_bytes"]
        assert 0 < samples <= sum(order.rows for order in making.orders)
        assert received % ORDER_BYTES == 0 and samples <= received // ORDER_BYTES * max(order.rows for order in making.orders)
        shown = f"{received} B" if received < 1000 else f"{received / 1000:.1f} KB"
        assert listed(server, "--cluster")[-2:] == [totals(server, samples), f"  node {NODE}: {samples} samples, {shown} received"]
        assert listed(server)[-1] == totals(server, samples)  # without the nodes
    wait_until(lambda: not bridge(server)["connected"], "the end of the bridge")
    assert listed(server, "--cluster")[-2] == totals(server, samples, connected=False)


def test_it_says_why_a_node_was_refused(server: Server) -> None:
    def wrong(batch: Any) -> list[Any]:
        batch[0][...] ^= 1
        return list(batch)

    with Making(server.address, server.config, how=wrong) as making:
        read_until_made(server, making)
        node, why = wait_until(lambda: making.refused, "the refusal")[0]
        assert node == NODE
        wait_until(lambda: listed(server, "--cluster")[-2] == totals(server, 0), "the end of the last order")
        assert listed(server, "--cluster")[-1] == f"  node {NODE}: 0 samples, 0 B received, refused: {why}"
