"""Runs the commands and programs of a page, in the order in which a reader meets them, in one folder and one shell.

| a fenced block | what happens |
|---|---|
| `sh` | runs; a command that the page leaves running (`&`) ends with the page |
| first line is a comment with a file's name (`# train.yaml`, `// trainer.cpp`) | is written to that file; `headrace check` checks a configuration |
| other `python` | runs |
| `title="not run by the tests: REASON"` after the language | does not run; the site shows the title |
| any other language, or none | output, a drawing or a part of a file: does not run |

Paths below /data are in a generated folder instead. A page may also need changes: a smaller model, fewer epochs or processes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from conftest import write_images
from markdown_it import MarkdownIt
from PIL import Image
from running import ROOT, free_port, headrace_binary
from training_sets import CIFAR_TEST, CIFAR_TRAIN, shapes, write_cifar

RUN = ("sh", "python", "yaml", "cpp", "cmake")
FILE = re.compile(r"(?:#|//) ([\w/-]+\.(?:yaml|py|cpp|txt))(?:\s|$)")
NOT_RUN = re.compile(r'title="not run by the tests: (.+)"')


@dataclass
class Block:
    page: str
    line: int
    language: str
    title: str
    text: str

    @property
    def why_not_run(self) -> str | None:
        found = NOT_RUN.fullmatch(self.title)
        return found[1] if found else None

    @property
    def file(self) -> str | None:
        found = FILE.match(self.text)
        return found[1] if found else None

    @property
    def runs(self) -> bool:
        return self.why_not_run is None and (self.language in ("sh", "python") or (self.language in RUN and self.file is not None))


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, also those in lists."""
    for token in MarkdownIt().enable("table").parse((ROOT / page).read_text()):
        if token.type == "fence" and token.map:
            language, _, title = token.info.strip().partition(" ")
            yield Block(page, token.map[0] + 1, language, title.strip(), token.content)


def imagenet(folder: Path) -> None:
    for part, each in (("train", 12), ("val", 5)):
        write_images(folder / part, classes=3, per_class=each)


def cifar(folder: Path) -> None:
    random = np.random.default_rng(0)
    for files, count in ((CIFAR_TRAIN, 250), (CIFAR_TEST, 60)):
        write_cifar(folder.parent, files, *shapes(count, random))


def pairs(folder: Path) -> None:
    random = np.random.default_rng(0)
    for side, scale in (("hr", 4), ("lr", 1)):
        (folder / side).mkdir(parents=True)
        for number in range(6):
            coarse = Image.fromarray(random.integers(0, 256, (6, 8, 3), dtype=np.uint8))
            coarse.resize((96 * scale, 80 * scale), Image.Resampling.BICUBIC).save(folder / side / f"{number:04d}.png")


# Name of a folder below /data in a page -> who writes it.
DATA = {
    "photos": lambda folder: write_images(folder, classes=3, per_class=25),
    "imagenet": imagenet,
    "cifar-10-batches-bin": cifar,
    "pairs": pairs,
}


def script(page: str, work: Path, changes: Mapping[str, str]) -> str:
    """A page as a program for bash; the texts of its blocks are files in `work`."""
    lines, unused = ["set -euo pipefail"], set(changes)
    for block in blocks(page):
        if not block.runs:
            continue
        text = block.text
        for old, new in changes.items():
            if old in text:
                unused.discard(old)
                text = text.replace(old, new)
        for name in set(re.findall(r"/data/([\w-]+)", text)):
            if not (work / "data" / name).exists():
                DATA[name](work / "data" / name)
        text = text.replace("/data/", f"{work}/data/")
        lines.append(f"echo '--- {page}:{block.line}'")
        saved = work / ".blocks" / f"{block.line}.{block.language}"
        saved.parent.mkdir(exist_ok=True)
        saved.write_text(text)
        if block.file is not None:
            lines.append(f"mkdir -p \"$(dirname '{block.file}')\" && cp '{saved}' '{block.file}'")
            if block.language == "yaml" and re.search("^streams:", text, re.MULTILINE):
                lines.append(f"headrace check '{block.file}'")
        elif block.language == "python":
            lines.append(f"python '{saved}'")
        else:
            lines.append(text)
    assert not unused, f"{page} has no {unused}"
    return "\n".join([*lines, f"echo '--- {page}: end'"])


def run(page: str, changes: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None, seconds: float = 300) -> str:
    """Runs a page; returns its output."""
    work = Path(tempfile.mkdtemp(prefix="page-"))  # short: a socket's path has at most 107 bytes
    try:
        (work / "bin").mkdir()
        (work / "bin/headrace").symlink_to(headrace_binary())
        (work / "bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (work / "bin/torchrun").write_text(f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n')
        for name in ("python", "torchrun"):
            (work / "bin" / name).chmod(0o755)
        path = f"{work / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        port = str(free_port())
        own = {"PATH": path, "XDG_RUNTIME_DIR": str(work), "OMP_NUM_THREADS": "1", "HEADRACE_SERVER__METRICS__PORT": port}
        text = script(page, work, changes or {}).replace("127.0.0.1:9464", f"127.0.0.1:{port}")
        given = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "HEADRACE_ADDRESS")}
        log = work / "log"
        with log.open("w") as out:
            shell = subprocess.Popen(
                ["bash", "-c", text], cwd=work, env={**given, **own, **(env or {})}, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
            )
            try:
                status = shell.wait(seconds)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGKILL)  # what the page left running
                shell.wait()
        said = log.read_text(errors="replace")
        assert status == 0 and f"--- {page}: end" in said, f"{page} ended with status {status}:\n{said[-6000:]}"
        return said
    finally:
        shutil.rmtree(work, ignore_errors=True)
