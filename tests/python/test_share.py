"""headrace.share(): one DataLoader, several processes; each gets every batch once, in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from headrace.errors import InvalidArgument, StreamFailed
from running import ROOT, wait_until
from shared import BATCHES, ROWS, Batches, Consumer, equal, in_threads, join, start, started, sums


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    yield
    while started:
        started.pop().kill()


def test_two_consumers_get_what_the_loader_gives_in_its_order() -> None:
    source = Batches(last=2)
    with headrace.share(source, epochs=3, samples=(BATCHES - 1) * ROWS + 2, wait_for=2) as share:
        loaders = [headrace.Loader(share.address, stream="train") for _ in range(2)]
        seen: list[list[Any]] = [[], []]

        def consume(which: int) -> None:
            for _ in range(3):
                for batch in loaders[which]:
                    seen[which].append((batch.epoch, batch.number, tuple(np.array(array) for array in batch)))
            loaders[which].close()

        threads = in_threads(consume, 2)
        share.wait(60)
        join(threads)
    assert source.asked == 3 * BATCHES, "each batch was made once"
    for mine in seen:
        assert [(epoch, number) for epoch, number, _ in mine] == [(e, n) for e in range(3) for n in range(BATCHES)]
        for epoch, number, batch in mine:
            equal(batch, source.make(epoch, number))


def test_three_processes_at_different_speeds_miss_nothing() -> None:
    source = Batches()
    with headrace.share(source, epochs=3, wait_for=3) as share:
        consumers = [Consumer(share.address, epochs=3, pause=pause) for pause in (0, 0.01, 0.03)]
        share.wait(60)
        for consumer in consumers:
            assert consumer.lines() == [*sums(source, 3), "end"]
    assert source.asked == 3 * BATCHES


def test_an_awaited_consumer_gets_all_batches_although_the_iterable_has_ended() -> None:
    source = Batches(batches=2)
    with headrace.share(source, epochs=1, wait_for=2) as share:
        first = Consumer(share.address, epochs=1)
        wait_until(lambda: source.asked == 2, "the loader has given all there is")
        time.sleep(0.3)
        second = Consumer(share.address, epochs=1)
        share.wait(60)
        for consumer in (first, second):
            assert consumer.lines() == [*sums(source, 1), "end"]


def test_the_loader_pauses_while_nobody_reads() -> None:
    source = Batches(batches=100)
    with headrace.share(source) as share:
        wait_until(lambda: source.asked == 3, "two batches in the feed and one at hand")
        time.sleep(0.3)
        assert share.stats["batches"] == 2 and source.asked == 3


def test_a_full_ring_holds_the_loader_back() -> None:
    source = Batches(batches=100)
    with headrace.share(source, prefetch=3) as share, headrace.Loader(share.address, stream="train") as loader:
        iterator = iter(loader)
        first = next(iterator)
        equal(first, source.make(0, 0))
        time.sleep(0.5)
        # Copied and released (as small batches are), leased, ready, in the feed, and in the thread.
        assert source.asked == 1 + 3 + 3 + 2 + 1
        for number in range(1, 100):
            equal(next(iterator), source.make(0, number))


def test_a_late_joiner_begins_at_the_current_batch_and_goes_on_with_the_others() -> None:
    source = Batches(batches=40)
    with headrace.share(source) as share, headrace.Loader(share.address, stream="train") as first:
        ahead = iter(first)
        for number in range(20):
            assert next(ahead).number == number
        with headrace.Loader(share.address, stream="train") as late:
            assert late.info.live
            behind = iter(late)
            batch = next(behind)
            assert batch.epoch == 0 and 20 <= batch.number <= 20 + 7
            equal(batch, source.make(0, batch.number))
            for number in range(20, batch.number + 1):
                assert next(ahead).number == number
            for number in range(batch.number + 1, 40):
                equal(next(behind), source.make(0, number))
                equal(next(ahead), source.make(0, number))


def test_a_dead_consumer_costs_the_others_nothing() -> None:
    source = Batches(batches=30)
    with headrace.share(source, epochs=2, wait_for=2) as share:
        well, ill = Consumer(share.address, epochs=2), Consumer(share.address, epochs=2, die_after=5)
        for _ in range(5):
            ill.line()
        ill.kill()
        assert well.lines() == [*sums(source, 2), "end"]
        share.wait(60)
    assert source.asked == 60


def test_what_the_loader_raises_reaches_every_consumer_and_the_owner() -> None:
    class Broken(Batches):
        def make(self, epoch: int, number: int) -> Any:
            if (epoch, number) == (1, 3):
                raise OSError("the disk is gone")
            return super().make(epoch, number)

    with headrace.share(Broken(), wait_for=2) as share:
        consumers = [Consumer(share.address, epochs=2) for _ in range(2)]
        for consumer in consumers:
            *batches, error = consumer.lines()
            assert batches == sums(Batches(), 2)[: BATCHES + 3], "earlier batches are delivered first"
            assert error["code"] == "STREAM_FAILED"
            assert "ended before batch 3 of epoch 1" in error["message"]
            assert "epoch 1, batch 3: the shared iterable raised OSError: the disk is gone" in error["message"]
            assert "Traceback" in error["message"] and "test_share.py" in error["message"]
        with pytest.raises(OSError, match="the disk is gone"):
            share.wait(20)


def test_break_and_set_epoch_skip_batches_and_never_go_back() -> None:
    source = Batches()
    with headrace.share(source) as share, headrace.Loader(share.address, stream="train") as loader:
        for batch in loader:
            if batch.number == 2:
                break
        assert [(batch.epoch, batch.number) for batch in loader] == [(1, number) for number in range(BATCHES)]
        loader.set_epoch(4)
        assert loader.epoch == 4
        batch = next(iter(loader))
        assert (batch.epoch, batch.number) == (4, 0)
        equal(batch, source.make(4, 0))
        with pytest.raises(InvalidArgument, match="is live .* cannot go back"):
            loader.set_epoch(1)
        with pytest.raises(InvalidArgument, match="cannot load a state"):
            loader.load_state_dict(loader.state_dict())
        with pytest.raises(InvalidArgument, match="a saved state cannot be loaded"):
            headrace.Loader(share.address, stream="train", state=loader.state_dict())


def test_close_ends_waiting_consumers_with_an_error() -> None:
    share = headrace.share(Batches(pause=0.05))
    consumer = Consumer(share.address, epochs=1000)
    consumer.line()
    share.close()
    error = consumer.lines()[-1]
    assert error["code"] == "STREAM_FAILED" and "the owner closed the shared stream" in error["message"]
    share.close()


def test_close_fails_a_lagging_consumer_without_reconnecting() -> None:
    share = headrace.share(Batches(batches=100), prefetch=2)
    with headrace.Loader(share.address, stream="train", reconnect_timeout=60) as loader:
        batches = iter(loader)
        next(batches)
        wait_until(lambda: share.stats["batches"] >= 4, "the ring to be full")
        share.close()
        began, received = time.monotonic(), 1
        with pytest.raises(StreamFailed, match="and its server has exited"):
            for _ in batches:
                received += 1
        assert time.monotonic() - began < 30, "it does not wait for another server"
        assert received < 100


OWNER = """
import sys, time
import numpy as np, headrace
class Slow:
    def __len__(self): return 1000
    def __iter__(self):
        for number in range(1000):
            if number == 20: time.sleep(1000)
            yield np.full(4, number)
