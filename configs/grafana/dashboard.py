"""Writes dashboards/headrace.json, the dashboard that Grafana loads. Change this file, then run it; a test compares the two.

    ./run test lint      # sets up .venv, if it is not there
    .venv/bin/python configs/grafana/dashboard.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TypeVar

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard, units

OUTPUT = Path(__file__).parent / "dashboards/headrace.json"
SOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="prometheus")
Panel = TypeVar("Panel", stat.Panel, statetimeline.Panel, timeseries.Panel)
OF_STREAM = 'stream=~"$stream"'

# Waits below this fraction of the time are shown as no wait.
SHORT_WAIT = 0.1


def rate(metric: str, selector: str = OF_STREAM) -> str:
    return f"rate({metric}{{{selector}}}[$__rate_interval])" if selector else f"rate({metric}[$__rate_interval])"


def described(
    panel: Panel, title: str, why: str, queries: dict[str, str], width: int, height: int
) -> Panel:
    panel.title(title).description(why).datasource(SOURCE).span(width).height(height)
    for letter, (legend, expression) in zip("ABC"[: len(queries)], queries.items(), strict=True):
        panel.with_target(prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(letter))
    return panel


def number(title: str, why: str, queries: dict[str, str], unit: str, width: int = 4) -> stat.Panel:
    return (
        described(stat.Panel(), title, why, queries, width, 4)
        .unit(unit)
        .color_mode(common.BigValueColorMode.NONE)
        .graph_mode(common.BigValueGraphMode.AREA)
    )


def lines(title: str, why: str, unit: str, queries: dict[str, str], width: int = 12) -> timeseries.Panel:
    return described(timeseries.Panel(), title, why, queries, width, 7).unit(unit).min(0).fill_opacity(10)


def who_waits() -> statetimeline.Panel:
    """The headline: one row per stream, colored by which side waits for the other."""
    blocked = f"max by (instance, stream) ({rate('headrace_producer_blocked_seconds_total')})"
    waiting = f"max by (instance, stream) ({rate('headrace_client_wait_seconds_total')})"
    names = [
        ("Neither waits long", "blue"),
        ("The server waits for trainers", "green"),
        ("Trainers wait for the server", "red"),
        ("A trainer waits for a slower one", "purple"),
    ]
    options = {str(value): dashboard.ValueMappingResult(text=text, color=color) for value, (text, color) in enumerate(names)}
    return (
        described(
            statetimeline.Panel(),
            "Waiting: trainers or server",
            "Green: the server waits for trainers, as it should: the GPUs are the bottleneck. Red: a trainer waits for batches more "
            f'than {SHORT_WAIT:.0%} of the time; the rows "Stages" and "Storage and caches" show why. Purple: a trainer waits although '
            "the ring is full, so it waits for another trainer; `headrace ls` names it. Blue: neither side waits for more than "
            f"{SHORT_WAIT:.0%} of the time.",
            {"{{stream}} ({{instance}})": f"({blocked} > bool {SHORT_WAIT}) + 2 * ({waiting} > bool {SHORT_WAIT})"},
            24,
            5,
        )
        .mappings([dashboard.ValueMap(options=options)])
        .show_value(common.VisibilityMode.AUTO)
        .merge_values(True)
        .color_scheme(build.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS))
    )


def all_panels() -> dict[str, list[stat.Panel | statetimeline.Panel | timeseries.Panel]]:
    """The panels of each row, by the row's title."""
    samples, shared, cached, granted = (rate(f"headrace_samples_{kind}total") for kind in ("", "shared_", "cached_", "granted_"))
    decoded = f"(sum({samples}) - sum({shared}) - sum({cached}))"
    by_stage = "sum by (stream, stage)"
    hits, misses = (f"sum by (source, kind) ({rate(f'headrace_cache_{what}_total', '')})" for what in ("hits", "misses"))
    reads = "sum by (stream)"
    return {
        "Overview": [
            who_waits(),
            number("Samples per second", "All selected streams together", {"": f"sum({samples})"}, units.Short),
            number("Sharing factor", "Samples granted to trainers for each one that was decoded", {"": f"sum({granted}) / ({decoded} > 0)"}, units.Short),
            number("Trainers", "Attached clients", {"": f"sum(headrace_clients{{{OF_STREAM}}})"}, units.Short),
            number("Epoch", "Epoch of the foremost trainer", {"{{stream}}": f"headrace_epoch{{{OF_STREAM}}}"}, units.Short),
            number("Progress", "How much of its epoch the foremost trainer has read", {"{{stream}}": f"headrace_epoch_progress_ratio{{{OF_STREAM}}}"}, units.PercentUnit),
            number("Failed streams", "Their trainers get no batches: see the server's log", {"": "sum(headrace_stream_failed)"}, units.Short),
        ],
        "Trainers": [
            lines("Share of time that a trainer waits for batches", "High: the server or its storage is slower than the trainer, or the trainer waits for another one", units.PercentUnit,
                  {"{{stream}} {{client}}": rate("headrace_client_wait_seconds_total")}),
            lines("Share of time that the server waits for trainers", "The stream's ring is full", units.PercentUnit,
                  {"{{stream}}": rate("headrace_producer_blocked_seconds_total")}),
            lines("Samples per second and trainer", "What each trainer was granted", units.Short,
                  {"{{stream}} {{client}}": rate("headrace_client_samples_total")}),
            lines("Clients that a stream waits for", "Before it begins (sharing.wait_for)", units.Short,
                  {"{{stream}}": f"headrace_awaited_clients{{{OF_STREAM}}}"}),
            lines("Lag", "Seconds since the foremost trainer of the streams that share rows was at this trainer's position", units.Seconds,
                  {"{{stream}} {{client}}": f"headrace_client_lag_seconds{{{OF_STREAM}}}"}),
            lines("Slots of the ring", "Leased: held by a trainer. Ready: published, but not granted yet", units.Short,
                  {"{{state}}": f"sum by (state) (headrace_ring_slots{{{OF_STREAM}}})"}),
        ],
        "Throughput and sharing": [
            lines("Samples per second", "Granted: all trainers together. Published: each batch once", units.Short,
                  {"{{stream}} published": f"sum by (stream) ({samples})", "{{stream}} granted": f"sum by (stream) ({granted})"}),
            lines("Decoded again", "Fraction of decoded samples that were decoded again because trainers were too far apart", units.PercentUnit,
                  {"{{streams}}": "rate(headrace_sharing_decoded_again_total[5m]) / (rate(headrace_sharing_decoded_total[5m]) > 0)"}),
            lines("Bytes per second", "", units.BytesPerSecondSI,
                  {"{{stream}} read": f"sum by (stream) ({rate('headrace_source_read_bytes_total')})",
                   "{{stream}} published": f"sum by (stream) ({rate('headrace_published_bytes_total')})"}),
            lines("Memory", "Shared memory of the rings, windows of decoded rows, and caches", units.BytesSI,
                  {"rings": f"sum(headrace_ring_bytes{{{OF_STREAM}}})", "window of {{stream}}": f"headrace_window_bytes{{{OF_STREAM}}}",
                   "caches": "sum(headrace_cache_bytes)"}),
        ],
        "Stages": [
            lines("Busy workers", "At 100% all workers are busy, so decoding is the bottleneck", units.PercentUnit,
                  {"{{instance}}": f"{rate('headrace_worker_busy_seconds_total', '')} / headrace_workers"}).max(1),
            lines("Mean time per sample", "In one worker", units.Seconds,
                  {"{{stream}} {{stage}}": f"{by_stage} ({rate('headrace_stage_seconds_sum')}) / {by_stage} ({rate('headrace_stage_seconds_count')})"}),
            lines("99th percentile of the time per sample", "", units.Seconds,
                  {"{{stage}}": f"histogram_quantile(0.99, sum by (stage, le) ({rate('headrace_stage_seconds_bucket')}))"}),
            lines("Bad samples per second", "Other samples replace them", units.Short,
                  {"{{stream}} {{reason}}": f"sum by (stream, reason) ({rate('headrace_sample_errors_total')})"}),
        ],
        "Storage and caches": [
            lines("Mean time per read", "", units.Seconds,
                  {"{{stream}}": f"{reads} ({rate('headrace_io_read_seconds_total')}) / {reads} ({rate('headrace_io_reads_total')})"}),
            lines("Samples that were read ahead", "Wait and miss: storage is slower than the workers", units.Short,
                  {"{{stream}} {{outcome}}": f"sum by (stream, outcome) ({rate('headrace_read_ahead_samples_total')})"}),
            lines("Cache hit ratio", "Fraction of lookups", units.PercentUnit, {"{{source}} {{kind}}": f"{hits} / ({hits} + {misses})"}),
            lines("Cache size", "", units.BytesSI,
                  {"{{source}} {{kind}}": "sum by (source, kind) (headrace_cache_bytes)",
                   "{{source}} {{kind}}: budget": "sum by (source, kind) (headrace_cache_budget_bytes)"}),
            lines("Cached images stored as tiles", "Crops of these images are decoded from fewer bytes", units.Short,
                  {"{{source}}": "sum by (source) (headrace_cache_tiled_images)",
                   "{{source}} not tiled": "sum by (source) (headrace_cache_untiled_images)",
                   "{{source}} waiting": "sum by (source) (headrace_cache_samples_to_tile)"}),
            lines("Workers rewriting JPEGs as tiles", "Only idle workers do this", units.Short,
                  {"{{source}}": f"sum by (source) ({rate('headrace_cache_tiling_seconds_total', '')})"}),
        ],
        "Server": [
            lines("Leases reclaimed from trainers that died", "Their slots can be used again", units.Short,
                  {"{{stream}}": f"sum by (stream) (increase(headrace_leases_reclaimed_total{{{OF_STREAM}}}[$__rate_interval]))"}),
            number("Version", "", {"{{version}}": "headrace_build_info"}, units.Short).text_mode(common.BigValueTextMode.NAME),
        ],
    }  # fmt: skip


def board() -> build.Dashboard:
    stream = (
        build.QueryVariable("stream")
        .label("Stream")
        .datasource(SOURCE)
        .query("label_values(headrace_clients, stream)")
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(dashboard.VariableOption(text="All", value="$__all"))
    )
    made = (
        build.Dashboard("Headrace")
        .uid("headrace")
        .tags(["headrace"])
        .refresh("5s")
        .time("now-15m", "now")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .with_variable(stream)
    )
    panel_id = 0
    for title, panels in all_panels().items():
        made.with_row(build.Row(title))
        for panel in panels:
            panel_id += 1
            made.with_panel(panel.id(panel_id))
    return made


def main() -> None:
    (OUTPUT if len(sys.argv) < 2 else Path(sys.argv[1])).write_text(JSONEncoder(sort_keys=True, indent=2).encode(board().build()) + "\n")


if __name__ == "__main__":
    main()
