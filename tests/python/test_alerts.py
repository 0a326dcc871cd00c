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
from conftest import ServerFactory
from images import write_images
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
def test_every_alert_fires_for_its_cause_and_none_for_a_healthy_training(
    start_server: ServerFactory, basic_config: dict[str, Any], tmp_path: Path, trainers: Any
) -> None:
    """Two servers run at once to save time: `healthy` has two trainers in step, `faulty` causes every alert."""
    broken = write_images(tmp_path / "broken", classes=1, per_class=95)
    for number in range(5):
        (broken / "class_0" / f"bad_{number}.jpg").write_bytes(b"this is no image")
    train = basic_config["streams"]["train"]
    healthy = start_server({**basic_config, "streams": {"train": {**train, "sharing": {"wait_for": 2}}}})
    faulty_config = {
        **basic_config,
        "sources": {**basic_config["sources"], "broken": {"type": "image_folder", "path": str(broken)}},
        "streams": {
            # One thread cannot keep up with a trainer that only reads.
            "starved": {**train, "batch_size": 32, "transforms": [{"resize": {"size": [600, 600]}}]},
            # `late` begins far behind `early`, and no rows are kept for it.
            "apart": {**train, "sharing": {"window": "0B"}},
            "bad": {**train, "source": "broken"},
            "strict": {**train, "source": "broken", "on_error": "fail"},
            "stuck": {**train, "sharing": {"on_lag": "wait"}},
            # Another seed: so it does not count the clients of `stuck`.
            "gate": {**train, "seed": 8, "sharing": {"wait_for": 2, "wait_timeout": "10m"}},
        },
    }
    faulty = start_server(faulty_config)
    for name in ("one", "two"):
        trainers(healthy, "train", name, 0.05)
    trainers(faulty, "starved", "hungry", 0)
    trainers(faulty, "apart", "early", 0.02)
    trainers(faulty, "bad", "patient", 0.05)
    trainers(faulty, "strict", "unlucky", 0.05)
    trainers(faulty, "stuck", "asleep", 1000)
    trainers(faulty, "stuck", "alone", 0)
    trainers(faulty, "gate", "first", 0)

    prometheus = Prometheus([healthy, faulty], tmp_path / "prometheus")
    seen: dict[tuple[str, str, str], dict[str, str]] = {}

    def fired(alerts: set[str]) -> bool:
        for alert, told in prometheus.firing().items():
            seen.setdefault(alert, told)
        return alerts <= {name for name, _, _ in seen}

    try:
        wait_until(lambda: headrace.stats(faulty.address)["streams"]["apart"]["clients"], "the early trainer")
        time.sleep(5)
        trainers(faulty, "apart", "late", 0.02)
        wait_until(lambda: fired(ALERTS - {"HeadraceServerDown"}), "all alerts of a running server", 150)
        faulty.kill()
        wait_until(lambda: fired({"HeadraceServerDown"}), "the alert for a server that was killed", 60)
    finally:
        prometheus.stop()
        print("fired:", sorted(seen))
    address = faulty.metrics_url.removeprefix("http://")
    streams = {
        "HeadraceServerDown": "", "HeadraceStreamFailed": "strict", "HeadraceTrainerStarved": "starved", "HeadraceClientLagging": "apart",
        "HeadraceSharingLost": "apart", "HeadraceSampleErrorsHigh": "bad", "HeadraceRingStuck": "stuck",
    }  # fmt: skip
    assert set(streams) == ALERTS
    # `starved` takes the one thread, so other streams may starve as well.
    unexpected = {alert for alert in seen if alert[0] != "HeadraceTrainerStarved"} - {(name, address, of) for name, of in streams.items()}
    assert not unexpected and {instance for _, instance, _ in seen} == {address}
    assert not {stream for name, _, stream in seen if name == "HeadraceTrainerStarved"} & {"stuck", "gate"}
    texts = {name: "{summary}. {description}".format(**seen[name, address, stream]) for name, stream in streams.items()}
    for name, words in {
        "HeadraceServerDown": f"cannot reach the Headrace server {address}",
        "HeadraceStreamFailed": f"Stream `strict` of {address}",
        "HeadraceTrainerStarved": r"Trainer `hungry` of stream `starved` .* \d\S*% of the time.*workers are busy \d\S*% of the time",
        "HeadraceClientLagging": r"Trainer `\w+` of stream `apart` on \S+ is \S*s behind",
        "HeadraceSharingLost": r"\d\S*% of the samples decoded for apart on \S+ had already been decoded",
        "HeadraceSampleErrorsHigh": r"\d\S*% of the samples of stream `bad` on \S+ are bad",
        "HeadraceRingStuck": r"Trainer `alone` has waited .* stream `stuck` on \S+ has granted no batches",
    }.items():
        assert re.search(words, texts[name]), texts[name]
