"""The stages of `kit run`: the programs that each runs, and what the programs need. tests/gpu/README.md says what they find out."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

SANITIZED = "--gtest_filter=-*NoRoom*"  # without the tests that fill the GPU's memory
# Cheap sections: ncu repeats each kernel only a few times for them.
NCU = ("ncu", "--section", "SpeedOfLight", "--section", "MemoryWorkloadAnalysis", "--section", "Occupancy", "--section", "LaunchStats")


@dataclass(frozen=True)
class Step:
    """A command of a stage.

    gpu      the step needs a GPU; without one it does not run, and the stage's status is `no GPU`
    tool     a program that must be installed on the machine; without it the step counts as `not run`
    excuse   a text in the log of a failed step that means that the machine does not permit it; then the step counts as `not run`
    modules  Python packages that the machine or the kit provides; without them the step fails
    """

    name: str
    command: tuple[str, ...]
    gpu: bool = True
    tool: str = ""
    excuse: str = ""
    modules: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


def stages(kit: Path, files: Path, data: Path | None = None, brief: bool = False) -> dict[str, list[Step]]:
    """All stages. `files`: the folder for plots and traces. `data`: see bindings/examples/README.md. `brief`: do little; figures mean nothing."""

    def program(name: str, *arguments: str) -> tuple[str, ...]:
        return (str(kit / "bin" / name), *arguments)

    def script(name: str, *arguments: str) -> tuple[str, ...]:
        return (sys.executable, str(kit / "tests" / name), *arguments)

    def test(name: str, gpu: bool = True) -> Step:
        return Step(name, program(name), gpu)

    def torch(name: str, *arguments: str, of: str = "", also: tuple[str, ...] = ()) -> Step:
        return Step(f"{name} {of}".strip(), script(f"gpu/{name}.py", *arguments), modules=("torch", "numpy", *also))

    def sanitized(tool: str, test: str, *options: str) -> Step:
        command = ("compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--report-api-errors", "no", *program(test, *options))
        return Step(f"{tool} {test}", command, tool="compute-sanitizer", environment={"HEADRACE_ROUNDS": "5"})

    def peers(name: str) -> Step:
        return Step(f"beside_peers {name}", script("gpu/beside_peers.py", name, "--seconds", "0.5"), gpu=False, modules=("torch", "torchvision", "PIL"))

    given = ("--data", str(data)) if data else ()
    scaling: tuple[str, ...] = ("--headrace", str(kit / "bin" / "headrace"), "--out", str(files), "--rounds", "1")
    scaling += ("--seconds", "0.2", "--cores", "1", "--workloads", "w1-f32") if brief else ("--seconds", "0.5")
    return {
        "probe": [
            Step("driver", ("nvidia-smi", "-q"), tool="nvidia-smi"),
            Step("topology", ("nvidia-smi", "topo", "-m"), tool="nvidia-smi"),
            Step("device_probe", program("device_probe")),
        ],
        "exact": [
            *(test(name) for name in ("cuda_copy_test", "cuda_rows_test", "cuda_loader_test")),
            *(test(name, gpu=False) for name in ("device_rows_test", "resident_rows_test")),
        ],
        "copy": [Step("copy_bench", program("copy_bench")), torch("overlap", "cuda:0", "--out", str(files))],
        "kernels": [
            Step("rows_bench", program("rows_bench")),
            Step("ncu", (*NCU, *program("rows_bench", "--rounds", "1", "--launches", "1")), tool="ncu", excuse="ERR_NVGPUCTRPERM"),
        ],
        "torch": [
            torch("check_torch"),
            torch("residence_bench"),
            torch("compare_transforms", str(kit / "bin" / "rows_bench"), also=("torchvision",)),
        ],
        "train-mnist": [
            Step("device_trainer", script("gpu/run_trainer.py", str(kit / "bin" / "device_trainer")), modules=("numpy",)),
            torch("train_epochs", "mnist", *given, of="mnist", also=("torchvision", "yaml")),
        ],
        "train-cifar": [torch("train_epochs", "cifar", *given, of="cifar", also=("torchvision", "yaml"))],
        "train-resnet": [torch("train_resnet", *(("--jpegs", str(data / "imagenet")) if data and (data / "imagenet").is_dir() else ()), also=("torchvision", "PIL"))],
        "share": [torch("share_trainers", str(trainers), of=str(trainers), also=("PIL",)) for trainers in (2, 4)],
        "sanitize": [
            sanitized("memcheck", "cuda_rows_test", SANITIZED),
            sanitized("racecheck", "cuda_rows_test", SANITIZED),
            *(sanitized("memcheck", name) for name in ("cuda_loader_test", "cuda_copy_test")),
        ],
        "peers": [peers(name) for name in (("w1",) if brief else ("w1", "w2", "w4"))],
        "peers-files": [peers(name) for name in (("w1",) if brief else ("w3", "w5"))],
        "scaling": [Step("scaling", script("bench/scaling.py", *scaling), gpu=False, modules=("numpy", "PIL"))],
    }
