"""An elastic restart of Ray Train: a node is lost, and the job continues with fewer workers. The cluster is this test's own."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest
from local_ray import nodes, wait_until
from train_job import SAMPLES, fit, lines_of, trained, write_config


@pytest.mark.timeout(240)
def test_an_elastic_restart_with_fewer_workers_delivers_each_remaining_sample_once(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    with nodes(2, cpus=1) as cluster:
        log = tmp_path / "log"

        def end_a_node() -> None:
            wait_until(lambda: log.exists() and sum(line["number"] == 5 for line in lines_of(log)) == 2, "both workers at batch 5", seconds=120)
            cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=True)

        ending = threading.Thread(target=end_a_node)
        ending.start()
        lines = fit(str(config), tmp_path, (1, 2), "wait", last=5)
        ending.join(60)
    assert {line["world_size"] for line in lines if not line["resumed"]} == {2}
    assert {line["world_size"] for line in lines if line["resumed"]} == {1}
    assert trained(lines) == Counter(range(SAMPLES))
