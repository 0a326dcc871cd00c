"""A trainer process of remote.py and worker_death.py: receives as many batches as it is asked for.

    python3 remote_client.py ADDRESS        the stream `train` of a Headrace server

It reads JSON lines from stdin: `{"batches": n, "step": seconds}`. It answers each with `{"rows": n}` on stdout. It
sleeps for `step` after each batch, as if it trained. `remote_tf.py client` is the same for tf.data service.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from peers import processes


def answer(batches: Iterator[Any]) -> None:
    """Answers requests until stdin ends. The batches are fields, of which the last one is the labels."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of libraries goes to the log
    print(json.dumps({"rows": len(next(batches)[-1])}), file=replies, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        rows = 0
        for _ in range(asked["batches"]):
            rows += len(next(batches)[-1])
            time.sleep(asked["step"])
        print(json.dumps({"rows": rows}), file=replies, flush=True)


def epochs(address: str) -> Iterator[Any]:
    """The batches of all epochs, without end."""
    import headrace

    with headrace.Loader(address, stream="train", zero_copy=True, output="numpy") as loader:
        while True:
            yield from loader


if __name__ == "__main__":
    processes.end_with_parent()
    answer(epochs(sys.argv[1]))
