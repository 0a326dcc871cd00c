"""Random, oversized, out-of-order and forged messages on both sockets of a server, beside a trainer that must not notice."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headrace
import pytest
from conftest import ServerFactory
from raw_client import LEASE, RawClient, Refused, answer_of, open_request, packet_socket
from running import Server, wait_until
from test_endless_messages import training
from zmtp import Dealer, encoded

ROUNDS = 20_000 if os.environ.get("HEADRACE_STRESS") else 1000
EPOCHS = 3  # that the trainer has to get while the faults go on


@contextmanager
def undisturbed(server: Server) -> Iterator[None]:
    """A trainer beside what follows: it gets all batches of its epochs, and goes on afterwards."""
    with training(server) as seen:
        wait_until(lambda: seen, "the trainer's first epoch")
        yield
        had = len(seen)
        wait_until(lambda: len(seen) >= had + EPOCHS, "the trainer to go on")
    assert set(seen) == {8}
    server.check_alive()


def bad_messages(server: Server) -> int:
    (line,) = (line for line in server.metrics().splitlines() if line.startswith("headrace_control_bad_messages_total "))
    return int(float(line.split()[1]))


def request(op: str, body: Any, **changed: Any) -> bytes:
    return json.dumps({"v": 1, "id": 7, "op": op, "body": body, **changed}).encode()


@pytest.fixture
def server(start_server: ServerFactory, basic_config: dict[str, Any]) -> Server:
    return start_server(basic_config)


def sound_requests() -> list[dict[str, Any]]:
    cursor = {"epoch": 0, "origin": 0, "batch": 0}
    bodies: dict[str, dict[str, Any]] = {
        "hello": {"client": "0", "layout": 2},
        "streams": {},
        "open": open_request(start=cursor, position=cursor),
        "cursor_set": {"session": "0" * 32, "cursor": cursor},
        "cursor_get": {"stream": "train", "group": "raw"},
        "failure": {"session": "0" * 32},
        "stats": {},
        "sample": {"stream": "train", "epoch": 0, "index": 0, "picture": ""},
    }
    return [{"v": 1, "id": 7, "op": op, "body": body} for op, body in bodies.items()]


WRONG: list[Any] = [None, -1, 2**63, 2**64, 1e300, "", "x" * 5000, "a\nb", "\x1b[31m", [], {}, [[[]]], True, {"epoch": -1}, "../..", 0.5]


def spoiled(chance: random.Random) -> bytes:
    """A request of which one member is missing, of another type or out of range; or a sound one, cut, doubled or with flipped bytes."""
    sound = json.loads(json.dumps(chance.choice(sound_requests())))
    at = chance.choice([sound, sound["body"] or sound])
    kind = chance.randrange(6)
    if kind == 0:
        at.pop(chance.choice(list(at)))
    elif kind == 1:
        at[chance.choice(list(at))] = chance.choice(WRONG)
    elif kind == 2:
        at[chance.choice(["extra", "", "v", "body"])] = chance.choice(WRONG)
    frame = json.dumps(sound).encode()
    if kind == 3:
        frame = frame[: chance.randrange(len(frame))]
    elif kind == 4:
        bytes_ = bytearray(frame)
        for _ in range(chance.randrange(1, 5)):
            bytes_[chance.randrange(len(bytes_))] = chance.randrange(256)
        frame = bytes(bytes_)
    elif kind == 5:
        frame = chance.choice([frame * 2, b"[" * 2000, chance.randbytes(chance.randrange(300)), b"\xff" * 70_000, b'{"v":1,' * 8000])
    return frame


@pytest.mark.timeout(1800)
def test_spoiled_requests_get_an_error_or_end_their_connection_and_are_counted(server: Server) -> None:
    chance = random.Random(35)
    answered = 0
    with undisturbed(server):
        before = bad_messages(server)
        dealer = Dealer(f"{server.address}/control.sock")
        for _ in range(ROUNDS):
            frame = spoiled(chance)
            try:
                if more := chance.random() < 0.05:  # a message of two frames
                    dealer.send(spoiled(chance), more)
                dealer.send(frame)
                answer = json.loads(dealer.receive())
                assert ("ok" in answer) != ("error" in answer)
                if "parameters" in answer.get("ok", {}):
                    dealer.receive()  # the sample itself
                assert answer.get("error", {}).get("code") != "INTERNAL", (frame, answer)
                answered += 1
            except OSError:  # the server closed it: too long a frame
                dealer.close()
                dealer = Dealer(f"{server.address}/control.sock")
        dealer.close()
        assert answered > ROUNDS / 4
        assert bad_messages(server) > before + ROUNDS / 10


@pytest.mark.parametrize("name", ["control.sock", "attach.sock"])
def test_random_bytes_end_only_their_connection(server: Server, name: str) -> None:
    chance = random.Random(36)
    kind = socket.SOCK_STREAM if name == "control.sock" else socket.SOCK_SEQPACKET
    greeting = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    with undisturbed(server):
        for number in range(ROUNDS):
            noise = chance.randbytes(chance.choice([1, 2, 64, 500, 60_000]))
            begin = [b"", greeting, b"headrace-attach 1 ", greeting[:11]][number % 4]
            with socket.socket(socket.AF_UNIX, kind) as peer, contextlib.suppress(OSError):
                peer.settimeout(0.2 if number % 10 == 0 else 0.001)
                peer.connect(f"{server.address}/{name}")
                peer.sendall(begin + noise)
                peer.recv(4096)
    assert headrace.streams(server.address)


def attach_answer(server: Server, packet: str, descriptors: list[int] | None = None) -> str:
    with packet_socket(server.address) as attaching:
        socket.send_fds(attaching, [packet.encode()], descriptors or [])
        said, received, _, _ = socket.recv_fds(attaching, 4096, 4)
        for each in received:
            os.close(each)
        return said.decode()


def test_frames_out_of_order_are_refused(server: Server) -> None:
    cursor = {"epoch": 0, "origin": 0, "batch": 0}
    with undisturbed(server):
        dealer = Dealer(f"{server.address}/control.sock")
        for op, body in (("cursor_set", {"session": "0" * 32, "cursor": cursor}), ("failure", {"session": "0" * 32})):
            with pytest.raises(Refused, match="TOKEN_INVALID"):
                answer_of(dealer, op, **body)
        before = bad_messages(server)
        dealer.send(request("stats", {}), more=True)
        dealer.send(request("stats", {}))
        assert b"a request is one frame" in dealer.receive()
        assert bad_messages(server) == before + 1
        dealer.socket.sendall(bytes([4, 6]) + b"\x05READY" + encoded(request("streams", {}), more=False))  # a second handshake
        with contextlib.suppress(OSError):
            dealer.receive()
        dealer.close()
        dealer = Dealer(f"{server.address}/control.sock")
        opened = answer_of(dealer, "open", **open_request())
        with pytest.raises(Refused, match="TOKEN_INVALID: no such session"):  # it is not attached yet
            answer_of(dealer, "cursor_set", session=opened["token"], cursor=cursor)
        assert attach_answer(server, f"headrace-attach 1 {'0' * 32}").startswith("error TOKEN_INVALID")
        assert attach_answer(server, f"headrace-attach 1 {opened['token']}").startswith("ok ")
        assert attach_answer(server, f"headrace-attach 1 {opened['token']}").startswith("error TOKEN_INVALID"), "a token is for once"
        assert attach_answer(server, "headrace").startswith("error BAD_MESSAGE")
        dealer.close()


def test_unexpected_descriptors_with_an_attach_packet_harm_nobody(server: Server, tmp_path: Path) -> None:
    """A file, a pipe and an eventfd in place of a process, and more of them than one."""
    read, write = os.pipe()
    (tmp_path / "file").touch()
    file, event = os.open(tmp_path / "file", os.O_RDONLY), os.eventfd(0)
    with undisturbed(server):
        descriptors = len(os.listdir(f"/proc/{server.popen.pid}/fd"))
        for some in ([file], [read], [write], [event], [file, read, write, event], [event] * 40):
            client = Dealer(f"{server.address}/control.sock")
            token = answer_of(client, "open", **open_request())["token"]
            with contextlib.suppress(OSError):
                attach_answer(server, f"headrace-attach 1 {token}", some)
            client.close()
            wait_until(lambda: "raw" not in [c["client"] for c in headrace.stats(server.address)["streams"]["train"]["clients"]], "its end")
        wait_until(lambda: len(os.listdir(f"/proc/{server.popen.pid}/fd")) <= descriptors, "all descriptors to be closed")
    for each in (read, write, file, event):
        os.close(each)


def test_another_version_is_refused_with_both_versions_named(server: Server) -> None:
    dealer = Dealer(f"{server.address}/control.sock")
    with undisturbed(server):
        both = r"VERSION_MISMATCH: the server \(headrace .*\) has ring layout 2, the client \(headrace 9\.9\) has 99"
        with pytest.raises(Refused, match=both):
            answer_of(dealer, "hello", client="9.9", layout=99)
        dealer.send(request("hello", {"client": "9.9", "layout": 2}, v=99))
        error = json.loads(dealer.receive())["error"]
        assert error["code"] == "VERSION_MISMATCH"
        assert "the peer speaks version 99, this side version 1" in error["message"]
        assert "ok" in dealer.ask("hello", client="9.9", layout=2), "the connection goes on"
        refused = attach_answer(server, f"headrace-attach 99 {'0' * 32}")
        assert refused.startswith("error VERSION_MISMATCH attach protocol: the peer speaks version 99, this side version 1"), refused
    dealer.close()


def test_garbage_in_a_clients_own_segment_ends_that_client_alone(server: Server) -> None:
    """The whole segment, over and over; then only its counters, which no client is dropped for."""
    chance = random.Random(21)
    with undisturbed(server):
        for number in range(10):
            client = RawClient(server.address, client=f"garbage{number}")
            with mmap.mmap(client.descriptors[LEASE], 0) as lease:
                for _ in range(50):
                    lease[:] = chance.randbytes(len(lease))
            who = f"client `garbage{number}` (pid {os.getpid()})"
            wait_until(lambda: f"{who} is dropped: its lease segment is invalid: " in server.output(), "the reason")  # noqa: B023
            gone = f"{who} disconnected from stream `train`: invalid data in its lease segment"
            wait_until(lambda: gone in server.output(), "its end")  # noqa: B023
            assert client.socket.recv(1) == b"", "the session is closed"
            client.close()
        client = RawClient(server.address, client="counters")
        with mmap.mmap(client.descriptors[LEASE], 0) as lease:
            for _ in range(200):
                lease[64:96] = struct.pack("=4Q", *(chance.getrandbits(64) for _ in range(4)))  # heartbeat and totals
                lease[128:184] = chance.randbytes(56)  # commits and both cursors
                lease[192:196] = chance.randbytes(4)  # whether it sleeps
        assert "headrace_client_wait_seconds_total" in server.metrics()
        json.dumps(headrace.stats(server.address))
        client.close()
    wait_until(lambda: len(headrace.stats(server.address)["streams"]["train"]["clients"]) == 0, "all clients' end")
    assert "`counters` (pid" in server.output()
