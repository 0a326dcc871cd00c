"""Every page's commands, configurations and programs run as they are printed (snippets.py), on small data."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
import snippets
import yaml
from running import ROOT, headrace_binary
from snippets import Given

FOLDERS = ("bindings", "clientlib", "configs", "docker", "server", "tests")
README = "README.md"  # its example runs in test_readme.py, `./run demo` in tests/demo
PAGES = sorted(str(file.relative_to(ROOT)) for folder in FOLDERS for file in (ROOT / folder).rglob("*.md") if any(snippets.blocks(str(file))))

# Commands before a block: a configuration, a server over it, a client that has received batches.
CONFIG = """cat >train.yaml <<'END'
sources: {photos: {type: image_folder, path: /data/photos}}
streams: {train: {source: photos, batch_size: 8, transforms: [{random_resized_crop: 64}, random_horizontal_flip]}}
END
"""
SERVER = CONFIG + "serve train.yaml\n"
CLIENT = """python - <<'END' &
import headrace, time
loader = headrace.Loader(stream="train")
for batch in loader: time.sleep(0.05)
time.sleep(60)
END
until headrace stats | grep '"granted":[1-9]' >/dev/null; do sleep 0.1; done
"""
# Commands of contributors: in a copy of the folders that they name.
COPY = 'cp -r "$ROOT/tests" "$ROOT/configs" . && ln -s "$ROOT/build" build\n'
CIFAR10 = """python - <<'END'
import pickle, numpy
from pathlib import Path
folder = Path("data/cifar-10-batches-py")
folder.mkdir(parents=True)
for name in (*(f"data_batch_{part}" for part in range(1, 6)), "test_batch"):
    pixels = numpy.random.default_rng(0).integers(0, 256, (20, 3072), dtype=numpy.uint8)
    (folder / name).write_bytes(pickle.dumps({"data": pixels, "labels": [number % 10 for number in range(20)]}))
(folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {number}" for number in range(10)]}))
END
"""
PACKED = """
import headrace, torchvision.datasets.cifar
from PIL import Image
torchvision.datasets.cifar.check_integrity = lambda *_: True  # the small files have other checksums
pairs = [{"lr": Image.new("RGB", (12, 9)), "hr": Image.new("RGB", (48, 36))} for _ in range(3)]
"""
PARQUET = """python - <<'END'
import pyarrow, pyarrow.parquet
from pathlib import Path
rows = [{"image": {"bytes": file.read_bytes(), "path": file.name}, "label": 0} for file in Path("/data/photos").rglob("*.jpg")]
pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), "train-0.parquet")
END
"""
MANIFEST = """python - <<'END'
import csv
from pathlib import Path
from PIL import Image
Image.new("L", (8, 8)).save("mask.png")
with open("train.csv", "w") as out:
    rows = csv.writer(out)
    rows.writerow(["file", "label", "age", "boxes", "caption", "tags", "mask"])
    for file in Path("/data/photos").rglob("*.jpg"):
        Image.new("L", Image.open(file).size).save(file.with_suffix(".png"))
        rows.writerow([file, "cat", 3, "[[0, 0, 9, 9]]", "a cat", "big|wet", file.with_suffix(".png")])
