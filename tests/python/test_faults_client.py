"""Rows of the fault list that concern clients, with real processes and real signals."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import headrace
import pytest
from children import Child
from headrace.errors import ClientNameTaken, RankTaken, ServerUnreachable
from running import Server, wait_until

HOLD = """
loader = headrace.Loader(address, stream="train", zero_copy=True, group="job", client="holder")
iterator = iter(loader)
held = [next(iterator) for _ in range(2)]
say(digest=digest(held[-1]), number=held[-1].number, pid=os.getpid())
"""


def stream_stats(address: str) -> dict[str, Any]:
    stats: dict[str, Any] = headrace.stats(address)["streams"]["train"]
    return stats


def lane(address: str, group: str) -> dict[str, Any]:
    (found,) = headrace.cursors(address, "train", group)["lanes"]
    value: dict[str, Any] = found
    return value


def test_row_1_and_3_a_killed_client_frees_its_leases_and_gets_the_same_batch_again(
    start_server: Any, quiet_config: dict[str, Any]
) -> None:
    address = start_server(quiet_config).address
    with Child(HOLD + "time.sleep(60)", address) as holder:
        heard = holder.receive()
        wait_until(lambda: stream_stats(address)["slots"]["leased"] == 3, "three leases")
        before = lane(address, "job")["consumed"]
        holder.kill()
        killed = time.monotonic()
        wait_until(lambda: stream_stats(address)["slots"]["leased"] == 0, "the leases' end")
        assert time.monotonic() - killed < 1.0
    assert stream_stats(address)["leases_reclaimed"] == 3
    assert lane(address, "job")["consumed"] == before
    with headrace.Loader(address, stream="train", group="job", resume="server") as loader:
        batch = next(iter(loader))
        digest = headrace.Digest()
        digest.add(batch)
        assert (batch.number, digest.hexdigest()) == (heard["number"], heard["digest"])


def test_row_2_a_client_killed_while_its_copy_runs_frees_its_leases_and_gets_the_same_batch_again(
    start_server: Any, quiet_config: dict[str, Any]
) -> None:
    address = start_server(quiet_config).address
    # The copy goes into a pipe that holds a sixth of a batch, so it stops halfway until the test reads more.
    code = """
import fcntl
fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 4096)
loader = headrace.Loader(address, stream="train", zero_copy=True, group="job", client="copier")
iterator = iter(loader)
next(iterator)
image, label = next(iterator)
say(bytes=image.nbytes)
os.write(1, image)
say(copied="whole")
"""
    with Child(code, address) as copier:
        size = copier.receive()["bytes"]
        begun = copier.read_bytes(4096)
        leased, before = stream_stats(address)["slots"]["leased"], lane(address, "job")["consumed"]
        assert leased >= 2, "the current batch, and the one that is granted next"
        copier.kill()
        killed = time.monotonic()
        wait_until(lambda: stream_stats(address)["slots"]["leased"] == 0, "the leases' end")
        assert time.monotonic() - killed < 1.0
        rest = copier.read_bytes(size)
        assert len(begun) + len(rest) < size, "it was killed during the copy"
    assert lane(address, "job")["consumed"] == before
    with headrace.Loader(address, stream="train", group="job", resume="server") as loader:
        image, _ = next(iter(loader))
        assert image.tobytes().startswith(begun + rest)


def test_row_5_a_stopped_client_is_fenced_its_view_stays_and_it_attaches_again(
    start_server: Any, quiet_config: dict[str, Any]
) -> None:
    quiet_config["server"] |= {"evict_after": "1s"}
    address = start_server(quiet_config).address
    code = """
loader = headrace.Loader(address, stream="train", zero_copy=True)
iterator = iter(loader)
batch = next(iterator)
before = digest(batch)
say(pid=os.getpid())
sys.stdin.readline()
try:
    next(iterator)
    say(error="none")
except headrace.Error as error:
    say(error=type(error).__name__, unchanged=digest(batch) == before)
try:
    next(iterator)
    say(error="none")
except headrace.errors.LeaseFenced as error:
    say(error=str(error))
