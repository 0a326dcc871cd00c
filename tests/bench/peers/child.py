"""A trainer process: opens a loader, describes its first batches, then measures on command.

    python -m peers.child JOB          (JSON of workloads.Job; commands on stdin, replies on stdout, one JSON line each)

"ready" has shapes, dtypes, means and standard deviations of the first batches, "error" has the message of a failure. `{"warm": s,
"seconds": s, "roots": [pid]}` is answered by samples, seconds and CPU seconds of the process trees below the roots. Trainers of rank 1 and
up read batches without commands. The file `counts` has the number of samples that each received.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import select
import struct
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peers import processes
from peers.workloads import Job

CHECKED_SAMPLES = 256
MOST_TRAINERS = 64


class Counts:
    """The number of samples that each trainer of a loader has received: a word per rank in a file that all trainers map."""

    def __init__(self, folder: Path) -> None:
        with open(folder / "counts", "a+b") as file:
            file.truncate(8 * MOST_TRAINERS)
            self._words = mmap.mmap(file.fileno(), 8 * MOST_TRAINERS)

    def put(self, rank: int, samples: int) -> None:
        struct.pack_into("q", self._words, 8 * rank, samples)

    def all(self) -> int:
        return sum(struct.unpack(f"{MOST_TRAINERS}q", self._words))


def described(batches: list[Any]) -> list[dict[str, Any]]:
    """For each image field: its shape and dtype, and mean and standard deviation over these batches."""
    import numpy as np

    fields = []
    for index in range(len(batches[0])):
        arrays = [np.asarray(batch[index]) for batch in batches]
        if arrays[0].ndim < 4:
            continue
        values = np.concatenate([array.astype(np.float64).ravel() for array in arrays])
        shape = [int(side) for side in arrays[0].shape]
        fields.append({"shape": shape, "dtype": str(arrays[0].dtype), "mean": values.mean(), "std": values.std()})
    return fields


class Trainer:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.counts = Counts(Path(job.folder))
        self.samples = 0
        module = importlib.import_module(f"peers.loaders.{job.module}")
        self.batches: Iterator[Any] = module.open_batches(job)

    def take(self) -> Any:
        batch = next(self.batches)
        self.samples += len(batch[0])
        self.counts.put(self.job.rank, self.samples)
        return batch

    def check(self) -> list[dict[str, Any]]:
        """Copies the batches, because a loader may reuse a batch's memory."""
        import numpy as np

        first = []
        while len(first) * self.job.workload.batch < CHECKED_SAMPLES:
            first.append([np.asarray(field).copy() for field in self.take()])
        return described(first)

    def measure(self, warm: float, seconds: float, roots: list[int], samples: int = 0) -> dict[str, float]:
        """Whole batches: from the first one after `warm` seconds (and `samples`) to the first one after `seconds` more."""
        begun = self.samples
        until = time.monotonic() + warm
        while time.monotonic() < until or self.samples - begun < samples:
            self.take()
        taken, cpu, start = self.counts.all(), processes.cpu_seconds(roots), time.monotonic()
        until = start + seconds
        while time.monotonic() < until:
            self.take()
        wall = time.monotonic() - start
        taken, cpu = self.counts.all() - taken, processes.cpu_seconds(roots) - cpu
        return {"samples": taken, "seconds": wall, "cpu": cpu}


def main() -> None:
    processes.keep_descendants()
    processes.end_with_parent()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of libraries goes to the log

    def reply(**fields: Any) -> None:
        print(json.dumps(fields), file=replies, flush=True)

    try:
        job = Job.from_json(sys.argv[1])
        if cores := job.options.get("cores"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
        time.sleep(job.rank * job.workload.apart)
        trainer = Trainer(job)
        reply(ready=trainer.check())
        while trainer.job.rank or (job.workload.apart and not select.select([sys.stdin], [], [], 0)[0]):
            trainer.take()  # the others, and the first trainer until the last one has started
        for line in sys.stdin:
            reply(measured=trainer.measure(**json.loads(line)))
    except BaseException as error:
        traceback.print_exc()
        reply(error=f"{type(error).__name__}: {' '.join(str(error).split())}"[:300])
    replies.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
