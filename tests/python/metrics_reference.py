"""The page configs/metrics.md, made from what a server exposes and from the alert rules. test_prometheus.py writes it where it differs."""

from __future__ import annotations

import re

import yaml
from prometheus import FOLDER
from prometheus_client.parser import text_string_to_metric_families
from running import ROOT

PAGE = ROOT / "configs/metrics.md"
RULES = FOLDER / "headrace.rules.yml"
# Labels of the text format itself.
FORMAT = {"le", "quantile"}

INTRO = """# Metrics, alerts and dashboard

A server answers Prometheus at `/metrics` of its HTTP port (`server.metrics`, `http://127.0.0.1:9464` unless configured). This
folder has all that Prometheus and Grafana need; [`docker/compose.yaml`](../docker/compose.yaml) runs them.

| file | content |
|---|---|
| [`prometheus/prometheus.yml`](prometheus/prometheus.yml) | scrape configuration: change `targets` to your servers |
| [`prometheus/headrace.rules.yml`](prometheus/headrace.rules.yml) | recording rules, and the alerts below |
| [`grafana/dashboards/headrace.json`](grafana/dashboards/headrace.json) | the dashboard, made by [`grafana/dashboard.py`](grafana/dashboard.py); import it, or mount `grafana/` as in `compose.yaml` |

**Who waits for whom** is the question that the dashboard answers first. `headrace_client_wait_seconds_total` grows while a trainer
waits in `next()`: the server or its storage is slower. `headrace_producer_blocked_seconds_total` grows while a stream's ring is
full: the trainers are slower, as they should be.

"""


def alerts() -> str:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rows = ["| alert | severity | fires after | condition |", "|---|---|---|---|"]
    for rule in (rule for group in groups for rule in group["rules"] if "alert" in rule):
        condition = " ".join(rule["expr"].split()).replace("|", "\\|")
        rows.append(f"| `{rule['alert']}` | {rule['labels']['severity']} | {rule.get('for', 'at once')} | `{condition}` |")
    return "\n".join(rows)


def metrics(exposition: str) -> str:
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for family in text_string_to_metric_families(exposition):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = sorted({label for sample in family.samples for label in sample.labels} - FORMAT)
        meaning = re.sub(r"\s+", " ", family.documentation).replace("|", "\\|")
        rows.append(f"| `{name}` | {family.type} | {', '.join(f'`{label}`' for label in labels)} | {meaning} |")
    return "\n".join(rows)


def page(exposition: str) -> str:
    return f"{INTRO}## Alerts\n\n{alerts()}\n\n## Metrics\n\n{metrics(exposition)}\n"

