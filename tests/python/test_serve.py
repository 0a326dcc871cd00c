"""headrace.serve(): the packaged server as a context manager."""

from __future__ import annotations

import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import headrace
import pytest
import yaml
from children import Child
from headrace._log import MOST_BYTES, LogTail
from headrace.errors import Closed, ConfigInvalid, DirectoryInUse, InvalidArgument, ServerUnreachable
from running import http_get, wait_until


@pytest.fixture
def config(basic_config: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "served.yaml"
    server = {**basic_config["server"], "directory": str(tmp_path / "run"), "metrics": "off"}
    path.write_text(yaml.safe_dump({**basic_config, "server": server}))
    return path


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_it_serves_until_the_blocks_end(config: Path, tmp_path: Path) -> None:
    with headrace.serve(config) as server:
        assert server.address == str(tmp_path / "run")
        assert server.metrics_url is None
        assert headrace.stats(server.address)["metrics_url"] is None
        assert re.search(r"serving in \S+ with \d+ workers?, no metrics", server.log())
        assert server.poll() is None
        (stream,) = headrace.streams(server.address)
        assert (stream.name, stream.samples, stream.classes) == ("train", 60, ("class_0", "class_1", "class_2"))
        with headrace.Loader(server.address, stream="train") as loader:
            assert len(list(loader)) == 8
        with pytest.raises(InvalidArgument, match=r"address=headrace.Server\(address=.*: pass its `.address`"):
            headrace.Loader(server, stream="train")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match=r"address=.'a dataset'.: expected the path of a server's directory"):
            headrace.Loader(["a dataset"], stream="train")  # type: ignore[arg-type]
    assert server.poll() == 0
    assert gone(server.pid)
    assert not list((tmp_path / "run").glob("*.sock"))
    assert "stopped" in server.log()
    with pytest.raises(ServerUnreachable):
        headrace.streams(server.address, timeout=0.1)


def test_it_does_not_wait_for_loaders_that_nobody_uses_any_more(config: Path, tmp_path: Path) -> None:
    with headrace.serve(config) as server:
        loader = headrace.Loader(server.address, stream="train")
        kept = [image for image, label in loader]
        other = iter(headrace.Loader(server.address, stream="train", client="in a loop"))
        next(other)
        with headrace.serve(config, server__directory=str(tmp_path / "second")) as second:
            headrace.Loader(second.address, stream="train")
        assert not loader._closed, "that of another server stays"
    assert "waiting at most 3000 ms for 1 clients" in server.log(), "the one in a loop"
    assert len(kept) == 8 and kept[0].shape[0] == 8, "batches stay usable"
    with pytest.raises(Closed):
        next(iter(loader))


def test_the_end_of_a_long_log_is_kept() -> None:
    tail = LogTail()
    with os.fdopen(tail.write, "w") as out:
        for i in range(300_000):
            out.write(f"line {i}\n")
    tail.wait(30)
    assert MOST_BYTES <= len(tail.text()) < MOST_BYTES + (1 << 16)
    assert tail.text().endswith("line 299999\n")