del batch
again = [batch.number for batch in iterator]
say(again=again)
"""
    with Child(code, address) as stuck, headrace.Loader(address, stream="train") as healthy:
        stuck.receive()
        stuck.signal(signal.SIGSTOP)
        for _ in range(4):
            assert len(list(healthy)) == 8  # at full rate, although the other client holds a slot
        stuck.fence(address)
        assert len(list(healthy)) == 8
        stuck.resume()
        assert stuck.receive() == {"error": "LeaseFenced", "unchanged": True}
        assert "release them first" in stuck.receive()["error"]
        assert stuck.receive() == {"again": [1, 2, 3, 4, 5, 6, 7]}


def test_row_5_a_fenced_rank_goes_on_although_the_other_one_came_back_before_it(
    start_server: Any, quiet_config: dict[str, Any]
) -> None:
    quiet_config["server"] |= {"evict_after": "1s"}
    quiet_config["streams"]["train"] |= {"delivery": "shard", "batch_size": 4}
    address = start_server(quiet_config).address
    code = """
loader = headrace.Loader(address, stream="train", rank=int(sys.argv[2]), world_size=2, group="job")
iterator = iter(loader)
for _ in range(3):
    batch = next(iterator)
say(number=batch.number)
sys.stdin.readline()
try:
    next(iterator)
except headrace.errors.LeaseFenced:
    say(fenced=True)
sys.stdin.readline()
say(numbers=[batch.number for batch in iterator])
"""
    with Child(code, address, "0") as stuck, Child(code, address, "1") as other:
        stuck.receive()
        other.receive()
        stuck.fence(address)
        other.kill()
        stuck.resume()
        assert stuck.receive() == {"fenced": True}
        wait_until(lambda: not stream_stats(address)["clients"], "both sessions' end")
        with headrace.Loader(address, stream="train", rank=1, world_size=2, group="job", resume="server") as back:
            assert next(iter(back)).number == 2, "the loop's current batch"
            stuck.go_on()
            assert stuck.receive() == {"numbers": [3, 4, 5, 6, 7]}


def test_row_6_a_forked_child_does_not_keep_a_dead_client_alive(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    code = """
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
say(child=child)
time.sleep(60)
"""
    with Child(HOLD + code, address) as parent:
        parent.receive()
        orphan = parent.receive()["child"]
        try:
            parent.kill()
            killed = time.monotonic()
            wait_until(lambda: not stream_stats(address)["clients"], "the client's end")
            assert time.monotonic() - killed < 1.0
            os.kill(orphan, 0)  # it is still alive
        finally:
            os.kill(orphan, signal.SIGKILL)


def test_row_7_a_forked_child_gets_a_named_error_and_disturbs_nobody(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    code = """
loader = headrace.Loader(address, stream="train", zero_copy=True)
stale = iter(loader)
iterator = iter(loader)
batch = next(iterator)
before = digest(batch)
child = os.fork()
if child == 0:
    names = []
    for use in (lambda: next(iterator), lambda: next(stale), lambda: loader.set_epoch(3), lambda: loader.load_state_dict(loader.state_dict())):
        try:
            use()
            names.append("none")
        except headrace.errors.ForkedError as error:
            assert "a loader does not survive a fork" in str(error) and "make another loader in the child" in str(error)
            names.append(error.code)
    del batch
    loader.close()
    fresh = headrace.Loader(address, stream="train")
    say(names=names, fresh=len(list(fresh)))
    fresh.close()
    sys.exit(0)
_, status = os.waitpid(child, 0)
say(status=status, unchanged=digest(batch) == before, rest=len(list(iterator)))
"""
    with Child(code, address) as parent:
        assert parent.receive() == {"names": ["FORKED"] * 4, "fresh": 8}
        assert parent.receive() == {"status": 0, "unchanged": True, "rest": 7}


def test_row_7_a_pickled_loader_attaches_anew_as_spawned_workers_need(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    code = """
import multiprocessing
import spawned
loader = headrace.Loader(address, stream="train", batch="dict")
next(iter(loader))
context = multiprocessing.get_context("spawn")
answers = context.Queue()
worker = context.Process(target=spawned.digest_of_an_epoch, args=(loader, answers))
worker.start()
theirs = answers.get(timeout=30)
worker.join()
loader.set_epoch(0)
say(pids=[theirs[0], os.getpid()], same=theirs[1] == spawned.digest(loader), status=worker.exitcode)
"""
    with Child(code, address, cwd=Path(__file__).parent) as child:
        heard = child.receive(40)
    assert heard["pids"][0] != heard["pids"][1]
    assert heard["same"] and heard["status"] == 0


def test_row_8_and_48_a_second_client_with_a_name_or_rank_gets_an_error_that_names_the_holder(
    start_server: Any, quiet_config: dict[str, Any]
) -> None:
    quiet_config["streams"]["train"] |= {"delivery": "shard"}
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", rank=0, world_size=2, client="first"):
        with pytest.raises(ClientNameTaken, match=f"`first`.*pid {os.getpid()}"):
            headrace.Loader(address, stream="train", rank=1, world_size=2, client="first")
        with pytest.raises(RankTaken, match=f"rank 0 of group `default`.*`first`.*pid {os.getpid()}"):
            headrace.Loader(address, stream="train", rank=0, world_size=2)


def test_a_killed_clients_successor_gets_its_name_and_rank_at_once(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"] |= {"delivery": "shard"}
    address = start_server(quiet_config).address
    code = """
