"""Runs the commands and programs of a page, in the order in which a reader meets them, in one folder and one shell.

| a fenced block | what happens |
|---|---|
| `sh` | runs; a command that the page leaves running (`&`) ends with the page |
| `headrace serve` without `&` | runs in place of the server before it, to the page's end |
| `./run …` | does not run: these are the parts of `./run test all` |
| first line is a comment with a file's name (`# train.yaml`, `// trainer.cpp`) | is written to that file |
| `yaml` | `headrace check` checks it, if need be with the data or a stream that it lacks (`whole`) |
| `python` that is no file | runs |
| `title="not run by the tests: REASON"` after the language | does not run; the site shows the title |
| any other language, or none | output, a drawing or a part of a file: does not run |

Paths below /data are in a generated folder instead. `Given` says what else a page needs: changes (a smaller model, fewer epochs), what
it takes for granted (a server that runs, a reader's own variables), and which other test runs one of its blocks.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml
from images import write_images
from markdown_it import MarkdownIt
from PIL import Image
from running import ROOT, free_port, headrace_binary
from training_sets import CIFAR_TEST, CIFAR_TRAIN, shapes, write_cifar

# The sources to which parts of configurations refer.
SOURCES = {
    "photos": {"type": "image_folder", "path": "/data/photos"},
    "cifar": {"type": "cifar", "path": "/data/cifar-10-batches-bin"},
}
# serve: a server in the background, in place of the one before it; returns when clients can attach.
FUNCTIONS = """
server=
serve() {
  if [ -n "$server" ]; then kill $server && wait $server; fi
  headrace serve "$@" & server=$!
  until headrace health >health.log 2>&1; do kill -0 $server || { cat health.log; return 1; }; sleep 0.05; done
}
"""
SERVE = re.compile(r"^((?:\w+=\S+ )*)headrace serve ([^&\n#]*)(#.*)?$", re.MULTILINE)
RUN_SCRIPT = re.compile(r"^\./run [^&|]*$", re.MULTILINE)
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
        return self.why_not_run is None and (self.language in ("sh", "python", "yaml") or self.file is not None)


@dataclass
class Given:
    """What a page's blocks need that the page does not say."""

    changes: Mapping[str, str] = field(default_factory=dict)  # text -> another text
    before: Mapping[str, str] = field(default_factory=dict)  # text of a block -> commands that run before that block
    names: str = ""  # Python: the reader's own names
    background: Sequence[str] = ()  # texts of Python blocks that run beside those below them
    elsewhere: Mapping[str, str] = field(default_factory=dict)  # text of a block -> the test that runs it
    says: Sequence[str] = ()  # what the output must contain
    seconds: float = 120

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


def whole(text: str) -> str:
    """A configuration; if it is only a part of one, with what it lacks."""
    config = yaml.safe_load(text) or {}
    if {"sources", "streams"} <= set(config):
        return text
    if "sources" in config:
        config["streams"] = {name: {"source": name} for name in config["sources"]}
    else:
        streams = config.setdefault("streams", {"train": {"source": "photos"}})
        config["sources"] = {stream["source"]: SOURCES[stream["source"]] for stream in streams.values()}
    for stream in config["streams"].values():
        stream.setdefault("transforms", [{"center_crop": 32}])
    return yaml.safe_dump(config, sort_keys=False)


class Script:
    """A page as a program for bash; the texts of its blocks are files in `work`/.blocks."""

    def __init__(self, page: str, work: Path, given: Given) -> None:
        self.work, self.given = work, given
        self.lines = ["set -euo pipefail", FUNCTIONS]
        self.used: set[str] = set()
        (work / ".blocks").mkdir()
        for block in blocks(page):
            elsewhere = self.matching(given.elsewhere, block.text)
            saved = work / ".blocks" / f"{block.line}.{block.language}"
            saved.write_text(block.text)
            if not block.runs or elsewhere:
                continue
            self.lines.append(f"echo '--- {page}:{block.line}'")
            self.lines += [self.with_data(commands) for commands in self.matching(given.before, block.text)]
            text = self.changed(block.text)
            if block.language == "yaml":
                text = whole(text)
            elif block.language == "python" and block.file is None:
                text = f"{given.names}\n{text}"
            saved.write_text(self.with_data(text))
            self.lines += self.commands(block, saved)
        known = {*given.changes, *given.before, *given.elsewhere, *given.background}
        assert known == self.used, f"{page} has no {known - self.used}"
        self.lines.append(f"echo '--- {page}: end'")

    def matching(self, table: Mapping[str, str], text: str) -> list[str]:
        found = [key for key in table if key in text]
        self.used.update(found)
        return [table[key] for key in found]

    def changed(self, text: str) -> str:
        for old, new in self.given.changes.items():
            if old in text:
                self.used.add(old)
                text = text.replace(old, new)
        return text

    def with_data(self, text: str) -> str:
        """Creates the data that a text names, and names it where it is."""
        for name in set(re.findall(r"/data/([\w-]+)", text)):
            if not (self.work / "data" / name).exists():
                DATA[name](self.work / "data" / name)
        return text.replace("/data/", f"{self.work}/data/")

    def commands(self, block: Block, saved: Path) -> list[str]:
        if block.language == "yaml":
            name = block.file or f"part-{block.line}.yaml"
            return [f"cp '{saved}' '{name}'", f"headrace check '{name}'"]
        if block.file is not None:
            return [f"mkdir -p \"$(dirname '{block.file}')\" && cp '{saved}' '{block.file}'"]
        if block.language == "python":
            beside = [words for words in self.given.background if words in block.text]
            self.used.update(beside)
            return [f"python -u '{saved}'{' >background.log &' if beside else ''}"]
        return [SERVE.sub(r"\1serve \2", RUN_SCRIPT.sub("", saved.read_text()))]


def run(page: str, given: Given, env: Mapping[str, str] | None = None) -> str:
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
        own = {"PATH": path, "XDG_RUNTIME_DIR": str(work), "OMP_NUM_THREADS": "1", "HEADRACE_SERVER__METRICS__PORT": port, "ROOT": str(ROOT)}
        text = "\n".join(Script(page, work, given).lines).replace("127.0.0.1:9464", f"127.0.0.1:{port}")
        outside = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "HEADRACE_ADDRESS")}
        log = work / "log"
        with log.open("w") as out:
            shell = subprocess.Popen(
                ["bash", "-c", text], cwd=work, env={**outside, **own, **(env or {})}, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                shell.wait(given.seconds)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # what the page left running
            shell.wait()
        said = log.read_text(errors="replace")
        assert shell.returncode == 0 and f"--- {page}: end" in said, f"{page} ended with status {shell.returncode}:\n{said[-6000:]}"
        assert [words for words in given.says if words not in said] == [], said
        return said
    finally:
        shutil.rmtree(work, ignore_errors=True)
