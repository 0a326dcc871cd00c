"""CPU time of a trainer's node per row that other processes decode, relative to decoding it there, and beside tf.data service.

    .cache/ray/bin/python tests/bench/remote.py DIR --tensorflow .cache/tf/bin/python

DIR is a folder per class of JPEGs. All processes run on this machine; only those of a trainer's node are counted. The systems run in turn, in
rounds. Each has one trainer, which sleeps after each batch so that it reads `--rate` rows per second. Makers and workers must be faster. Before
each measurement the trainer pauses, and the CPU time that the processes need meanwhile is subtracted: Ray's depends on time, not on rows.
Without `--tensorflow` or Ray, their rows are missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
import time
from dataclasses import dataclass, field

from remote_sides import Side, Sides, cpu_of

COLUMNS = ("server", "bridge", "Ray", "client")
WARM = 4  # batches before each measurement
IDLE_SECONDS = 2.0  # for each measurement


@dataclass
class Round:
    us: dict[str, float]  # CPU time that a row adds, by column
    idle: dict[str, float]  # CPU ms per s of the same processes while nothing is read
    idle_us: dict[str, float]  # the same per row, at this rate
    elsewhere: float  # the share of the rows that other processes made


class Clock:
    """CPU time of a side's processes since it was made."""

    def __init__(self, side: Side) -> None:
        self._pids = side.pids()
        self._before = self._now()
        self._begun = time.monotonic()

    def _now(self) -> dict[str, float]:
        return {name: cpu_of(each) for name, each in self._pids.items()}

    def read(self) -> tuple[dict[str, float], float]:
        """CPU seconds by column, and wall seconds."""
        wall = time.monotonic() - self._begun
        return {name: cpu - self._before[name] for name, cpu in self._now().items()}, wall


@dataclass
class Measured:
    side: Side
    rounds: list[Round] = field(default_factory=list)

    def measure(self, seconds: float, rate: float) -> Round:
        side, step = self.side, self.side.batch / rate
        clock = Clock(side)
        time.sleep(IDLE_SECONDS)
        cpu, wall = clock.read()
        idle = {name: each / wall for name, each in cpu.items()}
        side.client.ask(batches=WARM, step=step)
        made, clock = side.made(), Clock(side)
        rows = side.client.ask(batches=max(4, round(seconds / step)), step=step)["rows"]
        cpu, wall = clock.read()
        samples, elsewhere = (now - before for now, before in zip(side.made(), made, strict=True))
        idle_us = {name: 1e6 * idle[name] * wall / rows for name in cpu}
        us = {name: 1e6 * each / rows - idle_us[name] for name, each in cpu.items()}
        self.rounds.append(Round(us, {name: 1e3 * each for name, each in idle.items()}, idle_us, elsewhere / samples if samples else 1.0))
        return self.rounds[-1]

    def sums(self, *columns: str, idle: bool = False) -> list[float]:
        """CPU us per row of each round, in these columns together."""
        return [sum(each.us.get(name, 0) + (each.idle_us.get(name, 0) if idle else 0) for name in columns) for each in self.rounds]


def started(args: argparse.Namespace, sides: Sides) -> list[Measured]:
    found: list[Side] = []
    ray = None if args.no_ray or importlib.util.find_spec("ray") is None else sides.cluster(args.makers * len(args.batches))
    for batch in args.batches:
        found += [sides.local(batch), sides.bridged(batch, args.makers)]
        if ray is not None:
            found.append(sides.on_ray(ray, batch, args.makers))
        if args.tensorflow:
            found += [sides.tf_service(args.tensorflow, batch, args.makers, compression) for compression in ("AUTO", "none")]
    return [Measured(side) for side in found]


def cells(*values: object) -> str:
    return f"| {' | '.join(map(str, values))} |"


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({', '.join(f'{value:.2f}' for value in values)})"


def report(measured: list[Measured], batch: int) -> None:
    of_batch = {each.side.name: each for each in measured if each.side.batch == batch}
    here = of_batch["decodes here"]
    print(f"\nbatches of {batch}: CPU us that a row adds; in parentheses CPU ms per s while nothing is read; medians\n")
    print(cells("", *COLUMNS, "all", "made elsewhere") + "\n" + cells(*["---"] * (len(COLUMNS) + 3)))
    for name, each in of_batch.items():
        by_column = [
            f"{statistics.median(each.sums(column)):.1f} ({statistics.median(found.idle[column] for found in each.rounds):.1f})"
            if column in each.rounds[0].us else "-" for column in COLUMNS
        ]  # fmt: skip
        elsewhere = f"{100 * statistics.mean(found.elsewhere for found in each.rounds):.1f}%" if each is not here else "-"
        print(cells(name, *by_column, f"{statistics.median(each.sums(*COLUMNS)):.1f}", elsewhere))
    print("\n" + cells("relative", "median (rounds)", "with the idle time") + "\n" + cells("---", "---", "---"))

    def relative(name: str, columns: tuple[str, ...], other: str, of_other: tuple[str, ...], title: str) -> None:
        one, two = of_batch[name], of_batch[other]
        added, all_time = (
            [us / of for us, of in zip(one.sums(*columns, idle=idle), two.sums(*of_other, idle=idle), strict=True)] for idle in (False, True)
        )
        print(cells(title, shown(added), f"{statistics.median(all_time):.2f}"))

    bridges = [name for name in ("bridge alone", "bridge and Ray") if name in of_batch]
    for name in bridges:
        for columns in (("server", "bridge"), ("server", "bridge", "Ray")):
            if columns[-1] in of_batch[name].rounds[0].us:
                relative(name, columns, "decodes here", ("server",), f"{name}: {' + '.join(columns)} / decoding here")
    for theirs in (name for name in of_batch if name.startswith("tf.data")):
        for name in bridges:
            relative(name, COLUMNS, theirs, ("client",), f"{name}, all / {theirs}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images")
    parser.add_argument("--tensorflow", help="a Python with TensorFlow, for tf.data service")
    parser.add_argument("--no-ray", action="store_true")
    parser.add_argument("--batches", type=int, nargs="+", default=[256, 64])
    parser.add_argument("--makers", type=int, default=2, help="processes that decode, for each system")
    parser.add_argument("--rate", type=float, default=400, help="rows per second of a trainer")
    parser.add_argument("--seconds", type=float, default=8, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with Sides(args.images) as sides:
        measured = started(args, sides)
        for number in range(args.rounds):
            for each in measured[number % len(measured) :] + measured[: number % len(measured)]:
                done = each.measure(args.seconds, args.rate)
                said = ", ".join(f"{name} {us:.1f}" for name, us in done.us.items())
                what = f"round {number + 1} of {args.rounds}, batches of {each.side.batch}, {each.side.name}"
                print(f"{what}: {said} us per row; load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        for batch in args.batches:
            report(measured, batch)


if __name__ == "__main__":
    main()
