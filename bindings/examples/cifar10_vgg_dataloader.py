"""CIFAR-10: a small VGG on crops and flips, on one device or on several ranks with DistributedDataParallel.

    python cifar10_vgg.py --epochs 10               # cifar10_vgg.yaml says where the data is
    torchrun --nproc-per-node 4 cifar10_vgg.py --device cuda --width 64
    python cifar10_vgg_dataloader.py --epochs 10    # the same, fed by torch's DataLoader
"""

from __future__ import annotations

import numpy as np
import torch
from job import RANK, WORLD_SIZE, Clock, arguments, ranks
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision.transforms import v2


class Cifar10(Dataset):
    """The binary version in memory. (torchvision.datasets.CIFAR10 reads the pickled version alike.)"""

    def __init__(self, folder, files, transform):
        records = np.concatenate([np.fromfile(folder / name, np.uint8).reshape(-1, 3073) for name in files])
        self.labels = records[:, 0].astype(np.int64)
        self.images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.images[index]), self.labels[index]


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
        data.sampler.set_epoch(epoch)
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
    folder = given.data / "cifar-10-batches-bin"
    pixels = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616])]
    augmented = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), *pixels])
    train_set = Cifar10(folder, [f"data_batch_{part}.bin" for part in range(1, 6)], augmented)
    test_set = Cifar10(folder, ["test_batch.bin"], v2.Compose(pixels))
    options = {"num_workers": given.workers, "persistent_workers": given.workers > 0, "pin_memory": given.device != "cpu"}
    sampler = DistributedSampler(train_set, WORLD_SIZE, RANK, seed=given.seed)
    data = DataLoader(train_set, batch_size=given.batch_size, sampler=sampler, **options)
    test = DataLoader(test_set, batch_size=500, **options) if RANK == 0 else None
    with ranks(given.device):
        train(given, data, test)
    del data, test  # ends the workers now: at exit, torch waits 5 s for each
