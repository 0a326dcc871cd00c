"""Tests the training examples (bindings/examples) and their DataLoader versions on small datasets that are generated here. With
HEADRACE_STRESS each example is trained until it fits its dataset, and must learn as much as its DataLoader version."""

from __future__ import annotations

import difflib
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import headrace
import numpy as np
import pytest
import recorded_example
import torch
import yaml
from running import ROOT
from training_sets import CIFAR_TEST, CIFAR_TRAIN, write_sets

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


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two that wait for each other by spinning lose most of their time where other tests run, too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Ran:
    """The last line of a program's output, and the batches that its loaders gave to each rank."""

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
        """Checks that each evaluation had exactly the test samples, in order, with a short last batch."""
        assert self.last["test_samples"] == samples
        for batches in self.ranks[0]["test"]:
            assert [len(batch) for batch in batches] == sizes
            assert [tuple(row) for batch in batches for row in batch] == [(index, True) for index in range(samples)]


def example(capsys: pytest.CaptureFixture[str], folder: Path, name: str, *arguments: object) -> Ran:
    given = map(str, ("--config", folder / f"{name}.yaml", *arguments))
    seen = recorded_example.run(EXAMPLES / f"{name}.py", *given)
    return Ran(capsys.readouterr().out, [seen])


def dataloader_version(capsys: pytest.CaptureFixture[str], folder: Path, name: str, *arguments: object) -> Ran:
    recorded_example.run(EXAMPLES / f"{name}_dataloader.py", *map(str, ("--data", folder / "data", *arguments)))
    return Ran(capsys.readouterr().out, [])


def launch(ranks: int, *command: object) -> str:
    """The output of a program in its own process, or as a job of torchrun."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}") if ranks else ()
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    job = subprocess.run(
        [sys.executable, *torchrun, *map(str, command)], capture_output=True, text=True, timeout=600, env=env
    )
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


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", (EXAMPLES / "README.md").read_text(), re.DOTALL)
    return str(found)


def pickled_cifar10(data: Path) -> None:
    """Writes the dataset in `data` as torchvision's files."""
    (data / "cifar-10-batches-py").mkdir()
    for name in (*CIFAR_TRAIN, *CIFAR_TEST):
        records = np.fromfile(data / "cifar-10-batches-bin" / name, np.uint8).reshape(-1, 3073)
        with (data / "cifar-10-batches-py" / name.removesuffix(".bin")).open("wb") as file:
            pickle.dump({"data": records[:, 1:], "labels": records[:, 0].tolist()}, file)
    with (data / "cifar-10-batches-py" / "batches.meta").open("wb") as file:
        pickle.dump({"label_names": [f"class {label}" for label in range(10)]}, file)


