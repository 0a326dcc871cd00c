"""How long after a kill of the server each consumer received its next batch."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from events import MISSED, Event
from faults import MACHINE, OTHERS, SERVER

KILLS = ("kill_server", "kill_server_twice", "kill_all")
FAULTS = {*SERVER, *OTHERS, *MACHINE}


@dataclass(frozen=True, slots=True)
class Recovery:
    consumer: str
    killed: float
    ready: float
    batch: float
    opening: float  # seconds of it for opening the sources


def kills_and_readies(events: Sequence[Event]) -> list[tuple[float, float, float]]:
    """The last kill before each start of the server, when that one was ready, and how long it took to open the sources."""
    opening = {event.target: float(event.detail) for event in events if event.kind == "opened"}
    found, killed = [], None
    for event in events:
        if event.kind in KILLS and event.target == "server" and event.detail != MISSED:
            killed = event.time
        elif event.kind == "ready":
            if killed is not None and event.detail in opening:  # a server that is killed at once may not have logged it
                found.append((killed, event.time, opening[event.detail]))
            killed = None
    return found


def disturbances(events: Sequence[Event], *targets: str) -> list[tuple[float, float]]:
    """When faults on these acted, from and to. Those that last say so: "1.84 s"."""
    return [(event.time, event.time + (float(event.detail[:-2]) if event.detail.endswith(" s") else 0.0)) for event in events if event.target in targets and event.kind in FAULTS]


def recoveries(events: Sequence[Event], starts: Mapping[str, Sequence[float]], arrivals: Mapping[str, Sequence[float]]) -> list[Recovery]:
    """Only of consumers and kills that no other fault met between the kill and the batch. Times are sorted."""
    out = []
    of_server = disturbances(events, "server")
    for consumer, times in arrivals.items():
        own = disturbances(events, consumer, consumer.partition(".")[0], "clients")
        for killed, ready, opening in kills_and_readies(events):
            before, at = bisect.bisect_left(times, killed), bisect.bisect_left(times, ready)
            start = bisect.bisect_left(starts[consumer], killed)
            if before == 0 or at == len(times) or start == 0 or times[before - 1] < starts[consumer][start - 1]:
                continue  # it was not receiving when the server was killed
            end = times[at]
            others = [(begun, ended) for begun, ended in (*of_server, *own) if begun != killed]
            restarted = start < len(starts[consumer]) and starts[consumer][start] < end
            if not restarted and not any(begun < end and ended > killed for begun, ended in others):
                out.append(Recovery(consumer, killed, ready, end, opening))
    return out


def percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