share = headrace.share(Slow(), wait_for=int(sys.argv[1]))
print(share.address, flush=True)
time.sleep(1000)
"""


def owner(wait_for: int) -> tuple[subprocess.Popen[str], str]:
    process = start(OWNER, wait_for)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_consumer_that_waits_for_others_gets_an_error_when_the_owner_dies(how: signal.Signals) -> None:
    process, address = owner(2)
    alone = Consumer(address)
    wait_until(lambda: headrace.stats(address)["streams"]["train"]["clients"], "the consumer to be there")
    process.send_signal(how)
    process.wait(20)
    error = alone.lines()[-1]
    assert error["code"] == "STREAM_FAILED"
    assert f"the feeder (pid {process.pid}) exited" in error["message"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_death_of_the_owner_is_named_to_its_consumers(how: signal.Signals) -> None:
    process, address = owner(2)
    consumers = [Consumer(address) for _ in range(2)]
    for consumer in consumers:
        assert consumer.line()[0] == 0
    process.send_signal(how)
    process.wait(20)
    began = time.monotonic()
    for consumer in consumers:
        error = consumer.lines()[-1]
        assert error["code"] == "STREAM_FAILED"
        assert f"the feeder (pid {process.pid}) exited" in error["message"]
    assert time.monotonic() - began < 30
    wait_until(lambda: not Path(address, "control.sock").exists(), "the end of the owner's server")


def test_the_next_share_removes_the_files_of_a_killed_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (killed, its), (alive, others) = owner(1), owner(1)
    (tmp_path / "headrace-share-a-file").touch()
    killed.kill()
    killed.wait()
    wait_until(lambda: not Path(its, "control.sock").exists(), "the end of its server")
    left = {path.name for path in tmp_path.iterdir()}
    assert {Path(its).parent.name, Path(others).parent.name} <= left

    def next_share() -> bool:
        """The server's lock may exist slightly longer than its socket."""
        with headrace.share(Batches()) as share:
            here = {path.name for path in tmp_path.iterdir()}
        return here == {"headrace-share-a-file", Path(others).parent.name, Path(share.address).parent.name}

    wait_until(next_share, "what the killed one left to be gone")
    assert {path.name for path in tmp_path.iterdir()} == {"headrace-share-a-file", Path(others).parent.name}
    with headrace.Loader(others, stream="train") as loader:
        assert len(next(iter(loader))[0]) == 4
    alive.kill()