def test_cifar10_as_torchvision_has_it_is_the_same_training(
    capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs the README's lines, on files that do not have torchvision's checksums."""
    shutil.copytree(small / "data/cifar-10-batches-bin", tmp_path / "data/cifar-10-batches-bin")
    pickled_cifar10(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchvision.datasets.CIFAR10._check_integrity", lambda self: True)
    monkeypatch.setattr("torchvision.datasets.CIFAR10.meta", {"filename": "batches.meta", "key": "label_names", "md5": None})
    exec(block("python"), {})
    shutil.rmtree(tmp_path / "data/cifar-10-batches-bin")
    config = yaml.safe_load((small / "cifar10_vgg.yaml").read_text()) | {"server": {"metrics": "off"}} | yaml.safe_load(block("yaml"))
    (tmp_path / "cifar10_vgg.yaml").write_text(yaml.safe_dump(config))
    capsys.readouterr()
    ran, of_files = (example(capsys, folder, "cifar10_vgg", *CIFAR10) for folder in (tmp_path, small))
    check_cifar10(ran, 1)
    assert ran.each("loss") == of_files.each("loss")
    assert ran.ranks == of_files.ranks


CIFAR10 = ("--epochs", 3, "--batch-size", 64, "--width", 4)


def test_cifar10_vgg(capsys: pytest.CaptureFixture[str], small: Path) -> None:
    check_cifar10(example(capsys, small, "cifar10_vgg", *CIFAR10), 1)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_cifar10_vgg_on_ranks(small: Path, tmp_path: Path, ranks: int) -> None:
    recorder, program = ROOT / "tests/python/recorded_example.py", EXAMPLES / "cifar10_vgg.py"
    printed = launch(ranks, recorder, tmp_path, program, "--config", small / "cifar10_vgg.yaml", *CIFAR10)
    check_cifar10(Ran(printed, [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(ranks)]), ranks)


@pytest.mark.parametrize("program", ["mnist_mlp", "srcnn_dataloader"])
def test_an_example_without_ranks_says_so_under_torchrun(program: str) -> None:
    ranks = {**os.environ, "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    done = subprocess.run([sys.executable, EXAMPLES / f"{program}.py"], capture_output=True, text=True, env=ranks)
    assert done.returncode == 2
    assert "torchrun started 2 ranks, and this program trains one model on one device" in done.stderr
    assert "Traceback" not in done.stderr


def test_srcnn(capsys: pytest.CaptureFixture[str], small: Path) -> None:
    ran = example(capsys, small, "srcnn", "--epochs", 4, "--batch-size", 20)
    for epoch in range(4):
        assert sorted(ran.train(epoch)) == [(index, True) for index in range(6 * 8)]
    assert [len(batch) for batch in ran.ranks[0]["train"][0]] == [20, 20, 8]
    ran.check_test(9, [8, 1])
    psnr = ran.each("psnr")
    assert psnr[-1] > psnr[0] and len(set(ran.each("bicubic"))) == 1


@pytest.mark.parametrize(("name", "train", "test"), [("mnist_mlp", 700, 430), ("cifar10_vgg", 250, 530), ("srcnn", 48, 9)])
def test_a_dataloader_version_trains_and_tests_on_as_many(
    capsys: pytest.CaptureFixture[str], small: Path, name: str, train: int, test: int
) -> None:
    ran = dataloader_version(capsys, small, name, "--epochs", 4, "--workers", 0)
    assert ran.each("samples") == [train] * 4 and ran.last["test_samples"] == test
    metric = "psnr" if name == "srcnn" else "accuracy"
    assert ran.last[metric] > ran.each(metric)[0]


def test_bicubic_is_the_same_of_both(capsys: pytest.CaptureFixture[str], small: Path) -> None:
    """It involves no model: so test pictures, their crops and their luma are the same."""
    one, other = (run(capsys, small, "srcnn", "--epochs", 1) for run in (example, lambda *a: dataloader_version(*a, "--workers", 0)))
    assert one.last["bicubic"] == other.last["bicubic"]


def test_an_example_uses_a_running_server(capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path) -> None:
    with headrace.serve(small / "mnist_mlp.yaml", server__directory=tmp_path / "run") as server:
        ran = example(capsys, small, "mnist_mlp", "--epochs", 1, "--address", server.address)
        assert server.poll() is None
    assert [len(batch) for batch in ran.ranks[0]["train"][0]] == [300, 300, 100], "the batch size is the server's"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_readme_shows_the_whole_difference(name: str) -> None:
    texts = [(EXAMPLES / f"{program}.py").read_text().splitlines(keepends=True) for program in (f"{name}_dataloader", name)]
    lines = list(difflib.unified_diff(*texts, n=0))[2:]
    shown = "".join(line for line in lines if not line.startswith("@@"))
    assert f"```diff\n{shown}```" in (EXAMPLES / "README.md").read_text()
    if name == "mnist_mlp":
        assert f"```diff\n{shown}```" in (ROOT / "bindings/README.md").read_text()


def test_the_clock_counts_work_on_the_device_as_time_of_the_epoch_and_not_as_waiting_for_the_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import job

    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: time.sleep(0.2))
    clock = job.Clock(SimpleNamespace(device="cuda:0"))
    assert len(list(clock.batches([(torch.zeros(3), torch.zeros(3))] * 2))) == 2
    clock.end()
    (epoch,) = clock._epochs
    assert epoch["samples"] == 6
    assert epoch["seconds"] > 0.2 > epoch["waited"] + 0.1


# --- the long ones


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("large"), mnist=(6000, 1010), cifar=(4000, 1010), pairs=(24, 5))


@pytest.mark.skipif(not os.environ.get("HEADRACE_STRESS"), reason="trains for minutes: HEADRACE_STRESS=1, or ./run test long")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "ranks", "least", "apart", "arguments"),
    [
        ("mnist_mlp", 0, 0.9, 0.03, ("--epochs", 6)),
        *(("cifar10_vgg", ranks, 0.9, 0.05, ("--epochs", 8, "--batch-size", 64, "--width", 8)) for ranks in (1, 2, 4)),
        *(("srcnn", 0, None, 0.1, ("--epochs", epochs, "--batch-size", batch)) for batch, epochs in ((8, 6), (128, 24))),
    ],
)
def test_it_learns_as_much_as_its_dataloader_version(
    large: Path, name: str, ranks: int, least: float | None, apart: float, arguments: tuple[object, ...]
) -> None:
    """Accuracy (a fraction) or PSNR (dB): better than `least`, or than bicubic, and no further from the DataLoader version's than `apart`."""
    config, data = ("--config", large / f"{name}.yaml"), ("--data", large / "data")
    ran = Ran(launch(ranks, EXAMPLES / f"{name}.py", *config, *arguments), [])
    by_dataloader = Ran(launch(ranks, EXAMPLES / f"{name}_dataloader.py", *data, *arguments), [])
    metric = "psnr" if name == "srcnn" else "accuracy"
    assert min(ran.last[metric], by_dataloader.last[metric]) > (ran.last["bicubic"] if least is None else least)
    assert ran.last[metric] == pytest.approx(by_dataloader.last[metric], abs=apart)
    assert ran.last["test_samples"] == by_dataloader.last["test_samples"]
    assert ran.last["samples"] == by_dataloader.last["samples"]