loader = headrace.Loader(address, stream="train", rank=0, world_size=1, client="worker")
say(pid=os.getpid())
time.sleep(60)
"""
    for _ in range(5):
        with Child(code, address) as child:
            child.receive()
            child.kill()
            headrace.Loader(address, stream="train", rank=0, world_size=1, client="worker").close()


def test_row_48_a_missing_rank_holds_up_nobody_and_is_shown(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"] |= {"delivery": "shard"}
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", rank=0, world_size=2, batch_timeout=10) as loader:
        for _ in range(3):
            assert len(list(loader)) == len(loader) == 4
        assert stream_stats(address)["missing_ranks"]


def test_row_10_a_server_killed_at_random_moments_changes_nothing(quiet_config: dict[str, Any], tmp_path: Path) -> None:
    kills = 200 if os.environ.get("HEADRACE_STRESS") else 12
    quiet_config["streams"]["train"] |= {"batch_size": 2}
    folder = tmp_path / "server"
    folder.mkdir()
    server = Server(quiet_config, folder).wait_ready()

    def epoch_digest(loader: headrace.Loader) -> str:
        digest = headrace.Digest()
        for batch in loader:
            digest.add(batch)
        return digest.hexdigest()

    with headrace.Loader(server.address, stream="train") as loader:
        undisturbed = [epoch_digest(loader) for _ in range(4)]

    random_moment = random.Random(10)
    done = threading.Event()
    running = [server]

    def assassin() -> None:
        for _ in range(kills):
            time.sleep(random_moment.uniform(0.0, 0.12))
            running[0].kill()
            running[0] = Server(quiet_config, folder)
            # Sometimes killed while it starts: the test does not always wait until it is ready.
            if random_moment.random() < 0.8:
                running[0].wait_ready()
        done.set()

    killer = threading.Thread(target=assassin)
    passes = 0
    with headrace.Loader(server.address, stream="train", reconnect_timeout=30) as loader:
        killer.start()
        while not done.is_set():
            for epoch in range(4):
                loader.set_epoch(epoch)
                assert epoch_digest(loader) == undisturbed[epoch], f"pass {passes}, epoch {epoch}"
            passes += 1
    killer.join()
    assert passes > 0
    assert running[0].stop() == 0


def test_row_10_views_of_before_the_servers_death_stay_readable(quiet_config: dict[str, Any], tmp_path: Path) -> None:
    server = Server(quiet_config, tmp_path).wait_ready()
    with headrace.Loader(server.address, stream="train", zero_copy=True) as loader:
        iterator = iter(loader)
        held = next(iterator)
        before = held[0].copy()
        server.kill()
        server = Server(quiet_config, tmp_path)
        assert next(iterator).number == 1
        assert (held[0] == before).all()
    assert server.stop() == 0


def test_row_13_a_client_that_comes_first_waits_for_its_server(quiet_config: dict[str, Any], tmp_path: Path) -> None:
    started: list[Server] = []

    def later() -> None:
        time.sleep(0.4)
        started.append(Server(quiet_config, tmp_path))

    thread = threading.Thread(target=later)
    thread.start()
    with headrace.Loader(str(tmp_path / "run"), stream="train", timeout=20) as loader:
        assert len(list(loader)) == 8
    thread.join()
    assert started[0].stop() == 0
    with pytest.raises(ServerUnreachable, match="no server within 0.3 s: .*control.sock does not exist"):
        headrace.Loader(str(tmp_path / "run"), stream="train", timeout=0.3)
    with pytest.raises(ServerUnreachable, match="no server: .*control.sock does not exist"):
        headrace.Loader(str(tmp_path / "run"), stream="train", timeout=0.01)