def test_a_directory_may_have_spaces(config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "my run  here"
    with headrace.serve(config, set={"server.directory": str(folder)}) as server:
        assert (server.address, server.metrics_url) == (str(folder), None)
        assert len(headrace.streams(server.address)) == 1


def test_overrides_and_metrics(config: Path) -> None:
    with headrace.serve(config, set={"streams.train.batch_size": 20, "server.metrics.port": 0}, server__threads=1) as server:
        assert headrace.streams(server.address)[0].batch_size == 20
        assert server.metrics_url
        assert "headrace_" in http_get(server.metrics_url + "/metrics")


def test_a_wrong_config_is_the_named_error(config: Path) -> None:
    with pytest.raises(ConfigInvalid, match="batch_size"):
        headrace.serve(config, streams__train__batch_size="many")
    with pytest.raises(InvalidArgument, match="expected the path of a YAML file, found dict"):
        headrace.serve({"sources": {}})  # type: ignore[arg-type]


def test_a_directory_in_use_says_who_holds_it(config: Path) -> None:
    with headrace.serve(config) as server, pytest.raises(DirectoryInUse, match=f"pid {server.pid}"):
        headrace.serve(config)


def test_it_ends_with_a_parent_that_is_killed(config: Path) -> None:
    code = """
server = headrace.serve(address)
say(pid=server.pid)
time.sleep(60)
"""
    with Child(code, str(config)) as parent:
        pid = parent.receive()["pid"]
        assert os.getpgid(pid) == pid != os.getpgid(parent.pid)
        parent.kill()
        wait_until(lambda: gone(pid), "the server's end after its parent's", 10)


def test_a_forked_child_does_not_keep_it_after_its_parents_end(config: Path) -> None:
    code = """
server = headrace.serve(address)
if os.fork() == 0:
    say(pid=server.pid, child=os.getpid())
time.sleep(60)
"""
    with Child(code, str(config)) as parent:
        heard = parent.receive()
        parent.kill()
        try:
            wait_until(lambda: gone(heard["pid"]), "the server's end after its parent's", 10)
        finally:
            os.kill(heard["child"], signal.SIGKILL)


def test_a_forked_child_that_leaves_the_block_keeps_the_server_and_its_folder(config: Path) -> None:
    code = """
with headrace.serve(address, restart=True) as server:
    child = os.fork()
    if child:
        say(status=os.waitpid(child, 0)[1], streams=len(headrace.streams(server.address)))
if child:
    say(status=server.poll(), left=os.path.exists(server._scratch.path))
"""
    with Child(code, str(config)) as parent:
        assert parent.receive() == {"status": 0, "streams": 1}
        assert parent.receive() == {"status": 0, "left": False}


def test_control_c_in_the_terminal_reaches_the_trainer_alone(config: Path) -> None:
    code = """
with headrace.serve(address) as server:
    try:
        say(pid=server.pid)
        time.sleep(60)
    except KeyboardInterrupt:
        say(alive=server.poll() is None, streams=len(headrace.streams(server.address)))
say(status=server.poll())
"""
    with Child(code, str(config)) as trainer:
        trainer.receive()
        os.killpg(trainer.pid, signal.SIGINT)
        assert trainer.receive() == {"alive": True, "streams": 1}
        assert trainer.receive() == {"status": 0}


def test_it_uses_a_directory_and_a_port_of_its_own(basic_config: dict[str, Any], tmp_path: Path) -> None:
    config = tmp_path / "served.yaml"
    config.write_text(yaml.safe_dump(basic_config))
    with headrace.serve(config) as one, headrace.serve(config) as other:
        assert one.address != other.address
        assert one.metrics_url and other.metrics_url and one.metrics_url != other.metrics_url
        assert len(headrace.streams(one.address)) == 1
    with headrace.serve(config, env={"HEADRACE_SERVER__DIRECTORY": str(tmp_path / "told")}, server__metrics="off") as told:
        assert (told.address, told.metrics_url) == (str(tmp_path / "told"), None)
    assert not Path(one.address).exists()


def test_a_killed_server_comes_back_and_the_loop_goes_on(basic_config: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = tmp_path / "served.yaml"
    config.write_text(yaml.safe_dump(basic_config))
    with headrace.serve(config) as server, headrace.Loader(server.address, stream="train") as loader:
        expected = headrace.Digest()
        for _ in range(3):
            for first in loader:
                expected.add(first)
    with headrace.serve(config, restart=True) as server, headrace.Loader(server.address, stream="train") as loader:
        first_pid, url = server.pid, server.metrics_url
        found = headrace.Digest()
        for epoch in range(3):
            for i, batch in enumerate(loader):
                found.add(batch)
                if (epoch, i) == (1, 2):
                    os.kill(server.pid, signal.SIGKILL)
        assert found.hexdigest() == expected.hexdigest()
        assert (server.restarts, server.metrics_url) == (1, url)
        assert server.pid != first_pid
        assert "headrace.serve: the server was killed (SIGKILL); restarting it in 0.5 s" in caplog.text
        headrace.drain(server.address)
        wait_until(lambda: server.poll() is not None, "the end of a drained server", 10)
    assert (server.restarts, server.poll()) == (1, 0)
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace-restart"]


def test_a_server_that_does_not_start_again_is_tried_again(config: Path, caplog: pytest.LogCaptureFixture) -> None:
    with headrace.serve(config, restart=True) as server:
        good = config.read_text()
        config.write_text("sources: {}\n")
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: "did not start again" in caplog.text, "the failure to start", 20)
        config.write_text(good)
        wait_until(lambda: server.restarts == 1, "the restart", 20)
        assert len(headrace.streams(server.address)) == 1
    assert server.poll() == 0
