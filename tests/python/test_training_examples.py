"""The training examples (bindings/examples) and their DataLoader twins, on small sets that are made here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import recorded_example
from running import ROOT
from training_sets import write_sets

EXAMPLES = ROOT / "bindings/examples"
PROGRAMS = ("mnist_mlp", "cifar10_vgg", "srcnn")
SMALL = {"mnist": (700, 430), "cifar": (250, 530), "pairs": (6, 9)}


def folder_of(folder: Path, **counts: tuple[int, int]) -> Path:
    """The examples' configurations, and the sets where they look for them."""
    write_sets(folder / "data", **counts)
    for name in PROGRAMS:
        shutil.copy(EXAMPLES / f"{name}.yaml", folder)
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("small"), **SMALL)


class Ran:
    """What a program printed at its end, and what its loaders gave to each rank."""

    def __init__(self, printed: str, ranks: list[recorded_example.Seen]) -> None:
        self.line: dict[str, Any] = json.loads(printed)
        self.last: dict[str, Any] = self.line["last"]
        self.ranks = ranks

    def each(self, name: str) -> list[float]:
        return [epoch[name] for epoch in self.line["epochs"]]

    def train(self, epoch: int) -> list[tuple[int, bool]]:
        """(sample, valid) of all ranks' rows."""
        return [tuple(row) for rank in self.ranks for batch in rank["train"][epoch] for row in batch]

    def check_test(self, samples: int, sizes: list[int]) -> None:
        """Each evaluation has had exactly the test samples in their order, the last batch short."""
        assert self.last["test_samples"] == samples
        for batches in self.ranks[0]["test"]:
            assert [len(batch) for batch in batches] == sizes
            assert [tuple(row) for batch in batches for row in batch] == [(index, True) for index in range(samples)]


def example(capsys: pytest.CaptureFixture[str], folder: Path, name: str, *arguments: object) -> Ran:
    given = map(str, ("--config", folder / f"{name}.yaml", *arguments))
    seen = recorded_example.run(EXAMPLES / f"{name}.py", *given)
    return Ran(capsys.readouterr().out, [seen])


def twin(capsys: pytest.CaptureFixture[str], folder: Path, name: str, *arguments: object) -> Ran:
    recorded_example.run(EXAMPLES / f"{name}_dataloader.py", *map(str, ("--data", folder / "data", *arguments)))
    return Ran(capsys.readouterr().out, [])


def torchrun(ranks: int, *command: object) -> str:
    """What the job printed."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    job = subprocess.run([*torchrun, *map(str, command)], capture_output=True, text=True, timeout=600)
    assert job.returncode == 0, job.stdout + job.stderr
    return job.stdout


def test_mnist_mlp(capsys: pytest.CaptureFixture[str], small: Path) -> None:
    ran = example(capsys, small, "mnist_mlp", "--epochs", 4, "--batch-size", 64)
    epochs = [ran.train(epoch) for epoch in range(4)]
    assert [sorted(rows) for rows in epochs] == [[(index, True) for index in range(700)]] * 4
    assert epochs[0] != epochs[1]
    assert [len(batch) for batch in ran.ranks[0]["train"][0]] == [64] * 10 + [60]
    ran.check_test(430, [300, 130])
    losses = ran.each("loss")
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.5 * losses[0]
    assert ran.last["accuracy"] > 0.5
    assert ran.each("samples") == [700] * 4 and 0 <= ran.line["wait_share"] <= 1


def check_cifar10(ran: Ran, ranks: int) -> None:
    """250 samples in batches of 64 of all ranks together: no whole number of batches on any number of ranks."""
    assert ran.line["ranks"] == len(ran.ranks) == ranks
    for epoch in range(3):
        rows = ran.train(epoch)
        assert sorted(index for index, valid in rows if valid) == list(range(250))
        assert sum(not valid for _, valid in rows) < ranks
        assert len({len(rank["train"][epoch]) for rank in ran.ranks}) == 1, "a rank with fewer batches would hang the others"
    ran.check_test(530, [500, 30])
    assert all("test" not in rank for rank in ran.ranks[1:])
    losses = ran.each("loss")
    assert losses[-1] < 0.95 * losses[0]


CIFAR10 = ("--epochs", 3, "--batch-size", 64, "--width", 4)


def test_cifar10_vgg(capsys: pytest.CaptureFixture[str], small: Path) -> None:
    check_cifar10(example(capsys, small, "cifar10_vgg", *CIFAR10), 1)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_cifar10_vgg_on_ranks(small: Path, tmp_path: Path, ranks: int) -> None:
    recorder, program = ROOT / "tests/python/recorded_example.py", EXAMPLES / "cifar10_vgg.py"
    printed = torchrun(ranks, recorder, tmp_path, program, "--config", small / "cifar10_vgg.yaml", *CIFAR10)
    check_cifar10(Ran(printed, [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(ranks)]), ranks)


def test_srcnn(capsys: pytest.CaptureFixture[str], small: Path) -> None:
    ran = example(capsys, small, "srcnn", "--epochs", 4, "--batch-size", 20)
    for epoch in range(4):
        assert sorted(ran.train(epoch)) == [(index, True) for index in range(6 * 8)]
    assert [len(batch) for batch in ran.ranks[0]["train"][0]] == [20, 20, 8]
    ran.check_test(9, [8, 1])
    psnr = ran.each("psnr")
    assert psnr[-1] > psnr[0] and len(set(ran.each("bicubic"))) == 1


@pytest.mark.parametrize(("name", "train", "test"), [("mnist_mlp", 700, 430), ("cifar10_vgg", 250, 530), ("srcnn", 48, 9)])
def test_a_twin_trains_and_tests_on_as_many(
    capsys: pytest.CaptureFixture[str], small: Path, name: str, train: int, test: int
) -> None:
    ran = twin(capsys, small, name, "--epochs", 4, "--workers", 0)
    assert ran.each("samples") == [train] * 4 and ran.last["test_samples"] == test
    metric = "psnr" if name == "srcnn" else "accuracy"
    assert ran.last[metric] > ran.each(metric)[0]


def test_bicubic_is_the_same_of_both(capsys: pytest.CaptureFixture[str], small: Path) -> None:
    """No model is in it: test pictures, their crops and their luma are alike."""
    one, other = (run(capsys, small, "srcnn", "--epochs", 1) for run in (example, lambda *a: twin(*a, "--workers", 0)))
    assert one.last["bicubic"] == other.last["bicubic"]
