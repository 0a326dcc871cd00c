"""Why the server of a chaos run ended, and why checkpoints could not be written: each time because of a fault."""

from __future__ import annotations

from collections.abc import Sequence

from events import Event

KILLED = {"kill_server", "kill_server_twice", "kill_all", "memory"}
TOLD = {"end_server", "calm"}  # after the last fault the harness ends it
LATE = 0.2  # seconds after which an event is noted
WRITTEN_LATE = 5.0  # seconds after which a trainer, which may have been stopped, notes that it could not write
AFTER_MEMORY = 6.0  # seconds for which a server may find too little memory to start


def explained(status: int, causes: set[str], short_of_memory: bool) -> bool:
    """`causes`: the faults since its start."""
    match status:
        case -9:
            return bool(causes & KILLED)
        case 0 | -15:  # -15: before it could listen for SIGTERM
            return bool(causes & TOLD)
        case 3:  # it gave up opening a source that did not answer, or the memory of its rings
            return bool(causes & TOLD) or short_of_memory
    return False


def unexplained_checkpoints(events: Sequence[Event], failed: Sequence[float]) -> list[str]:
    """`failed`: when trainers could not write. Else a disk that stays full would roll trainers back to the same checkpoint for ever."""
    full = [(event.time - LATE, event.time + float(event.detail[:-2]) + WRITTEN_LATE) for event in events if event.kind == "checkpoint_full"]
    found = sorted(time for time in failed if not any(begin < time < end for begin, end in full))
    if not found:
        return []
    return [f"{len(found)} checkpoints could not be written although no fault had filled the disk, the first after {found[0] - events[0].time:.1f} s"]


def unexplained(events: Sequence[Event]) -> list[str]:
    found, before = [], float("-inf")
    for event in events:
        if event.kind != "ended":
            continue
        causes = {each.kind for each in events if before < each.time < event.time + LATE}
        short_of_memory = any(each.kind == "memory" and 0 < event.time - each.time < AFTER_MEMORY for each in events)
        if not explained(int(event.detail), causes, short_of_memory):
            found.append(f"the server ended with status {event.detail} after {event.time - events[0].time:.1f} s, without a fault; see server.log")
        before = event.time
    return found
