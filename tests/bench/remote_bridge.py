"""A bridge without Ray for remote.py: its own makers are processes that send their rows over TCP.

    python3 remote_bridge.py ADDRESS CONFIG MAKERS        the bridge of a server, which starts its makers
    python3 remote_bridge.py --maker PORT CONFIG          a maker

The bridge does what any transport must do on a trainer's node: it receives each row into memory that the server can read, once.
"""

from __future__ import annotations

import json
import queue
import socket
import subprocess
import sys
import threading
from typing import Any

import numpy as np
from peers import processes

ORDERS_EACH = 4  # of each maker, so that every free slot of the ring is ordered
START_SECONDS = 60.0


def make(port: int, config: str) -> None:
    """Makes what the bridge asks for until it ends the connection."""
    import headrace

    maker = headrace.Maker(config, "train", output="numpy")
    with socket.create_connection(("127.0.0.1", port)) as bridge, bridge.makefile("r") as orders:
        for line in orders:
            batch = maker.rows(*json.loads(line))
            for array in [*batch, batch.sample_index, batch.replaced]:
                bridge.sendall(memoryview(np.ascontiguousarray(array)).cast("B"))


class Receiver:
    """Has orders made by makers. The memory of released orders is used again."""

    def __init__(self, address: str, config: str, makers: int) -> None:
        from headrace._bridge import Bridge, Order

        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._free: list[list[Any]] = []
        self._used: dict[int, list[Any]] = {}
        self._lock = threading.Lock()
        self.lost = threading.Event()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(START_SECONDS)
            command = [sys.executable, __file__, "--maker", str(listener.getsockname()[1]), config]
            self.makers = [subprocess.Popen(command) for _ in range(makers)]
            connections = [listener.accept()[0] for _ in self.makers]
        self.bridge = Bridge(
            address, ORDERS_EACH * makers, on_order=self._orders.put, on_release=self._released,
            on_refused=lambda node, why: sys.exit(f"{node}: {why}"), on_lost=lambda _: self.lost.set(),
        )  # fmt: skip
        for number, connection in enumerate(connections):
            connection.settimeout(None)
            threading.Thread(target=self._receive, args=(f"maker-{number}", connection), daemon=True).start()

    def _receive(self, name: str, connection: socket.socket) -> None:
        while True:
            order = self._orders.get()
            arrays = self._memory(order.rows)
            try:
                connection.sendall(json.dumps([order.epoch, order.first, order.rows]).encode() + b"\n")
                for array in arrays:
                    self._fill(connection, array)
            except OSError as error:
                self.bridge.failed(order.id, name, str(error))
                return
            with self._lock:
                self._used[order.id] = arrays
            if not self.bridge.made(order.id, name, sum(array.nbytes for array in arrays), arrays[:-2], arrays[-2], arrays[-1]):
                self._released(order.id)

    @staticmethod
    def _fill(connection: socket.socket, array: Any) -> None:
        left = memoryview(array).cast("B")
        while left:
            count = connection.recv_into(left, 0, socket.MSG_WAITALL)
            if count == 0:
                raise ConnectionError("the maker ended")
            left = left[count:]

    def _memory(self, rows: int) -> list[Any]:
        with self._lock:
            for index, arrays in enumerate(self._free):
                if len(arrays[-1]) == rows:
                    return self._free.pop(index)
        fields = [(field.dtype, field.shape) for field in self.bridge.streams["train"].info.fields]
        return [np.zeros((rows, *shape), dtype) for dtype, shape in [*fields, ("int64", ()), ("bool", ())]]

    def _released(self, order: int) -> None:
        with self._lock:
            arrays = self._used.pop(order, None)
            if arrays is not None:
                self._free.append(arrays)


def main() -> None:
    processes.end_with_parent()
    if sys.argv[1] == "--maker":
        return make(int(sys.argv[2]), sys.argv[3])
    receiver = Receiver(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    print(json.dumps({"makers": [maker.pid for maker in receiver.makers]}), flush=True)
    receiver.lost.wait()
    for maker in receiver.makers:
        maker.kill()
        maker.wait()


if __name__ == "__main__":
    main()
