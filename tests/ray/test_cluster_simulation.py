"""The bridges' decisions in a simulated cluster. Virtual time: the machine's speed does not matter."""

from __future__ import annotations

import pytest

pytest.importorskip("ray")

import cluster_simulation
from cluster_simulation import Cluster, Costs


@pytest.fixture(autouse=True)
def package_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Hiring", "Inbox", "Member", "Demand", "time"):  # which a simulation replaces
        monkeypatch.setattr(cluster_simulation._makers, name, getattr(cluster_simulation._makers, name))


def test_trainer_nodes_receive_rows_at_nine_tenths_of_their_networks_speed() -> None:
    found = cluster_simulation.at_the_limit(Cluster(trainers=2, decoders=8), Costs(), seconds=5)
    assert 0.9 < found["of_limit"] <= 1.1  # rows that are made on the trainer nodes need no network


@pytest.mark.parametrize("rate", [2800, 7000])
def test_gpus_wait_at_most_five_seconds_after_a_quarter_of_the_decode_nodes_is_lost(rate: float) -> None:
    found = cluster_simulation.after_a_loss(Cluster(trainers=2, decoders=8, gpu_rows_s=rate, local_threads=1), Costs(), 0.25, seconds=40, warm_up=15)
    assert found["longest_wait_s"] <= 5
    assert found["waits"][-10:] == [0] * 10, "they have recovered"


def test_a_lost_message_keeps_its_maker_for_half_a_minute_and_not_for_ever() -> None:
    simulation = cluster_simulation.Simulation(Cluster(trainers=1, decoders=4), Costs())
    simulation.rates(10)
    simulation.messages_to_lose = 5
    simulation.rates(25)
    makers = simulation.servers[0].makers
    given = [at for member in makers._members for at in member.busy.values()]
    assert sum(at < 11 for at in given) == 5
    simulation.rates(10)
    given = [at for member in makers._members for at in member.busy.values()]
    assert simulation.clock.now - min(given) < 2
    assert makers.stats()["excluded"] == {}
    assert makers.stats()["made"] > 1000


@pytest.mark.parametrize("parts", [[], [memoryview(b"")]])
def test_a_message_with_too_few_parts_counts_as_wrong_rows(parts: list[memoryview]) -> None:
    simulation = cluster_simulation.Simulation(Cluster(trainers=1, decoders=4), Costs())
    simulation.rates(10)
    (server,) = simulation.servers
    wrong = server.makers._members[0]
    server.inbox.on_rows(next(iter(wrong.busy)), parts)
    assert min(simulation.rates(10)) > 0
    why = server.makers.stats()["excluded"][wrong.node]
    assert "its rows were wrong" in why and f"found {len(parts)} parts" in why
    assert wrong.node not in {member.node for member in server.makers._members}


def test_no_other_failure_shortens_an_exclusion_for_ever() -> None:
    simulation = cluster_simulation.Simulation(Cluster(trainers=1, decoders=4), Costs())
    simulation.rates(10)
    makers = simulation.servers[0].makers
    wrong = makers._members[0]
    makers.refuse(wrong.name, "its rows were wrong: other values")
    makers._exclude(wrong.node, wrong.name, "it cannot open the data", 120)  # as for a maker that was starting there
    simulation.rates(130)
    assert makers.stats()["excluded"] == {wrong.node: "its rows were wrong: other values"}


def test_a_trainer_node_gets_more_makers_while_its_gpus_wait() -> None:
    cluster = Cluster(trainers=2, decoders=8, makers=(1, 16), gpu_rows_s=4000, local_threads=1)
    simulation = cluster_simulation.Simulation(cluster, Costs())
    rates = simulation.rates(50)
    assert rates[8] < 0.5 * 2 * 8 * 4000, "one maker is too few"
    assert min(rates[-10:]) > 0.97 * 2 * 8 * 4000
    assert all(server.makers.stats()["wanted"] < 16 for server in simulation.servers), "and not more than they need"