END
"""
DIV2K = """mkdir DIV2K_train_HR DIV2K_train_LR_bicubic
cp /data/pairs/hr/* DIV2K_train_HR
mkdir DIV2K_train_LR_bicubic/X4
for file in /data/pairs/lr/*; do cp "$file" "DIV2K_train_LR_bicubic/X4/$(basename "$file" .png)x4.png"; done
"""
# find_package and the program of clientlib/README.md, each with the lines around it.
PROGRAM = """mkdir mine
(echo 'cmake_minimum_required(VERSION 3.25)'; echo 'project(trainer CXX)'; grep -h find_package .blocks/*.cmake
  echo 'add_executable(trainer trainer.cpp)'; grep -h target_link_libraries .blocks/*.cmake) >mine/CMakeLists.txt
(grep -h '^#include' .blocks/*.cpp; echo 'void step(std::span<const float>, std::span<const std::int64_t>) {}'; echo 'int main() {'
  grep -hv '^#include' .blocks/*.cpp; echo '}') >mine/trainer.cpp
"""
FLOAT_SERVER = SERVER.replace("random_horizontal_flip]}", "random_horizontal_flip], output: {dtype: float32}}")
RESNET = {"resnet50": "resnet18", "epochs = 90": "epochs = 1", "--nproc-per-node 8": "--nproc-per-node 2", "batch_size: 256": "batch_size: 8"}
WHOLE_TRAININGS = "tests/python/test_training_examples.py"

GIVEN = {
    "bindings/README.md": Given(
        changes={"pip install . ": ": ", 'device="cuda:0"': 'device="cpu"', "wait_for=2": "wait_for=1"},
        before={
            'device="cuda:0"': SERVER,
            "headrace.Maker(": CONFIG,
            "CIFAR10(": CIFAR10,
            "train-*.parquet": PARQUET,
            "headrace.share(": "kill $server && wait $server\n",
            "Loader(address": "until grep . background.log; do sleep 0.1; done\nexport HEADRACE_SHARED=$(head -n1 background.log)\n",
        },
        names="import os, numpy\nstep = lambda *batch: None\ndataloader = [numpy.zeros((2, 3)) for _ in range(4)]\naddress = os.environ.get('HEADRACE_SHARED')" + PACKED,
        elsewhere={"headrace.mds": "tests/formats/test_formats.py"},
        background=["share.wait()"],
    ),
    "bindings/examples/README.md": Given(
        before={"CIFAR10(": CIFAR10}, names=PACKED, elsewhere={"mnist_mlp.py": WHOLE_TRAININGS}, changes={"download=True": "download=False"}
    ),
    "bindings/recipes/imagenet.md": Given(
        changes=RESNET | {"random_resized_crop: 224": "random_resized_crop: 64", "center_crop: 224": "center_crop: 64"}, says=["accuracy", " on 15 images"]
    ),
    "bindings/recipes/cifar.md": Given(changes={"range(10)": "range(3)", "batch_size: 512": "batch_size: 64"}, says=["epoch 2: accuracy"]),
    "bindings/recipes/super-resolution.md": Given(changes={"range(100)": "range(3)", "8 GiB": "64 MiB"}, says=["epoch 2: PSNR"]),
    "bindings/recipes/several-trainers.md": Given(says=["narrow: loss", "wide: loss", "sharing factor"]),
    "bindings/recipes/sweep.md": Given(says=["base, rate", "large, rate", "colors, rate", "sharing factor"]),
    "bindings/recipes/validation.md": Given(says=[" of 15 right"]),
    "bindings/recipes/resume.md": Given(says=["dies after 15 batches"]),
    "bindings/recipes/lightning.md": Given(says=["4 steps", "8 steps"]),
    "bindings/many-machines.md": Given(says=["steps with 2 ranks"]),
    "bindings/start-pytorch.md": Given(changes={"random_resized_crop: 224": "random_resized_crop: 64"}, says=["epoch 2: loss"]),
    "clientlib/README.md": Given(
        changes={"./run build && cmake --install build/release --prefix /opt/headrace --component development": PROGRAM, "=/opt/headrace": "=$PREFIX && cmake --build build && build/trainer && headrace ls", "cmake --install build/release --prefix /opt/headrace --component maker": "true"},
        before={"cmake -S mine": FLOAT_SERVER},
        says=["granted to clients"],
    ),
    "clientlib/ring/README.md": Given(before={"build/release": COPY}),
    "clientlib/start-cpp.md": Given(says=["epoch 1: 75 images"]),
    "configs/README.md": Given(says=["random_resized_crop"]),
    "configs/metrics.md": Given(before={"curl": SERVER + CLIENT}, says=["headrace_client_wait_seconds"]),
    "configs/sharing.md": Given(changes={"/run/headrace": "run"}),
    "configs/sources.md": Given(before={"train.csv": MANIFEST, "DIV2K_train_HR": DIV2K}, says=["75 samples"]),
    "configs/status.md": Given(changes={"headrace top ": "headrace top --once "}, before={"headrace top": SERVER + CLIENT}, says=["bottleneck"]),
    "configs/storage.md": Given(changes={"/mnt/photos": "/data/photos", "/var/cache/headrace": "cache", "200GB": "1GB"}, before={"headrace check train.yaml": SERVER}),
    "configs/tools.md": Given(changes={"--advise": "--seconds 0.5 --advise"}, before={"headrace doctor": CONFIG}, says=["A faster trainer waits for batches."]),
    "configs/transforms.md": Given(before={"headrace sample": SERVER}, says=["random_horizontal_flip"]),
    "docker/README.md": Given(elsewhere={"docker build": "tests/containers/test_containers.py"}),
    "docker/packages.md": Given(before={"headrace.serve": CONFIG}, elsewhere={"sudo": "tests/deb/inside"}),
    "docker/start-compose.md": Given(changes={"path: /data}": "path: /data/photos}", "/run/headrace": "run", "address: 0.0.0.0, port: 9464": "port: 0"}),
    "server/README.md": Given(
        changes={"./run build && build/release/server/verbs/headrace": "headrace", "--stream nothing": "--stream nothing --seconds 0.2"}, before={"configs/transport": COPY}
    ),
    "server/exec/README.md": Given(before={"headrace ls": SERVER + CLIENT}, says=["sharing factor"]),
    "server/sampler/README.md": Given(before={"headrace sample": SERVER}, says=["random_horizontal_flip"]),
    "tests/bench/README.md": Given(
        changes={"--seconds 3": "--seconds 0.2", "compare.py DIR": "compare.py /data/photos --rounds 1 --seconds 0.2", "--jpeg DIR --png DIR": "--jpeg /data/photos --png /data/pairs --rounds 1 --seconds 0.01"},
        before={"build/release/server": COPY},
    ),
    "tests/bench/peers/README.md": Given(elsewhere={"-m peers": "tests/python/test_peers.py"}),
    "tests/bench/summary.md": Given(changes={"--stream train": "--stream train --seconds 0.2"}, before={"headrace bench": CONFIG}),
    "tests/gpu/README.md": Given(elsewhere={"kit build": "tests/python/test_gpu_run.py", "kit run": "tests/python/test_gpu_run.py"}),
    "tests/pixels/README.md": Given(changes={"DIR": "/data/photos", "--at-least 500": "--at-least 75", "--odd ": "--odd --rows 1 "}, before={"proof.py": COPY}),
}


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C++ package of the release build, installed."""
    build = ROOT / "build/release"
    if not (build / "cmake_install.cmake").exists():
        pytest.skip("no release build: ./run build")
    prefix = tmp_path_factory.mktemp("prefix")
    for component in ("development", "maker"):
        subprocess.run(["cmake", "--install", build, "--prefix", prefix, "--component", component], check=True, capture_output=True)
    return prefix


@pytest.mark.timeout(150)
@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs(page: str, request: pytest.FixtureRequest) -> None:
    env = {}
    if page in ("clientlib/README.md", "clientlib/start-cpp.md"):
        if shutil.which("cmake") is None:
            pytest.skip("no cmake here")
        env["CMAKE_PREFIX_PATH"] = env["PREFIX"] = str(request.getfixturevalue("installed"))
    snippets.run(page, GIVEN.get(page, Given()), env)


def test_what_another_test_runs_is_there() -> None:
    assert [test for given in GIVEN.values() for test in given.elsewhere.values() if not (ROOT / test).exists()] == []
    assert set(GIVEN) <= set(PAGES)


def test_each_verb_of_the_run_script_exists() -> None:
    listed = subprocess.run([ROOT / "run", "help"], capture_output=True, text=True, timeout=30, check=True).stdout
    text = "\n".join(block.text for page in (README, *PAGES) for block in snippets.blocks(page) if block.language == "sh")
    used = set(re.findall(r"\./run (\w+)", text))
    assert len(used) > 4 and [verb for verb in used if not re.search(rf"^ *(usage: )?\./run {verb}\b", listed, re.MULTILINE)] == []


NOT_RUN = [pytest.param(block, id=f"{block.page}:{block.line}") for page in PAGES for block in snippets.blocks(page) if block.why_not_run]


def test_titles_are_reasons() -> None:
    """A typing error in a title would make a block run."""
    others = [block for page in PAGES for block in snippets.blocks(page) if block.title and not block.why_not_run]
    assert [f"{block.page}:{block.line}: {block.title}" for block in others] == []


@functools.cache
def help_of(verb: str) -> str:
    return subprocess.run([headrace_binary(), verb, "--help"], capture_output=True, text=True, timeout=30, check=True).stdout


@pytest.mark.parametrize("block", NOT_RUN)
def test_a_block_that_does_not_run_is_sound(block: snippets.Block) -> None:
    """The schema accepts a configuration, and Python a program; bash accepts commands, and headrace has their verbs and options."""
    if block.language == "yaml":
        schema = json.loads((ROOT / "configs/headrace.schema.json").read_text())
        jsonschema.Draft7Validator(schema).validate(yaml.safe_load(snippets.whole(block.text)))
        return
    if block.language == "python":
        compile(block.text, block.page, "exec")
        return
    assert block.language == "sh"
    assert subprocess.run(["bash", "-n", "-c", block.text], capture_output=True, text=True).stderr == ""
    for verb, options in re.findall(r"\bheadrace (?!-)([a-z]+)([^\n#&|]*)", block.text):
        assert [option for option in re.findall(r"--[\w-]+", options) if option not in help_of(verb)] == []
