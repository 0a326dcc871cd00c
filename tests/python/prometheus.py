"""A real Prometheus that scrapes servers of a test, with the project's configuration, shortened to seconds."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
from pathlib import Path
from typing import Any

import yaml
from running import ROOT, Process, Server, free_port, http_get

FOLDER = ROOT / "configs/prometheus"


def accelerated(rules: str) -> str:
    """The rules with windows of 10 s, alerts that fire after 2 s, and a lag limit of 1 s."""
    rules = re.sub(r"\[\d+m\]", "[10s]", rules)
    rules = re.sub(r"for: \d+m", "for: 2s", rules)
    assert "headrace_client_lag_seconds > 60" in rules
    return rules.replace("headrace_client_lag_seconds > 60", "headrace_client_lag_seconds > 1")


class Prometheus(Process):
    def __init__(self, servers: list[Server], folder: Path) -> None:
        folder.mkdir()
        config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
        (job,) = config["scrape_configs"]
        job["static_configs"][0]["targets"] = [server.metrics_url.removeprefix("http://") for server in servers]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        for rules in config["rule_files"]:
            (folder / rules).write_text(accelerated((FOLDER / rules).read_text()))
        self.url = f"http://127.0.0.1:{free_port()}"
        super().__init__(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            folder / "prometheus.log",
        )

    def _get(self, path: str) -> dict[str, Any]:
        """The data of an API reply; empty while Prometheus starts."""
        self.check_alive()
        try:
            reply = json.loads(http_get(f"{self.url}/api/v1/{path}"))
        except ConnectionError:
            return {}
        except urllib.error.HTTPError as refused:
            if refused.code == 503:  # still starting
                return {}
            raise AssertionError(f"{path}: {refused.read().decode()}") from None
        except urllib.error.URLError:
            return {}
        data: dict[str, Any] = reply["data"]
        return data

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get(f"query?query={urllib.parse.quote(expression)}").get("result", [])
        return found

    def scrapes(self) -> int:
        """Of the server that was scraped least, in the last minute."""
        counts = self.query("min(count_over_time(up[1m]))")
        return int(counts[0]["value"][1]) if counts else 0

    def firing(self) -> dict[tuple[str, str, str], dict[str, str]]:
        """The annotations of the alerts that fire, by the alert's name, the server's address and the stream."""
        alerts = self._get("alerts").get("alerts", [])
        return {
            (labels["alertname"], labels["instance"], labels.get("stream", labels.get("streams", ""))): alert["annotations"]
            for alert in alerts
            if (labels := alert["labels"]) and alert["state"] == "firing"
        }
