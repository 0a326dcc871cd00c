"""Waits end with named errors: by Ctrl-C, by a timeout, by a failed stream."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import headrace
import pytest
from children import Child
from headrace.errors import IteratorBusy, StreamFailed
from running import Server, wait_until


def test_control_c_ends_a_wait_at_once(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"]["sharing"] = {"wait_for": 2}
    address = start_server(quiet_config).address
    code = """
loader = headrace.Loader(address, stream="train")
try:
    say(waiting=True)
    next(iter(loader))
except KeyboardInterrupt:
    say(interrupted=True, state=loader.state_dict()["cursor"]["batch"])
"""
    with Child(code, address) as child:
        child.receive()
        time.sleep(0.3)
        sent = time.monotonic()
        child.signal(signal.SIGINT)
        assert child.receive(5) == {"interrupted": True, "state": 0}
        assert time.monotonic() - sent < 2.0


@pytest.mark.parametrize("leaves", [True, False], ids=["raises", "goes on"])
def test_a_signal_handler_may_save_the_state_and_close_a_loader_that_waits(
    start_server: Any, quiet_config: dict[str, Any], leaves: bool
) -> None:
    quiet_config["streams"]["train"]["sharing"] = {"wait_for": 2}
    address = start_server(quiet_config).address
    code = f"""
loader = headrace.Loader(address, stream="train")
iterator = iter(loader)

def handler(*_):
    heard = dict(state=loader.state_dict()["cursor"]["batch"], length=len(loader))
    try:
        next(iterator)
    except headrace.Error as error:
        heard["again"] = str(error)
    loader.close()
    say(**heard)
    if {leaves}:
        raise SystemExit(0)

signal.signal(signal.SIGTERM, handler)
say(waiting=True)
try:
    next(iterator)
except headrace.errors.Closed:
    say(closed=True)
"""
    with Child(code, address) as child:
        child.receive()
        time.sleep(0.3)
        child.signal(signal.SIGTERM)
        heard = child.receive(5)
        assert (heard["state"], heard["length"]) == (0, 8)
        assert "this signal handler interrupted a call" in heard["again"]
        if not leaves:
            assert child.receive(5) == {"closed": True}
        assert child.process.wait(5) == 0
    assert not headrace.stats(address)["streams"]["train"]["clients"]


def test_control_c_ends_the_wait_for_a_dead_server(quiet_config: dict[str, Any], tmp_path: Path) -> None:
    server = Server(quiet_config, tmp_path).wait_ready()
    code = """
loader = headrace.Loader(address, stream="train")
iterator = iter(loader)
next(iterator)
try:
    say(ready=True)
    sys.stdin.readline()
    for batch in iterator:
        pass
except KeyboardInterrupt:
    say(interrupted=True)
"""
    with Child(code, server.address) as child:
        child.receive()
        server.kill()
        child.go_on()
        time.sleep(0.5)
        child.signal(signal.SIGINT)
        assert child.receive(5) == {"interrupted": True}


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """KeyboardInterrupt in the main thread, as Ctrl-C would raise it."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("way", ["set_epoch", "load_state_dict", "iter"])
def test_control_c_in_a_seek_loses_nothing(start_server: Any, quiet_config: dict[str, Any], way: str) -> None:
    server = start_server(quiet_config)
    with headrace.Loader(server.address, stream="train", batch_timeout=15) as loader:
        state = loader.state_dict()
        iterator = iter(loader)
        assert [next(iterator).number for _ in range(2)] == [0, 1]
        del iterator
        server.popen.send_signal(signal.SIGSTOP)
        with interrupted_after(0.3):
            if way == "set_epoch":
                loader.set_epoch(5)
            elif way == "load_state_dict":
                loader.load_state_dict(state)
            else:
                iter(loader)
        assert loader.state_dict()["cursor"]["batch"] == 2
        server.popen.send_signal(signal.SIGCONT)
        assert [(batch.epoch, batch.number) for batch in loader] == [(1, number) for number in range(8)]


