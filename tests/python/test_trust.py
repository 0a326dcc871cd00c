"""Other users of the machine: whose server a client trusts, and which users a server admits."""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import shutil
import socket
import subprocess
import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headrace
import pytest
import yaml
from running import Server, headrace_binary, http_get, wait_until
from users import NOBODY, THIRD, Common, as_user, common, needs_root, owned
from zmtp import Dealer

__all__ = ["common"]

CONFIG: dict[str, Any] = {
    "server": {"threads": 1, "metrics": "off"},
    "sources": {"made": {"type": "synthetic", "count": 64, "bytes": 16}},
    "streams": {"train": {"source": "made", "batch_size": 8}},
}
Serve = Callable[..., Server]


def config(**server: Any) -> dict[str, Any]:
    return {**CONFIG, "server": {**CONFIG["server"], **server}}


def batches(address: str | Path | None, **options: Any) -> int:
    with headrace.Loader(address, stream="train", timeout=5, **options) as loader:
        return sum(1 for _ in loader)


def refusal(work: Callable[[], Any]) -> str:
    """The message of the PERMISSION_DENIED that `work` raises, and raises at once."""
    began = time.monotonic()
    with pytest.raises(headrace.Error) as caught:
        work()
    assert caught.value.code == "PERMISSION_DENIED", str(caught.value)
    assert time.monotonic() - began < 4, "the error must come at once, without a wait"
    return caught.value.message


@pytest.fixture
def serve(common: Common) -> Iterator[Serve]:
    running: list[Server] = []

    def start(config: dict[str, Any], user: int | None = None) -> Server:
        folder = common.folder(f"server{len(running)}", user)
        (folder / "server.log").touch()
        running.append(Server(config, folder, binary=common.binary, user=user))
        return running[-1].wait_ready()

    yield start
    for server in running:
        server.stop()


# --- clients: whose server


@needs_root
def test_another_users_server_in_the_default_directory_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADRACE_ADDRESS", "XDG_RUNTIME_DIR", "HEADRACE_ALLOW_UIDS"):
        monkeypatch.delenv(name, raising=False)
    default = Path(f"/tmp/headrace-{THIRD}")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(default)
    owned(Path(default.mkdir() or default), NOBODY, 0o711)
    try:
        server = serve(config(directory=str(default)), user=NOBODY)
        for name in ("control.sock", "attach.sock"):
            (default / name).chmod(0o666)
        told = refusal(lambda: as_user(THIRD, lambda: batches(None)))
        assert f"{default} belongs to user {NOBODY} (mode 0711), expected user {THIRD} or root" in told
        assert "HEADRACE_ALLOW_UIDS" in told
        server.stop()
    finally:
        shutil.rmtree(default)


@needs_root
def test_root_trusts_another_users_server_only_if_it_is_allowed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(config(), user=NOBODY)
    assert f"belongs to user {NOBODY}" in refusal(lambda: batches(server.address))
    assert f"belongs to user {NOBODY}" in refusal(lambda: headrace.streams(server.address))
    assert batches(server.address, allow_uids=[NOBODY]) == 8
    assert f"belongs to user {NOBODY}" in refusal(lambda: batches(server.address, allow_uids=[THIRD]))
    monkeypatch.setenv("HEADRACE_ALLOW_UIDS", f"{THIRD},{NOBODY}")
    assert batches(server.address) == 8
    monkeypatch.setenv("HEADRACE_ALLOW_UIDS", "nobody")
    with pytest.raises(headrace.Error, match="INVALID_ARGUMENT: HEADRACE_ALLOW_UIDS='nobody': 'nobody' is not a user id"):
        batches(server.address)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_client_refuses_a_directory_that_others_can_write_to(serve: Serve, mode: int) -> None:
    server = serve(config())
    os.chmod(server.address, mode)
    told = refusal(lambda: batches(server.address))
    assert f"{server.address} has mode {mode:04o}" in told
    assert "group or others can write to it" in told


