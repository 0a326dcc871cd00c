"""The faults of a chaos run: a list that depends on the seed alone, so that a run can be repeated."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

MEAN_PAUSE = 0.5  # seconds between two faults

# Each kind, and how often it happens relative to the others. README.md says what they do.
SERVER = {"kill_server": 10, "kill_server_twice": 2, "kill_all": 1, "end_server": 2}
OTHERS = {
    "stop_server": 5,
    "kill_client": 24,
    "stop_client": 14,
    "resize": 4,
    "attach_storm": 2,
    "hostile_bytes": 3,
    "log_unread": 2,
    "web_down": 3,
}
MACHINE = {"disk_full": 2, "checkpoint_full": 2, "memory": 2, "clock_step": 3}  # where the machine allows them


@dataclass(frozen=True, slots=True)
class Fault:
    """`target` chooses among the consumers that there are at that moment, `amount` how much or how long; both are in [0, 1)."""

    at: float
    kind: str
    target: float
    amount: float

    def seconds(self, short: float, long: float) -> float:
        """Mostly up to `short`, at times between that and `long`."""
        return self.amount / 0.6 * short if self.amount < 0.6 else short + (self.amount - 0.6) / 0.4 * (long - short)


def plan(seed: int, seconds: float, weights: Mapping[str, int]) -> list[Fault]:
    chance = random.Random(seed)
    kinds, often = list(weights), list(weights.values())
    out: list[Fault] = []
    at = chance.expovariate(1 / MEAN_PAUSE)
    while at < seconds:
        out.append(Fault(round(at, 3), chance.choices(kinds, often)[0], chance.random(), chance.random()))
        at += chance.expovariate(1 / MEAN_PAUSE)
    return out
