"""Compares what consumers received with an undisturbed run: every row of every epoch exactly once, with the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from journal import Journal, Received

MOST_SHOWN = 10
Generation = tuple[Sequence[Journal], tuple[int, int] | None]  # the ranks' journals, and where the next generation began


@dataclass
class Verdict:
    """Of one job. Each difference is "epoch E, position P: sample=hash". `positions` without order are those of the undisturbed run."""

    job: str
    epochs: int = 0
    batches: int = 0  # that count
    rows: int = 0  # of them
    rolled_back: int = 0  # rows of the other batches
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.lost or self.duplicated or self.wrong)

    def __str__(self) -> str:
        lines = [f"{self.job}: {self.epochs} epochs, {self.batches} batches, {len(self.lost)} rows lost, {len(self.duplicated)} duplicated, {len(self.wrong)} wrong"]
        for name in ("lost", "duplicated", "wrong"):
            shown = getattr(self, name)
            lines += [f"  {name}: {each}" for each in shown[:MOST_SHOWN]]
            if len(shown) > MOST_SHOWN:
                lines.append(f"  {name}: and {len(shown) - MOST_SHOWN} more")
        return "\n".join(lines)


def rows_by_epoch(generations: Sequence[Generation], verdict: Verdict) -> dict[int, list[str]]:
    """The rows of a job. A generation counts up to the (epoch, batch) at which the next one began; None: all of it."""
    rows: dict[int, list[str]] = {}
    for journals, until in generations:
        for journal in journals:
            for batch in journal.kept:
                if until is None or (batch.epoch, batch.number) < until:
                    rows.setdefault(batch.epoch, []).extend(batch.rows.split())
                    verdict.batches += 1
    return rows


def compare_rolled_back(generations: Sequence[Generation], expected: Callable[[int], Sequence[str]], verdict: Verdict) -> None:
    """A trainer has trained on these batches, too: their rows are those of the undisturbed run, however often they came."""
    batches: dict[int, list[Received]] = {}
    for journals, until in generations:
        for journal in journals:
            beyond = [batch for batch in journal.kept if until is not None and (batch.epoch, batch.number) >= until]
            for batch in (*journal.undone, *beyond):
                batches.setdefault(batch.epoch, []).append(batch)
    for epoch, of_epoch in sorted(batches.items()):
        right = set(expected(epoch))
        rows = [row for batch in of_epoch for row in batch.rows.split()]
        verdict.rolled_back += len(rows)
        verdict.wrong += [f"epoch {epoch}, rolled back: {row}" for row in rows if row not in right]


def compare(got: Sequence[str], expected: Sequence[str], epoch: int, in_order: bool, verdict: Verdict) -> None:
    """`expected`: the rows of the epoch, by position."""
    if (list(got) if in_order else sorted(got)) == (list(expected) if in_order else sorted(expected)):
        return
    where = {row.partition("=")[0]: position for position, row in enumerate(expected)}
    right = dict(row.split("=") for row in expected)
    received = Counter(row.partition("=")[0] for row in got)

    def at(sample: str) -> str:
        return f"epoch {epoch}, position {where[sample]}, sample {sample}"

    verdict.lost += [at(sample) for sample in right if not received[sample]]
    verdict.duplicated += [f"{at(sample)}: {times} times" for sample, times in received.items() if times > 1 and sample in right]
    for row in got:
        sample, _, value = row.partition("=")
        if sample not in right:
            verdict.wrong.append(f"epoch {epoch}: sample {sample}, which the epoch does not have")
        elif value != right[sample]:
            verdict.wrong.append(f"{at(sample)}: {value} in place of {right[sample]}")
    if in_order and sorted(got) == sorted(expected):
        first = next(position for position, pair in enumerate(zip(got, expected, strict=True)) if pair[0] != pair[1])
        verdict.wrong.append(f"epoch {epoch}: another order from position {first}")


def check(
    name: str,
    generations: Sequence[Generation],
    expected: Callable[[int], Sequence[str]],
    epochs: int,
    in_order: bool,
) -> Verdict:
    """A job that was told to end at epoch `epochs`: all before that one are complete, and nothing is behind them."""
    verdict = Verdict(name, epochs)
    rows = rows_by_epoch(generations, verdict)
    for epoch in range(epochs):
        got = rows.pop(epoch, [])
        verdict.rows += len(got)
        compare(got, expected(epoch), epoch, in_order, verdict)
    verdict.wrong += [f"epoch {epoch}: {len(left)} rows behind the last epoch" for epoch, left in sorted(rows.items())]
    compare_rolled_back(generations, expected, verdict)
    return verdict


def longest_pause(journals: Iterator[Journal]) -> float:
    """Seconds between two batches of one journal."""
    times = [sorted(journal.arrivals) for journal in journals]
    return max((later - sooner for each in times for sooner, later in zip(each, each[1:], strict=False)), default=0.0)