def test_a_client_refuses_a_link_instead_of_the_directory(serve: Serve, common: Common) -> None:
    server = serve(config())
    link = common.path / "link"
    link.symlink_to(server.address)
    assert f"{link} is a symbolic link" in refusal(lambda: batches(f"{link}/"))


@needs_root
@pytest.mark.parametrize("name", ["control.sock", "attach.sock"])
def test_a_socket_of_another_user_in_a_directory_of_ones_own_is_refused(serve: Serve, name: str) -> None:
    server = serve(config())
    path = f"{server.address}/{name}"
    os.chmod(server.address, 0o777)
    os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM if name == "control.sock" else socket.SOCK_SEQPACKET)
    listener.bind(path)
    as_user(NOBODY, listener.listen)  # the kernel notes whose call this is
    os.chmod(server.address, 0o700)
    told = refusal(lambda: batches(server.address))
    listener.close()
    assert f"{path}: the server is not trusted: user {NOBODY} (pid " in told


# --- servers: what directory


def start_in(directory: Path, verb: str = "serve", **server: Any) -> subprocess.CompletedProcess[str]:
    file = directory.parent / "headrace.yaml"
    file.write_text(yaml.safe_dump(config(directory=str(directory), **server)))
    return subprocess.run([headrace_binary(), verb, str(file)], capture_output=True, text=True, timeout=20)


@needs_root
def test_a_server_refuses_another_users_directory(common: Common) -> None:
    ended = start_in(common.folder("run", NOBODY, 0o755))
    assert ended.returncode == 3
    assert f"server directory {common.path}/run belongs to user {NOBODY} (mode 0755), expected user 0; it must be a folder, not a link, that user 0 alone can write to" in ended.stderr


@pytest.mark.parametrize("verb", ["serve", "check"])
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_a_server_refuses_a_directory_that_others_can_write_to(common: Common, mode: int, verb: str) -> None:
    ended = start_in(common.folder("run", mode=mode), verb)
    assert ended.returncode == 3
    assert f"{common.path}/run has mode {mode:04o}" in ended.stderr
    assert "set server.directory to a new folder" in ended.stderr


def test_a_server_refuses_a_link_instead_of_the_directory(common: Common) -> None:
    common.folder("real", mode=0o700)
    (common.path / "run").symlink_to("real")
    ended = start_in(common.path / "run")
    assert ended.returncode == 3
    assert f"{common.path}/run is a symbolic link" in ended.stderr
    assert not list((common.path / "real").iterdir())


def test_a_link_instead_of_the_lock_is_not_followed(common: Common) -> None:
    run = common.folder("run", mode=0o700)
    precious = common.path / "precious"
    precious.write_text("mine")
    (run / "lock").symlink_to(precious)
    ended = start_in(run)
    assert ended.returncode == 3 and "lock is a symbolic link" in ended.stderr
    (run / "lock").unlink()
    os.link(precious, run / "lock")
    ended = start_in(run)
    assert ended.returncode == 3 and "lock has 2 hard links, expected 1" in ended.stderr
    assert precious.read_text() == "mine"


# --- servers: which users they admit


def opened(server: Server) -> Server:
    """Sets modes that admit all users, as a careless administrator might."""
    os.chmod(server.address, 0o755)
    for path in Path(server.address).glob("*.sock"):
        path.chmod(0o777)
    return server


def heard(path: str, op: str) -> bytes:
    """All bytes that a server sends in reply to a stranger's request."""
    dealer = Dealer.__new__(Dealer)
    try:
        dealer.__init__(path)  # type: ignore[misc]
        dealer.ask(op, stream="train", epoch=0, index=0, client="nobody", layout=2)
    except ConnectionError:
        pass
    return dealer.heard


@needs_root
@pytest.mark.parametrize("op", ["hello", "streams", "sample", "stats", "drain"])
def test_a_stranger_on_the_control_socket_gets_no_reply(serve: Serve, op: str) -> None:
    server = opened(serve(config(metrics={"port": 0})))
    assert as_user(NOBODY, lambda: heard(f"{server.address}/control.sock", op)) == b""
    server.check_alive()
    assert batches(server.address) == 8
    assert 'headrace_connections_refused_total{reason="user"} 1' in http_get(server.metrics_url + "/metrics")
    assert f"connection refused: user {NOBODY} (pid " in server.output()