def test_a_server_ends_while_its_loader_sleeps() -> None:
    process, address = owner(1)
    pid = int(Path(address, "lock").read_text())
    try:
        with headrace.Loader(address, stream="train") as loader:
            iterator = iter(loader)
            for _ in range(20):
                next(iterator)
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not Path(address, "control.sock").exists(), "the server's end", 10)
    finally:
        process.kill()
        process.wait()


def test_idle_sharing_costs_no_cpu() -> None:
    with headrace.share(Batches(batches=100)) as share, headrace.Loader(share.address, stream="train") as loader:
        next(iter(loader))
        pid = int(Path(share.address, "lock").read_text())

        def ticks() -> int:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12])

        time.sleep(0.5)
        before = ticks()
        time.sleep(2)
        assert ticks() - before <= 4, "hundredths of a second in two seconds"


def torch_loader(workers: int, **options: Any) -> Any:
    torch = pytest.importorskip("torch")

    class Counted(torch.utils.data.Dataset):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            self.asked = torch.zeros(22, dtype=torch.int64).share_memory_()

        def __len__(self) -> int:
            return 22

        def __getitem__(self, index: int) -> Any:
            self.asked[index] += 1
            values = torch.arange(6, dtype=torch.float32).reshape(2, 3) + index
            return {"half": values.to(torch.float16), "brain": values.to(torch.bfloat16), "index": index, "odd": index % 2 == 1}

    return torch.utils.data.DataLoader(Counted(), batch_size=4, num_workers=workers, **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_torch_loader_with_workers_is_asked_once_per_sample_and_epoch(workers: int) -> None:
    torch = pytest.importorskip("torch")
    loader = torch_loader(workers)
    alone = list(torch_loader(0))
    with headrace.share(loader, epochs=2, wait_for=2) as share:
        results: list[list[Any]] = [[], []]

        def consume(which: int) -> None:
            with headrace.Loader(share.address, stream="train", output="torch", batch="dict") as mine:
                for _ in range(2):
                    results[which].append([{name: value.clone() for name, value in batch.items()} for batch in mine])

        threads = in_threads(consume, 2)
        share.wait(90)
        join(threads)
    for epochs in results:
        for epoch in epochs:
            assert len(epoch) == len(alone)
            for batch, expected in zip(epoch, alone, strict=True):
                assert list(batch) == list(expected)
                for name, value in expected.items():
                    assert batch[name].dtype == value.dtype and torch.equal(batch[name], value), name
    assert loader.dataset.asked.tolist() == [2] * 22


def test_the_example_runs() -> None:
    example = ROOT / "bindings/examples/share_dataloader.py"
    done = subprocess.run([sys.executable, str(example), "--epochs", "2"], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("12 batches, mean") == 4, done.stdout


def damage(pid: int, payload: bytes) -> None:
    """Flips a bit of the payload in the ring of that server."""
    (data,) = [each for each in Path(f"/proc/{pid}/fd").iterdir() if os.readlink(each).startswith("/memfd:headrace-data")]
    with data.open("r+b", buffering=0) as memory:
        at = memory.read().index(payload)
        memory.seek(at)
        memory.write(bytes([payload[0] ^ 4]))


def test_a_live_batch_that_is_damaged_in_memory_is_named_and_the_next_one_comes() -> None:
    batches = [np.full((4, 1000), number, np.uint8) for number in range(1, 5)]
    with headrace.share(batches, epochs=1, set={"streams.train.ring.checksums": True, "streams.train.ring.data_access": "read_write"}) as share:
        loader = headrace.Loader(share.address, stream="train")
        seen = iter(loader)
        equal(next(seen), [batches[0]])
        wait_until(lambda: headrace.stats(share.address)["streams"]["train"]["slots"]["leased"] == 3, "the other batches")
        damage(headrace.stats(share.address)["pid"], batches[1].tobytes())
        with pytest.raises(headrace.Error, match="epoch 0, batch 1 was damaged in memory and is lost, because the stream is live"):
            next(seen)
        for expected in batches[2:]:
            equal(next(seen), [expected])
        loader.close()
