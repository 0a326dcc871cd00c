"""The tables of a chaos run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from checker import Verdict
from events import AGAIN, MISSED, Event
from recovery import Recovery, percentile

MEANINGS = {
    "kill_server": "`kill -9` of the server",
    "kill_server_twice": "`kill -9` of the server, and again while it starts",
    "kill_all": "`kill -9` of the server and all clients",
    "end_server": "SIGTERM of the server",
    "stop_server": "SIGSTOP of the server, up to 2.5 s",
    "kill_client": "`kill -9` of a client",
    "stop_client": "SIGSTOP of a client, up to 3 s",
    "resize": "restart of a job at a random world size",
    "attach_storm": "three threads attach and detach without a pause, 1 to 2 s",
    "hostile_bytes": "random bytes and truncated messages to the control and attach sockets, 1 to 2 s",
    "log_unread": "nobody reads the server's log pipe, 1 to 5 s",
    "web_down": "the web server resets connections, up to 2 s",
    "disk_full": "the disk of caches is full, 1 to 3 s",
    "checkpoint_full": "the disk of checkpoints is full, 1 to 3 s",
    "memory": "processes in the server's control group use up its memory limit, one after the other, 1 to 3 s",
    "clock_step": "the clock is set forward or back by up to a day",
}


@dataclass
class Outcome:
    seed: int
    seconds: float
    events: Sequence[Event] = ()
    not_done: dict[str, str] = field(default_factory=dict)  # kind -> why
    verdicts: list[Verdict] = field(default_factory=list)
    received: int = 0
    rolled_back: int = 0
    recoveries: list[Recovery] = field(default_factory=list)
    longest_pause: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)
    responses: Counter[str] = field(default_factory=Counter)  # of the web server
    leftovers: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.leftovers and not self.problems and bool(self.verdicts) and all(verdict.good for verdict in self.verdicts)


def faults_table(outcome: Outcome) -> list[str]:
    done = Counter(event.kind for event in outcome.events if event.kind in MEANINGS and event.target != "clients" and event.detail not in (MISSED, AGAIN))
    lines = ["| fault | times |", "|---|---:|"]
    lines += [f"| {meaning} | {done[kind] if kind not in outcome.not_done else '0: ' + outcome.not_done[kind]} |" for kind, meaning in MEANINGS.items()]
    web = outcome.responses
    return [*lines, f"| responses of the web server delayed, 503, reset, cut | {web['delayed']}, {web['busy']}, {web['reset']}, {web['cut']} of {web.total()} |"]


def results_table(outcome: Outcome) -> list[str]:
    lost, duplicated, wrong = (sum(len(getattr(verdict, name)) for verdict in outcome.verdicts) for name in ("lost", "duplicated", "wrong"))
    lines = [
        "| result | |",
        "|---|---:|",
        f"| seed; seconds with faults | {outcome.seed}; {outcome.seconds:.0f} |",
        f"| batches received | {outcome.received:,} |",
        f"| of them rolled back to a checkpoint, and received again | {outcome.rolled_back:,} |",
        f"| rows compared with the undisturbed run | {sum(verdict.rows for verdict in outcome.verdicts):,} |",
        f"| rows of batches that were rolled back, compared as well | {sum(verdict.rolled_back for verdict in outcome.verdicts):,} |",
        f"| rows lost, duplicated, wrong | {lost}, {duplicated}, {wrong} |",
    ]
    if times := [each.batch - each.killed for each in outcome.recoveries]:
        starts = [ready - killed for killed, ready in {(each.killed, each.ready) for each in outcome.recoveries}]
        lines.append(f"| kill of the server to a trainer's next batch, p50, p99, max of {len(times)} | {show(times)} |")
        lines.append(f"| kill of the server until the next one is ready, p50, p99, max of {len(starts)} | {show(starts)} |")
        for name, web in (("a trainer of `web`", True), ("a trainer of another stream", False)):
            if after := [each.batch - each.killed - each.opening for each in outcome.recoveries if each.consumer.startswith("web") == web]:
                lines.append(f"| kill of the server to the next batch of {name}, minus the time to open the sources, p50, p99, max of {len(after)} | {show(after)} |")
    lines.append(f"| longest time between two batches of a trainer | {outcome.longest_pause:.2f} s |")
    lines.append(f"| checkpoints that a full disk prevented | {outcome.errors['CHECKPOINT']:,} |")
    errors = ", ".join(f"{n} {code}" for code, n in outcome.errors.most_common() if code != "CHECKPOINT")
    lines.append(f"| errors that trainers met and survived | {errors or 'none'} |")
    lines.append(f"| left behind | {len(outcome.leftovers) or 'nothing'} |")
    return lines


def show(times: Sequence[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in (percentile(times, 0.5), percentile(times, 0.99), max(times))) + " s"


def text(outcome: Outcome, replay: str) -> str:
    lines = [*faults_table(outcome), "", *results_table(outcome), ""]
    if not outcome.good:
        lines += ["FAILED", *(f"problem: {each}" for each in outcome.problems), *(f"left behind: {each}" for each in outcome.leftovers)]
        lines += [str(verdict) for verdict in outcome.verdicts if not verdict.good]
        lines += ["", f"The same faults at the same times: {replay}"]
    return "\n".join(lines)