@needs_root
def test_a_stranger_on_the_attach_socket_gets_no_reply(serve: Serve) -> None:
    server = opened(serve(config()))

    def attach() -> bytes:
        stranger = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stranger.settimeout(5)
        stranger.connect(f"{server.address}/attach.sock")
        with contextlib.suppress(BrokenPipeError):
            stranger.send(b"headrace-attach 1 " + b"0" * 32)
        try:
            return stranger.recv(4096)
        except ConnectionError:
            return b""

    assert as_user(NOBODY, attach) == b""


def test_sockets_are_for_the_servers_user_alone_unless_others_are_allowed(serve: Serve) -> None:
    def modes(server: Server) -> list[int]:
        places = [Path(server.address), *sorted(Path(server.address).glob("*.sock"))]
        return [place.stat().st_mode & 0o777 for place in places]

    assert modes(serve(config())) == [0o700, 0o600, 0o600, 0o600]
    # attach.sock, bridge.sock and control.sock: a bridge makes rows, so it must be of the server's user.
    assert modes(serve(config(allow={"uids": [NOBODY]}))) == [0o711, 0o666, 0o600, 0o666]


@needs_root
def test_an_allowed_user_lists_and_trains_and_does_not_drain(serve: Serve) -> None:
    server = serve(config(allow={"uids": [NOBODY]}))
    assert [stream.name for stream in as_user(NOBODY, lambda: headrace.streams(server.address))] == ["train"]
    assert as_user(NOBODY, lambda: batches(server.address)) == 8
    told = refusal(lambda: as_user(NOBODY, lambda: headrace.drain(server.address)))
    assert f"user {NOBODY} may not drain the server of user 0" in told
    told = refusal(lambda: as_user(THIRD, lambda: batches(server.address)))
    assert f"the server of user 0 closed the connection: it does not admit user {THIRD}" in told
    server.check_alive()
    assert batches(server.address) == 8
    headrace.drain(server.address)
    assert server.popen.wait(10) == 0


def may_write_to_the_ring(address: str) -> bool:
    """Whether a client can make the ring's memory writable."""
    with headrace.Loader(address, stream="train", timeout=5) as loader:
        next(iter(loader))
        with os.scandir("/proc/self/fd") as held:
            rings = [fd.path for fd in held if "headrace-data-" in os.readlink(fd.path)]
        assert rings, "the client holds its descriptor of the ring"
        try:
            with open(rings[0], "r+b", buffering=0) as ring:
                mmap.mmap(ring.fileno(), mmap.PAGESIZE).close()
        except PermissionError:
            return False
        return True


def test_no_client_writes_to_the_ring(serve: Serve) -> None:
    server = serve(config())
    assert not may_write_to_the_ring(server.address), "not even the server's own user"
    trusting = config()
    trusting["streams"] = {"train": {**CONFIG["streams"]["train"], "ring": {"data_access": "read_write"}}}
    server = serve(trusting)
    assert may_write_to_the_ring(server.address), "if the configuration says so"


@needs_root
def test_an_allowed_user_reads_the_ring_and_does_not_write_to_it(serve: Serve) -> None:
    server = serve(config(allow={"uids": [NOBODY]}))
    assert not as_user(NOBODY, lambda: may_write_to_the_ring(server.address))


