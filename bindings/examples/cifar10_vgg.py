"""CIFAR-10: a small VGG on crops and flips, on one device or on several ranks with DistributedDataParallel.

    python cifar10_vgg.py --epochs 10               # cifar10_vgg.yaml says where the data is
    torchrun --nproc-per-node 4 cifar10_vgg.py --device cuda --width 64
    python cifar10_vgg_dataloader.py --epochs 10    # the same, fed by torch's DataLoader
"""

from __future__ import annotations

from contextlib import nullcontext

import headrace
import torch
from job import RANK, WORLD_SIZE, Clock, arguments, ranks, served
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def vgg(width: int, classes: int = 10) -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for outputs in (width, 2 * width, 4 * width):
        for inputs in (channels, outputs):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
        channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


@torch.no_grad()
def evaluate(model, test, to):
    model.eval()
    correct = count = 0
    for image, label in test:
        image, label = image.to(**to), label.to(**to)
        correct += (model(image).argmax(1) == label).sum().item()
        count += len(label)
    return {"accuracy": correct / count, "test_samples": count}


def train(given, data, test):
    """Trains; only rank 0 reads `test`."""
    model = vgg(given.width).to(given.device, memory_format=torch.channels_last)
    trained = DistributedDataParallel(model) if WORLD_SIZE > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=given.epochs * len(data))
    clock, to = Clock(given), {"device": given.device, "non_blocking": True}
    for epoch in range(given.epochs):
        model.train()
        data.set_epoch(epoch)
        loss_sum = torch.zeros((), device=given.device)
        for image, label in clock.batches(data):
            image, label = image.to(**to), label.to(**to)
            optimizer.zero_grad()
            loss = cross_entropy(trained(image), label)
            loss.backward()
            optimizer.step()
            schedule.step()
            loss_sum += loss.detach()
        clock.end(loss=loss_sum.item() / len(data), **(evaluate(model, test, to) if RANK == 0 else {}))
    clock.print()


if __name__ == "__main__":
    given = arguments(__file__, __doc__, epochs=10, batch_size=128, on_ranks=True, width=16)
    with (
        ranks(given.device),
        served(given) as address,
        headrace.Loader(address, stream="train", device=given.device) as data,
        headrace.Loader(address, stream="test", device=given.device, world_size=1) if RANK == 0 else nullcontext() as test,
    ):
        train(given, data, test)
