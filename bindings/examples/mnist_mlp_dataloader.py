"""MNIST: a multilayer perceptron of 784-600-300-100-10 units, and its accuracy on the test set.

    python mnist_mlp.py --epochs 10                 # mnist_mlp.yaml says where the data is
    python mnist_mlp_dataloader.py --epochs 10      # the same, fed by torch's DataLoader
"""

from __future__ import annotations

import torch
from job import Clock, arguments
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torchvision.datasets import MNIST
from torchvision.transforms import v2


def mlp() -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in ((784, 600), (600, 300), (300, 100)):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(100, 10))


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
    model = mlp().to(given.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    clock, to = Clock(given), {"device": given.device, "non_blocking": True}
    for _ in range(given.epochs):
        model.train()
        loss_sum = torch.zeros((), device=given.device)
        for image, label in clock.batches(data):
            image, label = image.to(**to), label.to(**to)
            optimizer.zero_grad()
            loss = cross_entropy(model(image), label)
            loss.backward()
            optimizer.step()
            loss_sum += loss.detach()
        clock.end(loss=loss_sum.item() / len(data), **evaluate(model, test, to))
    clock.print()


if __name__ == "__main__":
    given = arguments(__file__, __doc__, epochs=10, batch_size=300)
    pixels = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.1307], [0.3081])])
    options = {"num_workers": given.workers, "persistent_workers": given.workers > 0, "pin_memory": given.device != "cpu"}
    data = DataLoader(MNIST(given.data, train=True, transform=pixels), given.batch_size, shuffle=True, **options)
    test = DataLoader(MNIST(given.data, train=False, transform=pixels), 300, **options)
    train(given, data, test)
    del data, test  # ends the workers now: at exit, torch waits 5 s for each