@needs_root
def test_descriptors_of_an_allowed_user_are_not_taken(serve: Serve) -> None:
    """A descriptor that is always readable would look like a process's end, and polling one of a FUSE file system would wait for its
    owner."""
    server = serve(config(allow={"uids": [NOBODY]}))

    def stays() -> bool:
        place = {"stream": "train", "group": "", "rank": 0, "world_size": 1, "client": "x", "pid": os.getpid()}
        opened = Dealer(f"{server.address}/control.sock").ask("open", **place, join="default", resume_server=False)
        door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        door.connect(f"{server.address}/attach.sock")
        with open("/dev/zero", "rb") as readable:
            socket.send_fds(door, [f"headrace-attach 1 {opened['ok']['token']}".encode()], [readable.fileno()])
        said, descriptors, _, _ = socket.recv_fds(door, 4096, 8)
        assert said.startswith(b"ok") and len(descriptors) == 4, said
        door.settimeout(1)
        try:
            return door.recv(1) != b""
        except TimeoutError:
            return True

    assert as_user(NOBODY, stays)


@needs_root
def test_half_of_the_descriptors_are_for_the_servers_own_user(serve: Serve) -> None:
    server = serve(config(allow={"uids": [NOBODY]}))
    resource.prlimit(server.popen.pid, resource.RLIMIT_NOFILE, (256, 256))
    held: list[Dealer] = []
    os.seteuid(NOBODY)  # the kernel records the connecting user
    try:
        for _ in range(300):
            with contextlib.suppress(ConnectionError):
                held.append(Dealer(f"{server.address}/control.sock"))
    finally:
        os.seteuid(0)
    assert 0 < len(held) < 128
    assert batches(server.address) == 8
    assert f"connection of user {NOBODY} (pid {os.getpid()}) refused: half of the 256 descriptors are in use" in server.output()
    for dealer in held:
        dealer.close()
    wait_until(lambda: as_user(NOBODY, lambda: heard(f"{server.address}/control.sock", "streams")), "places for that user")


@needs_root
def test_a_supplementary_group_can_be_allowed(serve: Serve) -> None:
    server = serve(config(allow={"gids": [12345]}))
    assert as_user(NOBODY, lambda: batches(server.address), groups=[1, 12345]) == 8
    assert "does not admit" in refusal(lambda: as_user(NOBODY, lambda: batches(server.address), groups=[1]))


@needs_root
def test_an_allowed_user_does_not_feed(serve: Serve) -> None:
    feed = {"type": "feed", "fields": [{"name": "x", "dtype": "uint8", "shape": [4]}], "samples": 64, "batch_size": 8}
    server = serve({**config(allow={"uids": [NOBODY]}), "sources": {"fed": feed}, "streams": {"train": {"source": "fed"}}})
    door = Path(server.address) / "feed-fed.sock"
    assert door.stat().st_mode & 0o777 == 0o600
    door.chmod(0o666)

    def feed_it() -> bytes:
        feeder = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        feeder.settimeout(5)
        feeder.connect(os.fspath(door))
        with contextlib.suppress(BrokenPipeError):
            feeder.send(b'{"feed": 1}')
        with contextlib.suppress(ConnectionResetError):  # reported first; the server's packets follow
            return feeder.recv(4096)
        return feeder.recv(4096)

    assert b"PERMISSION_DENIED" in as_user(NOBODY, feed_it)


@needs_root
def test_containers_of_different_users_can_allow_each_other(serve: Serve) -> None:
    """docker/compose.yaml with another `user:` for the trainer."""
    server = serve(config(allow={"uids": [20002]}), user=10001)
    assert "HEADRACE_ALLOW_UIDS" in refusal(lambda: as_user(20002, lambda: batches(server.address)))
    assert as_user(20002, lambda: batches(server.address, allow_uids=[10001])) == 8


def test_the_metrics_port_has_no_other_paths(serve: Serve) -> None:
    """Any user of the machine may send requests; test_status_page.py tests who sees images."""
    server = serve(config(metrics={"port": 0}))
    for path in ("/stats", "/streams", "/api/v1", "/api/v1/statu", "/page.html"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            http_get(server.metrics_url + path)


def test_errors_name_an_invalid_list_of_users() -> None:
    for wrong in ("1000", 1000, [-1], [2**32 - 1], ["root"]):
        with pytest.raises(headrace.Error, match="INVALID_ARGUMENT: allow_uids"):
            headrace.Loader("/nowhere", stream="train", allow_uids=wrong)  # type: ignore[arg-type]
