"""Private batches, the default, with batches that are large enough for copy-on-write views."""

from __future__ import annotations

import gc
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from children import Child
from running import Server, wait_until

BATCH_BYTES = 8 * 3 * 512 * 512 * 4


@pytest.fixture
def large_batches(quiet_config: dict[str, Any]) -> dict[str, Any]:
    """25 MB each."""
    quiet_config["streams"]["train"] |= {
        "transforms": [{"random_resized_crop": {"size": 512}}, {"normalize": {"mean": [0.5] * 3, "std": [0.5] * 3}}],
        "output": {"dtype": "float32"},
    }
    return quiet_config


def clients(address: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = headrace.stats(address)["streams"]["train"]["clients"]
    return found


def own_bytes() -> int:
    """Private pages of this process."""
    with open("/proc/self/smaps_rollup") as lines:
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))


def digest(batch: Any) -> str:
    state = headrace.Digest()
    state.add(batch)
    return state.hexdigest()


def test_a_loop_needs_no_private_memory_for_its_batches(start_server: Any, large_batches: dict[str, Any]) -> None:
    with headrace.Loader(start_server(large_batches).address, stream="train") as loader:
        before = own_bytes()
        most = 0
        for image, _ in loader:
            assert image.nbytes == BATCH_BYTES or len(image) < 8
            assert image.sum() != 0  # reads every page
            most = max(most, own_bytes() - before)
        assert most < BATCH_BYTES / 4


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_a_loop_may_change_its_batches_and_nobody_notices(start_server: Any, large_batches: dict[str, Any], output: str) -> None:
    if output == "torch":
        pytest.importorskip("torch")
    address = start_server(large_batches).address
    with headrace.Loader(address, stream="train", output=output) as first, headrace.Loader(address, stream="train") as second:
        for _ in range(2):
            for mine, theirs in zip(first, second, strict=True):
                assert mine.private_copy
                np.testing.assert_array_equal(np.asarray(mine[0]), theirs[0])
                before = digest(theirs)
                mine[0][: 1 + mine.number] *= -1
                mine[1][:] = -1
                assert digest(theirs) == before


def test_kept_labels_hold_no_slots(start_server: Any, large_batches: dict[str, Any]) -> None:
    with headrace.Loader(start_server(large_batches).address, stream="train") as loader:
        kept = [label for _, label in loader]
        gc.collect()
        assert len(kept) == 8
        assert loader._stream is not None and loader._stream.live_views() == 0


def test_a_batch_outlives_its_loader_and_frees_the_name(start_server: Any, large_batches: dict[str, Any]) -> None:
    address = start_server(large_batches).address
    with headrace.Loader(address, stream="train", client="one") as loader:
        batch = next(iter(loader))
        before = digest(batch)
    with headrace.Loader(address, stream="train", client="one", timeout=5) as successor:
        for _ in range(2):
            assert len(list(successor)) == 8
        assert digest(batch) == before


def test_a_fenced_loop_attaches_again_with_its_batch_in_hand(start_server: Any, large_batches: dict[str, Any]) -> None:
    large_batches["server"] |= {"evict_after": "1s"}
    address = start_server(large_batches).address
    code = """
loader = headrace.Loader(address, stream="train")
iterator = iter(loader)
batch = next(iterator)
before = digest(batch)
say(pid=os.getpid())
sys.stdin.readline()
try:
    next(iterator)
    say(error="none")
except headrace.errors.LeaseFenced:
    say(error="LeaseFenced")
again = [later.number for later in iterator]
say(again=again, unchanged=digest(batch) == before)
"""
    with Child(code, address) as stuck:
        stuck.receive()
        stuck.fence(address)
        stuck.resume()
        assert stuck.receive() == {"error": "LeaseFenced"}
        assert stuck.receive() == {"again": [1, 2, 3, 4, 5, 6, 7], "unchanged": True}


def test_a_fenced_loop_that_closes_frees_its_name_with_its_batch_in_hand(start_server: Any, large_batches: dict[str, Any]) -> None:
    large_batches["server"] |= {"evict_after": "1s"}
    address = start_server(large_batches).address
    code = """
loader = headrace.Loader(address, stream="train", client="one")
iterator = iter(loader)
batch = next(iterator)
say(pid=os.getpid())
sys.stdin.readline()
try:
    next(iterator)
except headrace.errors.LeaseFenced:
    loader.close()
successor = headrace.Loader(address, stream="train", client="one", timeout=5)
say(batches=len(list(successor)))
"""
    with Child(code, address) as stuck:
        stuck.receive()
        stuck.fence(address)
        stuck.resume()
        assert stuck.receive() == {"batches": 8}


def test_a_forked_child_keeps_the_batch_that_its_parent_held(start_server: Any, large_batches: dict[str, Any]) -> None:
    code = """
loader = headrace.Loader(address, stream="train")
batch = next(iter(loader))
before = digest(batch)
readable, writable = os.pipe()
child = os.fork()
if child == 0:
    os.close(writable)
    os.read(readable, 1)  # until the parent has gone on
    unchanged = digest(batch) == before
    batch[0][:] = 0
    os._exit(0 if unchanged else 1)
del batch
for _ in range(3):
    list(loader)
os.close(writable)
say(status=os.waitpid(child, 0)[1], same=digest(next(iter(headrace.Loader(address, stream="train")))) == before)
"""
    with Child(code, start_server(large_batches).address) as parent:
        assert parent.receive() == {"status": 0, "same": True}


def data_mappings() -> int:
    return Path("/proc/self/maps").read_text().count("headrace-data-")


def test_the_ring_of_a_stopped_server_is_freed_while_its_batches_stay(large_batches: dict[str, Any], tmp_path: Path) -> None:
    server = Server(large_batches, tmp_path).wait_ready()
    with headrace.Loader(server.address, stream="train") as loader:
        iterator = iter(loader)
        kept, written = next(iterator), next(iterator)
        written[0][:] = 1
        before = digest(kept), digest(written)
        server.popen.send_signal(signal.SIGTERM)  # it waits for the leases, which the loop gives back in next()
        with ThreadPoolExecutor(1) as another:
            later = another.submit(lambda: [each.number for each in iterator])
            assert server.popen.wait(30) == 0
            wait_until(lambda: data_mappings() == 0, "the old ring to be unmapped")
            server = Server(large_batches, tmp_path)
            assert later.result(60) == [2, 3, 4, 5, 6, 7]
        assert (digest(kept), digest(written)) == before
    assert server.stop() == 0


def test_batches_of_a_killed_server_stay_and_the_loop_goes_on(large_batches: dict[str, Any], tmp_path: Path) -> None:
    server = Server(large_batches, tmp_path).wait_ready()
    with headrace.Loader(server.address, stream="train") as loader:
        iterator = iter(loader)
        batch = next(iterator)
        before = digest(batch)
        server.kill()
        server = Server(large_batches, tmp_path)
        assert [later.number for later in iterator] == [1, 2, 3, 4, 5, 6, 7]
        assert digest(batch) == before
    assert server.stop() == 0
