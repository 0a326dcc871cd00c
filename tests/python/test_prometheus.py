"""A real Prometheus over a real server: the scrape config works, and every dashboard panel shows something."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
import metrics_reference
import pytest
from conftest import ServerFactory
from images import write_images
from prometheus import Prometheus
from running import ROOT, Server, wait_until

DASHBOARD = ROOT / "configs/grafana/dashboards/headrace.json"


def expressions() -> list[tuple[str, str]]:
    """(panel title, PromQL) of every target of the dashboard."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", [])]


@pytest.fixture
def training(start_server: ServerFactory, basic_config: dict[str, Any], tmp_path: Path) -> Iterator[Server]:
    """A server with a stream over a folder that has a bad file in it, read ahead and kept on disk, and a client that keeps reading.
    Another stream, which no client reads, caches that folder's files in memory, where idle workers could tile them."""
    folder = write_images(tmp_path / "images", classes=2, per_class=40)
    (folder / "class_0" / "bad.jpg").write_bytes(b"this is no image")
    cache = {"path": str(tmp_path / "cache"), "size": "10MB"}
    basic_config["sources"]["images"] |= {"path": str(folder), "io": {"threads": 4, "disk_cache": cache}}
    basic_config["sources"]["kept"] = {"type": "image_folder", "path": str(folder), "cache": {"encoded": "10MB"}}
    basic_config["streams"]["kept"] = {**basic_config["streams"]["train"], "source": "kept"}
    server = start_server(basic_config)
    stop = threading.Event()

    def train() -> None:
        loader = headrace.Loader(server.address, stream="train")
        while not stop.is_set():
            for _ in loader:
                if stop.wait(0.01):
                    break

    thread = threading.Thread(target=train)
    thread.start()
    yield server
    stop.set()
    thread.join()


def test_every_dashboard_query_returns_data(training: Server, tmp_path: Path) -> None:
    prometheus = Prometheus([training], tmp_path / "prometheus")
    try:
        wait_until(lambda: prometheus.scrapes() > 6, "seven scrapes", 60)
        assert expressions()
        for title, expression in expressions():
            concrete = expression.replace("$__rate_interval", "10s").replace("$stream", ".*")
            # What sharing costs is counted every 30 s.
            result = wait_until(
                lambda query=concrete: prometheus.query(query), f"panel '{title}': {concrete}", 60
            )
            values = [float(row["value"][1]) for row in result]
            assert any(math.isfinite(value) for value in values), (
                f"panel '{title}': {concrete} gives {values}"
            )
        bad = 'sum(headrace_sample_errors_total{reason!=""})'
        assert float(prometheus.query(bad)[0]["value"][1]) > 0, "the bad file must have been counted"
    finally:
        prometheus.stop()


def test_promtool_accepts_the_live_metrics(training: Server) -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=training.metrics(), capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert not checked.stderr, checked.stderr


def test_promtool_accepts_the_configuration_and_its_rules() -> None:
    subprocess.run(["promtool", "check", "config", str(ROOT / "configs/prometheus/prometheus.yml")], check=True)


def test_the_dashboard_is_what_its_script_makes(tmp_path: Path) -> None:
    made = tmp_path / "made.json"
    subprocess.run([sys.executable, str(ROOT / "configs/grafana/dashboard.py"), str(made)], check=True)
    assert made.read_text() == DASHBOARD.read_text(), "run configs/grafana/dashboard.py"


def test_the_metrics_page_matches_the_server(training: Server) -> None:
    wait_until(lambda: "headrace_client_wait_seconds_total{" in training.metrics(), "the client's metrics")
    page = metrics_reference.page(training.metrics())
    if page != metrics_reference.PAGE.read_text():
        if "HEADRACE_REGENERATE" in os.environ:
            metrics_reference.PAGE.write_text(page)
        raise AssertionError("configs/metrics.md does not match the server's metrics and the alert rules: run this test with HEADRACE_REGENERATE=1, which rewrites it; then review and commit it")


def test_dashboard_names_only_metrics_that_the_server_has(training: Server) -> None:
    exposed = set(re.findall(r"^# TYPE (\S+)", training.metrics(), re.MULTILINE))
    used = {
        re.sub(r"_(bucket|sum|count)$", "", name) if name not in exposed else name
        for _, expression in expressions()
        for name in re.findall(r"headrace_\w+", expression)
    }
    assert used <= exposed, used - exposed


def test_the_dashboard_shows_every_cache_and_what_storage_costs() -> None:
    shown = " ".join(expression for _, expression in expressions())
    for name in ("cache_hits_total", "cache_misses_total", "cache_bytes", "cache_budget_bytes", "read_ahead_samples_total",
                 "io_read_seconds_total", "io_reads_total", "cache_tiled_images", "cache_tiling_seconds_total"):  # fmt: skip
        assert f"headrace_{name}" in shown


def test_dashboard_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"'{panel['title']}' lies over '{taken.get((x, y))}'"
                taken[x, y] = panel["title"]
