"""One rank of a job on gloo: trains a linear model for two epochs with DistributedDataParallel; rank 0 prints what all ranks received."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import headrace
import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: this module keeps the default group that exists when it is first imported
from torch.nn.parallel import DistributedDataParallel


def train(address: str) -> list[dict[str, Any]]:
    report: list[dict[str, Any]] = []
    with headrace.Loader(address, stream="train", output="torch") as loader:
        model = DistributedDataParallel(torch.nn.Linear(3 * 32 * 32, len(loader.classes)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(2):
            seen: list[int] = []
            losses = []
            for batch in loader:
                image, label = batch
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(image.flatten(1).float() / 255), label)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                seen += batch.sample_index[batch.valid].tolist()
            ranks: list[Any] = [None] * dist.get_world_size()
            weights = [p.detach().double().sum().item() for p in model.parameters()]
            dist.all_gather_object(
                ranks, {"seen": seen, "batches": len(losses), "weights": weights, "losses": losses}
            )
            report += [{"ranks": ranks, "len": len(loader)}]
    return report


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    report = train(sys.argv[1])
    if dist.get_rank() == 0:
        print(json.dumps(report), flush=True)
    gc.collect()  # a DistributedDataParallel that still exists keeps the group, too
    dist.destroy_process_group()
    threads = [task.joinpath("comm").read_text() for task in Path("/proc/self/task").iterdir()]
    assert not any("gloo" in name for name in threads), f"a thread of gloo that outlives the group may abort the process: {threads}"


if __name__ == "__main__":
    main()
