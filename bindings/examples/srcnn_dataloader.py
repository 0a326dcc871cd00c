"""SRCNN (Dong et al., 2014) on pairs with a scale factor of 4: aligned random patches, flips, 90-degree rotations; PSNR of luma on held-out pairs.

    python srcnn.py --epochs 20 --batch-size 16     # srcnn.yaml says where the data is
    python srcnn_dataloader.py --epochs 20          # the same, fed by torch's DataLoader
"""

from __future__ import annotations

import torch
from job import Clock, arguments
from PIL import Image
from torch import nn
from torch.nn.functional import interpolate, mse_loss
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.v2.functional import center_crop, pil_to_tensor


def pixels(path):
    return pil_to_tensor(Image.open(path).convert("RGB"))


def luma(image):
    """The luma by BT.601, 16 to 235, on which super-resolution is measured."""
    red, green, blue = image.float()
    return ((65.481 * red + 128.553 * green + 24.966 * blue) / 255 + 16).round().unsqueeze(0) / 255


def patch(lr, hr, size=12):
    y, x = (int(torch.randint(side - size + 1, ())) for side in lr.shape[1:])
    lr, hr = lr[:, y : y + size, x : x + size], hr[:, 4 * y : 4 * (y + size), 4 * x : 4 * (x + size)]
    if torch.rand(()) < 0.5:
        lr, hr = lr.flip(2), hr.flip(2)
    turns = int(torch.randint(4, ()))
    return lr.rot90(turns, (1, 2)), hr.rot90(turns, (1, 2))


def middle(lr, hr, size=80):
    return center_crop(lr, [size, size]), center_crop(hr, [4 * size, 4 * size])


class Pairs(Dataset):
    """Pairs of lr/NAME and hr/NAME, decoded once. Each pair appears `times` times in an epoch."""

    def __init__(self, folder, cut, times=1):
        names = sorted(path.name for path in (folder / "hr").iterdir())
        self.pairs = [[pixels(folder / side / name) for side in ("lr", "hr")] for name in names]
        self.cut, self.times = cut, times

    def __len__(self):
        return self.times * len(self.pairs)

    def __getitem__(self, index):
        lr, hr = self.cut(*self.pairs[index % len(self.pairs)])
        return {"lr": luma(lr), "hr": luma(hr)}


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
    options = {"num_workers": given.workers, "persistent_workers": given.workers > 0, "pin_memory": given.device != "cpu"}
    train_set, test_set = Pairs(given.data / "pairs/train", patch, times=8), Pairs(given.data / "pairs/test", middle)
    data = DataLoader(train_set, batch_size=given.batch_size, shuffle=True, **options)
    test = DataLoader(test_set, batch_size=8, **options)
    train(given, data, test)
    del data, test  # ends the workers now: at exit, torch waits 5 s for each
