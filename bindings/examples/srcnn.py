"""SRCNN (Dong et al., 2014) on pairs with a scale factor of 4: aligned random patches, flips, 90-degree rotations; PSNR of luma on held-out pairs.

    python srcnn.py --epochs 20 --batch-size 16     # srcnn.yaml says where the data is
    python srcnn_dataloader.py --epochs 20          # the same, fed by torch's DataLoader
"""

from __future__ import annotations

import headrace
import torch
from job import Clock, arguments, served
from torch import nn
from torch.nn.functional import interpolate, mse_loss


class SRCNN(nn.Module):
    """Three convolutions over the bicubically enlarged image. They learn the residual to the high-resolution image, which takes fewer steps."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 64, 9, padding=4), nn.ReLU(), nn.Conv2d(64, 32, 1), nn.ReLU(), nn.Conv2d(32, 1, 5, padding=2)
        )
        nn.init.normal_(self.layers[-1].weight, std=1e-3)  # the paper's; with the residual, training begins at the bicubic result
        nn.init.zeros_(self.layers[-1].bias)

    def forward(self, enlarged):
        return enlarged + self.layers(enlarged)


def enlarged(lr):
    return interpolate(lr, scale_factor=4, mode="bicubic").clamp(0, 1)


def psnr(image, target):
    """The PSNR of each image of a batch, in dB."""
    return -10 * (image - target).square().mean(dim=(1, 2, 3)).log10()


@torch.no_grad()
def evaluate(model, test, to):
    model.eval()
    scores, bicubic = [], []
    for batch in test:
        lr, hr = enlarged(batch["lr"].to(**to)), batch["hr"].to(**to)
        scores.append(psnr(model(lr).clamp(0, 1), hr))
        bicubic.append(psnr(lr, hr))
    scores = torch.cat(scores)
    return {"psnr": scores.mean().item(), "bicubic": torch.cat(bicubic).mean().item(), "test_samples": len(scores)}


def train(given, data, test):
    model = SRCNN().to(given.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    clock, to = Clock(given), {"device": given.device, "non_blocking": True}
    for _ in range(given.epochs):
        model.train()
        loss_sum = torch.zeros((), device=given.device)
        for batch in clock.batches(data):
            lr, hr = enlarged(batch["lr"].to(**to)), batch["hr"].to(**to)
            optimizer.zero_grad()
            loss = mse_loss(model(lr), hr)
            loss.backward()
            optimizer.step()
            loss_sum += loss.detach()
        clock.end(loss=loss_sum.item() / len(data), **evaluate(model, test, to))
    clock.print()


if __name__ == "__main__":
    given = arguments(__file__, __doc__, epochs=20, batch_size=16)
    with (
        served(given) as address,
        headrace.Loader(address, stream="train", device=given.device, batch="dict") as data,
        headrace.Loader(address, stream="test", device=given.device, batch="dict") as test,
    ):
        train(given, data, test)
