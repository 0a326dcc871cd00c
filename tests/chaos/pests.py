"""Processes that trouble a server for a while, then end:  python pests.py attach|bytes|memory ADDRESS SECONDS SEED [CGROUP]"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import python_tests  # noqa: F401

SENT = "messages sent: "
STREAMS = ("folder", "wide", "tar", "packed", "web")


def attach(address: str, until: float, seed: int) -> None:
    """Attaches and detaches as fast as three threads can, and dies attached."""
    import headrace
    from consumer import SURVIVED

    expected = SURVIVED | {"TIMEOUT"}  # its timeouts are short

    def storm(number: int) -> None:
        chance = random.Random(seed + number)
        while time.monotonic() < until:
            stream = chance.choice(STREAMS)
            try:
                group = f"storm-{os.getpid()}-{number}"
                loader = headrace.Loader(address, stream=stream, group=group, rank=0, world_size=1, output="numpy", timeout=2, batch_timeout=2, reconnect_timeout=1)
                if chance.random() < 0.5:
                    next(iter(loader), None)
                if chance.random() < 0.9:
                    loader.close()
            except BaseException as error:
                if not (isinstance(error, headrace.Error) and error.code in expected):
                    traceback.print_exc()
                    os._exit(1)

    threads = [threading.Thread(target=storm, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)


def send_bytes(address: str, until: float, seed: int) -> None:
    """Sends random bytes, half messages and endless ones to both sockets, and often hangs up."""
    from zmtp import Dealer

    chance = random.Random(seed)
    held: list[socket.socket] = []

    def noise() -> bytes:
        return chance.randbytes(chance.choice([1, 10, 64, 1000, 70_000]))

    def to_attach() -> None:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        peer.settimeout(0.2)
        held.append(peer)
        peer.connect(f"{address}/attach.sock")
        peer.send(chance.choice([noise(), b"headrace-attach 1 ", b"headrace-attach 1 " + noise().hex().encode()[:64]]))

    def to_control() -> None:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.settimeout(0.2)
        held.append(peer)
        peer.connect(f"{address}/control.sock")
        peer.send(noise())

    def messages() -> None:
        dealer = Dealer(f"{address}/control.sock", timeout=0.2)
        held.append(dealer.socket)
        for _ in range(chance.randint(1, 8)):
            request = b'{"v":1,"id":1,"op":"' + chance.choice([b"open", b"stats", b"cursor_set", b"nothing"]) + b'","body":{'
            dealer.send(chance.choice([noise(), request, request + b"}}", b"[" * 1000]), more=chance.random() < 0.3)

    what: list[Callable[[], None]] = [to_attach, to_control, messages]
    sent = 0
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            chance.choice(what)()
            sent += 1
        if len(held) > 30:
            held.pop(chance.randrange(len(held))).close()
        time.sleep(0.002)
    print(f"{SENT}{sent}", flush=True)


def use_memory(until: float, cgroup: str) -> None:
    """Uses what the server's control group allows. The kernel kills the child that does, before the server; the next one follows."""
    while time.monotonic() < until:
        child = os.fork()
        if child:
            if os.waitpid(child, 0)[1] not in (0, signal.SIGKILL):
                sys.exit(1)
            continue
        Path("/proc/self/oom_score_adj").write_text("1000")
        (Path(cgroup) / "cgroup.procs").write_text(str(os.getpid()))
        held: list[bytes] = []
        while time.monotonic() < until:
            held.append(b"x" * (1 << 23))
            time.sleep(0.005)
        os._exit(0)


if __name__ == "__main__":
    kind, address, seconds, seed = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    end = time.monotonic() + seconds
    if kind == "attach":
        attach(address, end, seed)
    elif kind == "bytes":
        send_bytes(address, end, seed)
    else:
        use_memory(end, sys.argv[5])
