"""A client without the client library: it opens and attaches as clientlib/wire/protocol.h says, and may then do what no library does.

As a program, it attaches again and again in processes that are killed: python raw_client.py ADDRESS STREAM COUNT
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from typing import Any

from zmtp import Dealer

DATA, CONTROL, LEASE, DOORBELL = range(4)  # the order of the descriptors in the answer


def open_request(**changed: Any) -> dict[str, Any]:
    names = {"stream": "train", "group": "raw", "client": "raw"}
    return {**names, "rank": 0, "world_size": 1, "pid": os.getpid(), "join": "default", "resume_server": False, **changed}


class Refused(Exception):
    """The server's error, with its code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


def packet_socket(address: str) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connected.settimeout(10)
    connected.connect(f"{address}/attach.sock")
    return connected


def answer_of(control: Dealer, op: str, **body: Any) -> dict[str, Any]:
    answer = control.ask(op, **body)
    if "error" in answer:
        raise Refused(answer["error"]["code"], answer["error"]["message"])
    value: dict[str, Any] = answer["ok"]
    return value


class RawClient:
    """An attached client. `descriptors`: data, control, lease, doorbell."""

    def __init__(self, address: str, **request: Any) -> None:
        self.control = Dealer(f"{address}/control.sock")
        self.opened = answer_of(self.control, "open", **open_request(**request))
        self.socket = packet_socket(address)
        self.socket.send(f"headrace-attach 1 {self.opened['token']}".encode())
        said, self.descriptors, _, _ = socket.recv_fds(self.socket, 65536, 4)
        if not said.startswith(b"ok "):
            _, code, message = said.decode().split(" ", 2)
            raise Refused(code, message)

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []
        self.socket.close()
        self.control.close()


def opened_once_free(control: Dealer, **request: Any) -> dict[str, Any]:
    """The server may not have read yet that the former client attached, and is dead: for the moment it holds the rank."""
    end = time.monotonic() + 10
    while True:
        try:
            return answer_of(control, "open", **open_request(**request))
        except Refused as refused:
            if refused.code != "RANK_TAKEN" or time.monotonic() > end:
                raise
        time.sleep(0.002)


def attach_and_die(address: str, stream: str, number: int) -> None:
    """Every third one dies before it has read the server's answer, so that the descriptors are in flight."""
    control = Dealer(f"{address}/control.sock")
    opened = opened_once_free(control, stream=stream, client=f"c{number}", pid=os.getpid())
    attaching = packet_socket(address)
    attaching.send(f"headrace-attach 1 {opened['token']}".encode())
    if number % 3:
        said, _, _, _ = socket.recv_fds(attaching, 65536, 4)
        assert said.startswith(b"ok "), said
    os.kill(os.getpid(), signal.SIGKILL)


def main(address: str, stream: str, count: int) -> None:
    for number in range(count):
        child = os.fork()
        if child == 0:
            try:
                attach_and_die(address, stream, number)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            raise SystemExit(f"client {number} was not killed: see above")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