def test_a_seek_that_is_interrupted_under_live_views_asks_for_their_release(
    start_server: Any, quiet_config: dict[str, Any]
) -> None:
    server = start_server(quiet_config)
    with headrace.Loader(server.address, stream="train", batch_timeout=15, zero_copy=True) as loader:
        held = next(iter(loader))
        before = held[0].copy()
        server.popen.send_signal(signal.SIGSTOP)
        with interrupted_after(0.3):
            loader.set_epoch(5)
        server.popen.send_signal(signal.SIGCONT)
        with pytest.raises(headrace.errors.LeaseFenced, match="release them first"):
            loader.set_epoch(5)
        assert (held[0] == before).all()
        del held
        loader.set_epoch(5)
        assert [(batch.epoch, batch.number) for batch in loader] == [(5, number) for number in range(8)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"on_error": "fail"}, "BAD_SAMPLE.*class_.*the stream's on_error is `fail`"),
        ({"max_bad": 0.2}, "TOO_MANY_BAD_SAMPLES.*samples are bad, max_bad is 0.2"),
    ],
)
def test_a_stream_that_fails_says_why_at_its_clients(
    start_server: Any, quiet_config: dict[str, Any], tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    folder = tmp_path / "text"
    for index in range(10):
        path = folder / f"class_{index % 2}" / f"{index}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("no picture, however long one looks at it\n" * 20)
    quiet_config["sources"]["images"]["path"] = str(folder)
    quiet_config["streams"]["train"] |= options
    address = start_server(quiet_config).address
    try:
        loader = headrace.Loader(address, stream="train", batch_timeout=15)
    except StreamFailed as error:  # it may fail before a client comes
        assert re.search(reason, str(error), re.DOTALL)
    else:
        with loader:
            for _ in range(2):
                with pytest.raises(StreamFailed, match=f"(?s)^STREAM_FAILED: stream `train` stopped, until the server is restarted: {reason}"):
                    next(iter(loader))
    with pytest.raises(StreamFailed, match=f"(?s){reason}"):
        headrace.Loader(address, stream="train", batch_timeout=15)


def test_a_wait_ends_with_its_timeout_and_says_for_what(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"]["sharing"] = {"wait_for": 2}
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", batch_timeout=0.3) as loader:
        with pytest.raises(headrace.errors.Timeout, match=r"waited 0\.[23] s for epoch 0, batch 0"):  # ahead of the loop: the last part of it
            next(iter(loader))
        with headrace.Loader(address, stream="train") as second:
            assert next(iter(second)).number == 0
            assert next(iter(loader)).number == 0  # a timeout loses nothing


def test_a_timeout_names_the_clients_that_are_waited_for(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"]["sharing"] = {"wait_for": 3, "on_lag": "wait", "max_lag": 2}
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", client="fast", batch_timeout=1.0) as fast:
        iterator = iter(fast)
        with pytest.raises(headrace.errors.Timeout, match=r"once 2 more clients have called next\(\) \(sharing.wait_for\)"):
            next(iterator)
        with (
            headrace.Loader(address, stream="train", client="slow") as slow,
            headrace.Loader(address, stream="train", client="late") as late,
            ThreadPoolExecutor() as pool,
        ):
            begun = pool.submit(lambda: next(iter(late)).number)
            ahead = iter(slow)
            assert [next(ahead).number for _ in range(2)] == [0, 1] and begun.result() == 0
            with pytest.raises(headrace.errors.Timeout, match=r"The stream waits for client `late`, \d+ batch(es)? behind \(sharing.on_lag: wait\)"):
                for batch in iterator:
                    assert batch.number < 8


def test_wait_for_counts_clients_by_their_first_next(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"]["sharing"] = {"wait_for": 2}
    address = start_server(quiet_config).address
    one_client_missing = r"once 1 more client has called next\(\) \(sharing.wait_for\)"
    for _ in range(2):  # again, for the next set of clients
        with headrace.Loader(address, stream="train", batch_timeout=1) as first, headrace.Loader(address, stream="train") as builds_a_model:
            batches = iter(first)
            with pytest.raises(headrace.errors.Timeout, match=one_client_missing):
                next(batches)
            assert next(iter(builds_a_model)).number == 0
            assert next(batches).number == 0
            with headrace.Loader(address, stream="train") as late:
                assert next(iter(late)).number == 0, "a set that has begun goes on"


def test_the_streams_of_a_sweep_wait_for_each_others_clients(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"] |= {"sharing": {"wait_for": 3}, "ring": {"max_clients": 1}}
    for name, size in (("small", 5), ("large", 40)):
        quiet_config["streams"][name] = {"extends": "train", "batch_size": size}
    server = start_server(quiet_config)
    two_missing = r"once 2 more clients have called next\(\) \(sharing.wait_for\)"
    for again in (False, True):  # for the next set of jobs
        with ExitStack() as stack:
            loaders = [stack.enter_context(headrace.Loader(server.address, stream=name, batch_timeout=2)) for name in ("train", "small", "large")]
            iterators = [iter(loader) for loader in loaders]
            with pytest.raises(headrace.errors.Timeout, match=two_missing):
                next(iterators[0])
            listed = subprocess.run(["headrace", "ls", "--address", str(server.address)], capture_output=True, text=True, check=True).stdout
            assert listed.count("batch 0, has not called next() yet\n") == 2
            assert re.search(r"The stream begins once 2 more clients have called next\(\) \(sharing.wait_for\), or in at most \d\d s without them", listed)
            streams = headrace.stats(server.address)["streams"].values()
            assert again or sum(stream["decoded"] for stream in streams) == 0, "a stream made rows before all clients had called next()"
            with ThreadPoolExecutor() as pool:
                assert list(pool.map(lambda batches: next(batches).number, iterators)) == [0, 0, 0]
            loaders[1].close()
            with headrace.Loader(server.address, stream="small") as restarted:
                assert next(iter(restarted)).number == 0, "after the start, a new client on any of the streams begins at once"
    server.stop()
    assert "the stream begins when 3 clients (those of streams that share rows count as well) have called next()" in server.output()
    assert re.search(r"stream `\w+`, and those that share rows with it and whose wait_for is at most 3, begin with 3 clients", server.output())


def test_a_stream_cannot_wait_for_more_clients_than_can_attach(basic_config: dict[str, Any], tmp_path: Path) -> None:
    def check(output: bool = False, **sharing: Any) -> str:
        basic_config["streams"]["train"] |= {"sharing": {"wait_for": 5, **sharing}}
        config = tmp_path / "headrace.json"
        config.write_text(json.dumps(basic_config))
        done = subprocess.run(["headrace", "check", str(config)], capture_output=True, text=True)
        assert bool(done.returncode) == bool(done.stderr)
        return done.stdout if output else done.stderr

    message = r"headrace.json:\d+:\d+: streams.{}.sharing.wait_for: {} is more than the {} clients that can attach{}"
    alone = r": others do not count, because this stream shares rows with none \(.*\)\. Lower it"
    assert re.search(message.format("train", 5, 4, r"\. Lower it"), check())
    basic_config["streams"]["more"] = {"extends": "train", "batch_size": 7}
    assert check() == "", "8 clients can attach to both streams together"
    basic_config["streams"]["more"]["seed"] = 2
    assert "warning: wait_for (2) of more counts the clients of more only, because no rows are shared with train\n" in check(wait_for=2, output=True)
    del basic_config["streams"]["more"]["seed"]
    refused = check(window="0B")
    assert re.search(message.format("more", 5, 4, alone), refused)
    assert len(refused.splitlines()) == 1, "the value is said to be wrong once, where it stands"
    assert re.search(message.format("more", 9, 8, " to more, train, which share rows"), check(wait_for=9))


def test_the_wait_timeout_begins_anew_when_nobody_asks_any_more(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"]["sharing"] = {"wait_for": 2, "wait_timeout": "3s"}
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", batch_timeout=1) as builds_a_model:
        with headrace.Loader(address, stream="train", batch_timeout=0.5) as ended, pytest.raises(headrace.errors.Timeout):
            next(iter(ended))
        time.sleep(3.2)
        with pytest.raises(headrace.errors.Timeout):
            next(iter(builds_a_model))


def test_a_wait_is_counted_and_explained_while_it_lasts(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"]["sharing"] = {"on_lag": "wait", "max_lag": 2}
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", client="slow") as slow, headrace.Loader(address, stream="train", client="fast") as fast, ThreadPoolExecutor() as pool:
        next(iter(slow))

        def three_epochs(loader: headrace.Loader) -> int:
            return sum(1 for _ in range(3) for _ in loader)

        read = pool.submit(three_epochs, fast)  # more than `slow` may fetch ahead of its loop

        def waits_on() -> bool:
            (client,) = (c for c in headrace.stats(address)["streams"]["train"]["clients"] if c["client"] == "fast")
            return bool(client["waiting"]) and client["wait_seconds"] > 0.5

        wait_until(waits_on, "a wait that is counted while it lasts")
        listed = subprocess.run(["headrace", "ls", "--address", address], capture_output=True, text=True, check=True).stdout
        assert re.search(r"client fast: .*\n    The stream waits for client `slow`, \d+ batch(es)? behind \(sharing.on_lag: wait\)", listed), listed
        assert "behind the foremost client" not in listed, "both share the ring's slots"
        assert not read.done()
        slow.set_epoch(0)
        assert three_epochs(slow) == read.result() == 3 * len(fast)


def test_a_late_client_is_warned_of_how_far_behind_it_begins(start_server: Any, quiet_config: dict[str, Any]) -> None:
    server = start_server(quiet_config)
    with headrace.Loader(server.address, stream="train", client="first") as first:
        for _ in range(2):
            list(first)
        with headrace.Loader(server.address, stream="train", client="late") as late:
            with pytest.warns(RuntimeWarning, match=r"client 'late' begins (at least )?\d+ batches behind .*join=\"now\""):
                assert next(iter(late)).number == 0
        with headrace.Loader(server.address, stream="train", join="now") as joined, warnings.catch_warnings():
            warnings.simplefilter("error")
            assert next(iter(joined)).epoch >= 2
    server.stop()
    assert re.search(r"client `late` begins \d+ batches behind `first`; (the \d+ samples between them|of the \d+ samples between them, up to \d+ are in the window \(sharing.window\), and the others) are decoded again", server.output())
    assert "has been more than" not in server.output(), "one warning tells it"


def test_a_long_wait_warns_of_its_reason_and_loses_nothing(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"]["sharing"] = {"wait_for": 2}
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", batch_timeout=60) as loader:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # ends the wait
            with pytest.raises(RuntimeWarning, match=r"waited 10\.\d s for .* once 1 more client has called next"):
                next(iter(loader))
        with headrace.Loader(address, stream="train") as second:
            assert next(iter(second)).number == 0
            assert next(iter(loader)).number == 0


def test_a_second_threads_loop_does_not_disturb_the_first_ones(start_server: Any, quiet_config: dict[str, Any]) -> None:
    """The second loop begins while the first waits for a batch, which comes once another client asks for one."""
    quiet_config["streams"]["train"]["sharing"] = {"wait_for": 2}
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train") as loader:
        first: list[int] = []
        thread = threading.Thread(target=lambda: first.extend(batch.number for batch in loader))
        thread.start()
        refused = None
        for _ in range(2000):  # until it waits in next()
            try:
                loader.epoch  # noqa: B018
                time.sleep(0.005)
            except IteratorBusy as error:
                refused = error
                break
        assert refused is not None
        with pytest.raises(IteratorBusy):
            iter(loader)
        with headrace.Loader(address, stream="train") as other:
            next(iter(other))
            thread.join(60)
        assert first == list(range(8))
