"""A trainer of the chaos run, in Python: notes what it receives, saves checkpoints, and begins at its last one. See journal.py.

    python consumer.py '{"address": ..., "stream": ..., "journal": ..., "checkpoint": ..., "end": ..., ...}'

It runs until the file `end` names an epoch that it has reached. consumer.cpp does the same.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import headrace
import numpy as np
from headrace._headrace import Xxh3

# Errors that a trainer may meet while the server is killed, stopped, full or out of memory. It continues after them. Any other error ends
# the consumer and fails the run. TIMEOUT is not in this list: it means that no batch came for a minute.
SURVIVED = {
    "CLIENT_NAME_TAKEN", "DRAINING", "GROUP_MISMATCH", "LEASE_FENCED", "NOT_ENOUGH_MEMORY", "RANK_TAKEN", "RING_FULL", "SERVER_LOST",
    "SERVER_UNREACHABLE", "TOKEN_INVALID",
}  # fmt: skip


def hashes(batch: Any) -> list[str]:
    """SAMPLE=HASH of each valid row, over all of its fields."""
    fields = [np.asarray(value) for value in batch]
    rows = []
    for row in np.flatnonzero(np.asarray(batch.valid)):
        state = Xxh3()
        for values in fields:
            state.update(np.ascontiguousarray(values[row : row + 1]).reshape(-1).view(np.uint8))
        rows.append(f"{batch.sample_index[row]}={state.hexdigest()}")
    return rows


class Consumer:
    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.random = random.Random(f"{given['seed']} {os.getpid()}")
        self.parent = os.getppid()
        self.checkpoint, self.end = Path(given["checkpoint"]), Path(given["end"])
        saved: dict[str, Any] = json.loads(self.checkpoint.read_text()) if self.checkpoint.exists() else {"kept": 0, "state": given.get("state")}
        self.kept: int = saved["kept"]
        self.state: dict[str, Any] | None = saved["state"]
        self.journal = open(given["journal"], "a", buffering=1)  # noqa: SIM115
        self.journal.write(f"\nstart {time.monotonic():.6f} {self.kept}\n")

    def write(self, kind: str, rest: str) -> None:
        self.journal.write(f"{kind} {time.monotonic():.6f} {rest}\n")

    def survive(self, error: headrace.Error) -> None:
        """Notes an error, and pauses; ends the process if a trainer should not meet it."""
        self.write("error", f"{error.code} {' '.join(error.message.split())}")
        if error.code not in SURVIVED:
            sys.exit(f"consumer: {error}")
        time.sleep(0.05)

    def attach(self) -> headrace.Loader:
        given = self.given
        while True:
            try:
                return headrace.Loader(
                    given["address"], stream=given["stream"], client=given["name"], group=given["group"], rank=given["rank"],
                    world_size=given["world_size"], state=self.state, zero_copy=given["zero_copy"], output="numpy", timeout=20,
                    batch_timeout=60, reconnect_timeout=60,
                )  # fmt: skip
            except headrace.Error as error:
                self.survive(error)

    def save(self, loader: headrace.Loader) -> None:
        """As trainers do: whole, or not at all. A full disk leaves the last one."""
        new = self.checkpoint.with_suffix(".new")
        try:
            new.write_text(json.dumps({"kept": self.kept, "state": loader.state_dict()}))
            new.rename(self.checkpoint)
        except OSError as error:
            new.unlink(missing_ok=True)
            self.write("error", f"CHECKPOINT {error}")
        else:
            self.write("save", str(self.kept))

    def reached(self, epoch: int) -> bool:
        return self.end.exists() and epoch >= int(self.end.read_text())

    def run(self) -> None:
        with self.attach() as loader:
            until_save = self.random.randint(1, 6)
            while not self.reached(loader.epoch):
                try:
                    for batch in loader:
                        self.write("batch", f"{batch.epoch} {batch.number} {' '.join(hashes(batch))}")
                        self.kept += 1
                        del batch
                        until_save -= 1
                        if until_save == 0:
                            until_save = self.random.randint(1, 6)
                            self.save(loader)
                        time.sleep(self.random.uniform(0, self.given["step"]))
                        if os.getppid() != self.parent:
                            sys.exit("consumer: the harness has ended")
                except headrace.Error as error:
                    self.survive(error)
            self.save(loader)
        self.write("end", "")


if __name__ == "__main__":
    Consumer(json.loads(sys.argv[1])).run()
