"""The alert rules: unit tests by promtool, and every alert provoked on a real server that a real Prometheus scrapes."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
import pytest
from children import Child
from conftest import ServerFactory, write_images
from prometheus import FOLDER, Prometheus
from running import ROOT, Server, wait_until

RULES = FOLDER / "headrace.rules.yml"
ALERTS = set(re.findall(r"alert: (\w+)", RULES.read_text()))

# Reads a stream for ever: `pause` seconds for each batch.
TRAINER = """
loader = headrace.Loader(address, stream=sys.argv[2], client=sys.argv[3], batch_timeout=600)
pause = float(sys.argv[4])
while True:
    for batch in loader:
        time.sleep(pause)
"""


@pytest.fixture
def trainers() -> Iterator[Any]:
    with contextlib.ExitStack() as children:

        def start(server: Server, stream: str, name: str, pause: float) -> Child:
            return children.enter_context(Child(TRAINER, server.address, stream, name, str(pause)))

        yield start


def test_promtool_passes_the_unit_tests_of_the_rules() -> None:
    tested = subprocess.run(["promtool", "test", "rules", str(ROOT / "tests/prometheus/rules_test.yml")], capture_output=True, text=True)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    for alert in ALERTS:
        assert f'alertname="{alert}"' in (ROOT / "tests/prometheus/rules_test.yml").read_text()


@pytest.mark.timeout(300)
def test_every_alert_fires_for_its_cause_and_not_for_a_sound_training(
    start_server: ServerFactory, basic_config: dict[str, Any], tmp_path: Path, trainers: Any
) -> None:
    """All on two servers at once, because each alert takes its time: `sound` has two trainers in step, `ill` everything else."""
    broken = write_images(tmp_path / "broken", classes=1, per_class=95)
    for number in range(5):
        (broken / "class_0" / f"bad_{number}.jpg").write_bytes(b"this is no image")
    train = basic_config["streams"]["train"]
    sound = start_server(basic_config)
    ill_config = {
        **basic_config,
        "sources": {**basic_config["sources"], "broken": {"type": "image_folder", "path": str(broken)}},
        "streams": {
            # Enough work for one thread that a trainer without work of its own waits.
            "starved": {**train, "batch_size": 32, "transforms": [{"resize": {"size": [600, 600]}}]},
            # `late` begins where `early` was long ago, and no rows are kept.
            "apart": {**train, "sharing": {"window": "0B"}},
            "bad": {**train, "source": "broken"},
            "strict": {**train, "source": "broken", "on_error": "fail"},
            "stuck": {**train, "sharing": {"wait_for": 2, "wait_timeout": "10m"}},
        },
    }
    ill = start_server(ill_config)
    for name in ("one", "two"):
        trainers(sound, "train", name, 0.05)
    trainers(ill, "starved", "hungry", 0)
    trainers(ill, "apart", "early", 0.02)
    trainers(ill, "bad", "patient", 0.05)
    trainers(ill, "strict", "unlucky", 0.05)
    trainers(ill, "stuck", "alone", 0)

    prometheus = Prometheus([sound, ill], tmp_path / "prometheus")
    seen: dict[tuple[str, str], dict[str, str]] = {}

    def fired(alerts: set[str]) -> bool:
        for alert, texts in prometheus.firing().items():
            seen.setdefault(alert, texts)
        return alerts <= {name for name, _ in seen}

    try:
        wait_until(lambda: headrace.stats(ill.address)["streams"]["apart"]["clients"], "the early trainer")
        time.sleep(5)
        trainers(ill, "apart", "late", 0.02)
        wait_until(lambda: fired(ALERTS - {"HeadraceServerDown"}), "all alerts of a running server", 150)
        ill.kill()
        wait_until(lambda: fired({"HeadraceServerDown"}), "the alert for a server that was killed", 60)
    finally:
        prometheus.stop()
        print("fired:", sorted(seen))
    address = ill.metrics_url.removeprefix("http://")
    assert set(seen) == {(alert, address) for alert in ALERTS}
    told_by = {name: f"{told['summary']}. {told['description']}" for (name, _), told in seen.items()}
    for name, words in {
        "HeadraceTrainerStarved": r"Trainer `\w+` waits for batches \d\S*% of the time.*workers are busy \d\S*% of the time",
        "HeadraceClientLagging": r"Trainer `\w+` of stream `apart` is \S*s behind",
        "HeadraceSharingLost": r"\d\S*% of what apart decode",
        "HeadraceSampleErrorsHigh": r"\d\S*% of the samples of stream `bad` are bad",
        "HeadraceStreamFailed": "Stream `strict`",
        "HeadraceRingStuck": "Trainer `alone` has been waiting.*stream `stuck` delivers nothing",
        "HeadraceServerDown": re.escape(address),
    }.items():
        assert re.search(words, told_by[name]), told_by[name]
