"""The checker and the plan of a chaos run: what a broken server or consumer would do is found and named."""

from __future__ import annotations

from pathlib import Path

import faults
import pytest
from checker import Verdict, check
from endings import unexplained, unexplained_checkpoints
from events import Event
from journal import Journal, complete_lines, last_epoch, read
from recovery import recoveries

EPOCHS, SAMPLES, BATCH = 2, 6, 2


def expected(epoch: int) -> list[str]:
    """Another order in each epoch."""
    return [f"{(position + epoch) % SAMPLES}={epoch:x}{position:x}" for position in range(SAMPLES)]


def line(epoch: int, number: int) -> str:
    return f"batch 1.0 {epoch} {number} {' '.join(expected(epoch)[BATCH * number : BATCH * (number + 1)])}"


WHOLE = [line(epoch, number) for epoch in range(EPOCHS) for number in range(SAMPLES // BATCH)]


def journal(*lines: str) -> Journal:
    out = Journal()
    for each in lines:
        out.add(each)
    return out


def verdict(*lines: str, in_order: bool = True) -> Verdict:
    return check("job", [([journal(*lines)], None)], expected, EPOCHS, in_order)


def test_what_an_undisturbed_run_gives_is_right() -> None:
    found = verdict("start 0 0", *WHOLE)
    assert found.good and found.rows == EPOCHS * SAMPLES and found.batches == len(WHOLE)


def test_batches_behind_the_checkpoint_count_once_if_they_come_again() -> None:
    found = journal("start 0 0", *WHOLE[:3], "save 1 1", "start 2 1", *WHOLE[1:])
    assert check("job", [([found], None)], expected, EPOCHS, True).good
    assert len(found.undone) == 2


def test_a_consumer_that_skips_its_rollback_is_found() -> None:
    found = verdict("start 0 0", *WHOLE[:3], "save 1 1", "start 2 3", *WHOLE[1:])
    assert not found.lost and not found.wrong and len(found.duplicated) == 4
    assert found.duplicated[0] == "epoch 0, position 2, sample 2: 2 times"


def test_a_checkpoint_ahead_of_what_the_loop_received_is_found() -> None:
    found = verdict("start 0 0", *WHOLE[:3], "save 1 3", "start 2 3", *WHOLE[4:])
    assert found.lost == ["epoch 1, position 0, sample 1", "epoch 1, position 1, sample 2"]
    assert not found.duplicated and not found.wrong


def test_wrong_bytes_are_found_and_placed() -> None:
    found = verdict("start 0 0", *WHOLE[:-1], WHOLE[-1].replace("=15", "=ff"))
    assert found.wrong == ["epoch 1, position 5, sample 0: ff in place of 15"]


def test_wrong_bytes_are_found_although_the_batch_was_rolled_back() -> None:
    spoiled = WHOLE[1].replace("=02", "=ff")
    killed = verdict("start 0 0", WHOLE[0], spoiled, "save 1 1", "start 2 1", *WHOLE[1:])
    assert killed.wrong == ["epoch 0, rolled back: 2=ff"] and killed.rolled_back == BATCH and not killed.lost
    first, second = journal("start 0 0", WHOLE[0], spoiled), journal("start 5 0", *WHOLE[1:])
    restarted = check("job", [([first], (0, 1)), ([second], None)], expected, EPOCHS, True)
    assert restarted.wrong == ["epoch 0, rolled back: 2=ff"] and not restarted.duplicated


def test_a_checkpoint_that_no_fault_prevented_is_found() -> None:
    events = [Event(10.0, "checkpoint_full", "checkpoints", "2.00 s")]
    assert unexplained_checkpoints(events, [9.9, 10.5, 12.1]) == []
    assert unexplained_checkpoints(events, [5.0, 10.5, 60.0, 61.0]) == [
        "3 checkpoints could not be written although no fault had filled the disk, the first after -5.0 s"
    ]


def test_another_order_is_wrong_unless_ranks_divide_the_epoch() -> None:
    turned = [WHOLE[1], WHOLE[0], *WHOLE[2:]]
    assert verdict("start 0 0", *turned).wrong == ["epoch 0: another order from position 0"]
    assert verdict("start 0 0", *turned, in_order=False).good


def test_samples_of_another_epoch_are_wrong() -> None:
    found = verdict("start 0 0", *WHOLE, line(0, 0).replace("batch 1.0 0", "batch 1.0 2"))
    assert found.wrong == ["epoch 2: 2 rows behind the last epoch"]
    assert "job: 2 epochs, 7 batches, 0 rows lost, 0 duplicated, 1 wrong" in str(found)


def test_a_generation_counts_up_to_the_beginning_of_the_next_one() -> None:
    first = [journal("start 0 0", *WHOLE[:4]), journal("start 0 0", *WHOLE[2:2])]
    second = [journal("start 5 0", *WHOLE[2:])]
    assert check("job", [(first, (0, 2)), (second, None)], expected, EPOCHS, False).good
    assert len(check("job", [(first, (0, 3)), (second, None)], expected, EPOCHS, False).duplicated) == 2


def test_a_line_that_a_killed_process_left_half_written_does_not_count() -> None:
    text = f"\nstart 0 0\n{WHOLE[0]}\n{WHOLE[1][:-3]}\nstart 1 1\n{WHOLE[1]}\n{WHOLE[2][:9]}"
    assert list(complete_lines(text)) == ["start 0 0", WHOLE[0], "start 1 1", WHOLE[1]]


def test_a_checkpoint_without_its_batches_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal.txt").write_text(f"\nstart 0 0\n{WHOLE[0]}\n\nstart 1 2\n\n")
    with pytest.raises(ValueError, match="covers 2 batches, and the journal has 1"):
        read(tmp_path / "journal.txt")


def test_a_plan_depends_on_its_seed_alone() -> None:
    weights = faults.SERVER | faults.OTHERS
    assert faults.plan(7, 60, weights) == faults.plan(7, 60, weights) != faults.plan(8, 60, weights)
    assert {fault.kind for fault in faults.plan(7, 600, weights)} == set(weights)
    assert all(0 <= fault.at < 60 for fault in faults.plan(7, 60, weights))


def test_an_end_of_the_server_without_a_fault_is_found() -> None:
    events = [
        Event(1.0, "kill_server", "server", ""), Event(1.01, "ended", "server", "-9"), Event(2.0, "ended", "server", "-9"),
        Event(3.0, "end_server", "server", ""), Event(3.2, "ended", "server", "3"), Event(4.0, "ended", "server", "3"),
        Event(5.0, "ended", "server", "-11"), Event(6.0, "calm", "", ""), Event(6.1, "ended", "server", "0"),
    ]  # fmt: skip
    assert [line.partition(",")[0] for line in unexplained(events)] == [
        "the server ended with status -9 after 1.0 s", "the server ended with status 3 after 3.0 s", "the server ended with status -11 after 4.0 s"
    ]  # fmt: skip


def test_a_recovery_counts_only_if_nothing_else_happened_to_the_consumer() -> None:
    events = [
        Event(10.0, "kill_server", "server", ""), Event(10.4, "ready", "server", "5"), Event(10.5, "opened", "5", "0.3"),
        Event(20.5, "stop_client", "b", "0.90 s"), Event(21.0, "kill_server", "server", ""), Event(21.5, "ready", "server", "6"),
        Event(21.6, "opened", "6", "0.1"), Event(30.0, "kill_server", "server", "none was running"),
    ]  # fmt: skip
    starts = {"a": [1.0], "b": [1.0], "c": [1.0, 10.2], "d": [1.0, 20.9]}
    arrivals = {"a": [9.9, 10.1, 10.5, 21.6], "b": [9.0, 10.7, 21.9], "c": [9.0, 10.8, 21.7], "d": [9.0, 10.9, 22.0]}
    found = recoveries(events, starts, arrivals)
    assert [(each.consumer, each.killed, each.batch, each.opening) for each in found] == [
        ("a", 10.0, 10.5, 0.3), ("a", 21.0, 21.6, 0.1), ("b", 10.0, 10.7, 0.3), ("c", 21.0, 21.7, 0.1), ("d", 10.0, 10.9, 0.3)
    ]  # fmt: skip


def test_the_last_epoch_is_found_at_the_end_of_a_journal(tmp_path: Path) -> None:
    (tmp_path / "journal.txt").write_text("\nstart 0 0\n" + f"{WHOLE[0]}\n" * 3000 + f"{WHOLE[-1]}\n\nstart 1 1\n\nbatch 2.0 9")
    assert last_epoch(tmp_path / "journal.txt") == 1
    assert last_epoch(tmp_path / "none.txt") == 0
