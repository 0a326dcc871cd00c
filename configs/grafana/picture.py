"""Draws five panels of the dashboard as one SVG, from a running Prometheus (needs matplotlib).

    python configs/grafana/picture.py http://127.0.0.1:9090 configs/grafana/dashboard.svg --minutes 4
"""

from __future__ import annotations

import argparse
import json
import re
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.fonttype"] = "none"  # text, not outlines: a tenth of the size
matplotlib.rcParams["font.size"] = 8
from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

DASHBOARD = Path(__file__).parent / "dashboards/headrace.json"
SHOWN = ("Waiting: trainers or server", "Share of time that a trainer waits for batches", "Share of time that the server waits for trainers",
         "Samples per second", "Busy workers")  # fmt: skip
STEP = 5  # seconds


def series(prometheus: str, target: dict[str, Any], minutes: float) -> dict[str, tuple[list[float], list[float]]]:
    """Times in seconds before now and values, by legend."""
    now = time.time()
    expression = target["expr"].replace("$__rate_interval", "20s").replace("$stream", ".*")
    asked = urllib.parse.urlencode({"query": expression, "start": now - 60 * minutes, "end": now, "step": STEP})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query_range?{asked}", timeout=30) as reply:
        results = json.loads(reply.read())["data"]["result"]
    named = {}
    for result in results:
        legend = re.sub(r"\{\{(\w+)\}\}", lambda label, of=result["metric"]: of.get(label[1], ""), target["legendFormat"])
        named[legend] = ([float(at) - now for at, _ in result["values"]], [float(value) for _, value in result["values"]])
    return named


def draw_states(axes: Axes, panel: dict[str, Any], prometheus: str, minutes: float) -> None:
    states = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    rows = series(prometheus, panel["targets"][0], minutes)
    for row, (times, values) in enumerate(rows.values()):
        for at, value in zip(times, values, strict=True):
            axes.broken_barh([(at, STEP)], (row - 0.4, 0.8), color="tab:" + states[f"{value:g}"]["color"])
    axes.set_yticks(range(len(rows)), list(rows))
    axes.legend([pyplot.Rectangle((0, 0), 1, 1, color="tab:" + state["color"]) for state in states.values()],
                [state["text"] for state in states.values()], ncol=3, loc="lower center", bbox_to_anchor=(0.5, -0.75), frameon=False)  # fmt: skip


def draw_lines(axes: Axes, panel: dict[str, Any], prometheus: str, minutes: float) -> None:
    percent = panel["fieldConfig"]["defaults"].get("unit") == "percentunit"
    for target in panel["targets"]:
        for legend, (times, values) in series(prometheus, target, minutes).items():
            axes.plot(times, [100 * value for value in values] if percent else values, label=legend, linewidth=1)
    axes.set_ylim(bottom=0, top=105 if percent else None)
    if percent:
        axes.set_ylabel("%")
    axes.legend(frameon=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prometheus", metavar="URL")
    parser.add_argument("picture", type=Path)
    parser.add_argument("--minutes", type=float, default=4)
    arguments = parser.parse_args()

    panels: dict[str, dict[str, Any]] = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        if panel["type"] != "stat":  # a stat panel may have the same title as a graph
            panels[panel["title"]] = panel
    figure = pyplot.figure(figsize=(10, 6.5), layout="constrained")
    grid = figure.add_gridspec(3, 2, height_ratios=(0.6, 1, 1))
    places = [grid[0, :], grid[1, 0], grid[1, 1], grid[2, 0], grid[2, 1]]
    for title, place in zip(SHOWN, places, strict=True):
        axes = figure.add_subplot(place)
        axes.set_title(title, loc="left", fontweight="bold")
        axes.set_xlim(-60 * arguments.minutes, 0)
        draw = draw_states if panels[title]["type"] == "state-timeline" else draw_lines
        draw(axes, panels[title], arguments.prometheus, arguments.minutes)
    for axes in figure.axes[-2:]:
        axes.set_xlabel("seconds before now")
    figure.savefig(arguments.picture)


if __name__ == "__main__":
    main()
