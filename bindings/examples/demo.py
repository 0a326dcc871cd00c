"""A demo: one server feeds the same batches of real images to a trainer in C++ and one in Python."""

from __future__ import annotations

import argparse
import json
import math
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import headrace
from demo_images import Unusable, checked_folder, made_folder

HERE = Path(__file__).resolve().parent
CONFIG = HERE.parents[1] / "configs" / "demo.yaml"
FEWEST_STEPS = 90


class Trainer:
    """A trainer's process and its output so far."""

    def __init__(self, name: str, command: list[str], address: str, epochs: int) -> None:
        self.name = name
        self.line: dict[str, Any] = {}
        self.epochs: list[dict[str, Any]] = []
        self.end: dict[str, Any] = {}
        self.first_loss = math.nan
        self.process = subprocess.Popen(
            [*command, "--address", address, "--client", f"demo-{name}", "--epochs", str(epochs)],
            stdout=subprocess.PIPE,
            start_new_session=True,  # control-C reaches only this program, which ends the trainers
        )

    def take(self, text: str) -> None:
        line = json.loads(text)
        if line["event"] == "progress":
            self.line = line
            if math.isnan(self.first_loss):
                self.first_loss = line["loss"]
        elif line["event"] == "epoch":
            self.epochs.append(line)
        else:
            self.end = line

    def status(self) -> str:
        if not self.line:
            return f"{self.name}: attaching"
        return f"{self.name}: epoch {self.line['epoch']}, {self.line['images']} images, loss {self.line['loss']:.3f}"

    @property
    def last_loss(self) -> float:
        return float(self.epochs[-1]["loss"])


def follow(trainers: list[Trainer], server: headrace.Server) -> None:
    """Shows the trainers' progress until both have ended."""
    terminal = sys.stdout.isatty()
    shown = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for trainer in trainers:
            selector.register(trainer.process.stdout, selectors.EVENT_READ, trainer)  # type: ignore[arg-type]
        while selector.get_map():
            for key, _ in selector.select(timeout=0.5):
                line = key.fileobj.readline()  # type: ignore[union-attr]
                if line:
                    key.data.take(line)
                else:
                    selector.unregister(key.fileobj)
            if server.poll() is not None:
                raise RuntimeError(f"the server ended with status {server.poll()}; its output:\n{server.log()}")
            if time.monotonic() - shown > (0.3 if terminal else 3):
                shown = time.monotonic()
                text = "   ".join(t.status() for t in trainers)
                print(f"\r\033[K{text}" if terminal else text, end="" if terminal else "\n", flush=True)
    if terminal:
        print("\r\033[K", end="")
    for trainer in trainers:
        if trainer.process.wait() != 0:
            raise RuntimeError(f"the {trainer.name} trainer ended with status {trainer.process.returncode}")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def made_samples(stats: dict[str, Any]) -> int:
    """The number of samples that the server has built. On a broadcast stream it builds each one once for both consumers."""
    (stream,) = stats["streams"].values()
    return int(stream["samples"])


def shared_memory(process: Path) -> set[str]:
    """Device and inode of each of Headrace's segments that a process maps."""
    try:
        maps = (process / "maps").read_text().splitlines()
    except OSError:
        return set()
    return {" ".join(line.split()[3:5]) for line in maps if "/memfd:headrace-" in line}


def left_behind(session: int, memory: set[str], directory: Path) -> list[str]:
    """What remains of a server: processes of its session, sockets in its directory, and mappings of its memory."""
    found = [str(path) for path in directory.glob("*.sock")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            stat = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat[3]) == session and stat[0] != "Z":
            found.append(f"process {process.name}")
        if shared_memory(process) & memory:
            found.append(f"memory mapped by process {process.name}")
    return found


def table(rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))


def report(trainers: list[Trainer], cpu: float, built: int, epochs: int) -> bool:
    rows = [["trainer", "images/s", "waiting", "loss first -> last", "digest of the last epoch"]]
    for trainer in trainers:
        end = trainer.end
        rows.append(
            [
                trainer.name,
                f"{end['images'] / end['seconds']:.0f}",
                f"{100 * end['waited'] / end['seconds']:.0f}%",
                f"{trainer.first_loss:.3f} -> {trainer.last_loss:.3f}",
                trainer.epochs[-1]["digest"],
            ]
        )
    print()
    table(rows)
    rate = max(t.end["images"] / t.end["seconds"] for t in trainers)
    print(f"\n  server: {rate:.0f} images/s built once for {len(trainers)} trainers, {1e6 * cpu / built:.0f} us of CPU per image")
    digests = [[epoch["digest"] for epoch in trainer.epochs] for trainer in trainers]
    equal = all(d == digests[0] for d in digests) and len(digests[0]) == epochs and len(set(digests[0])) == epochs
    falls = all(t.last_loss < t.first_loss for t in trainers)
    print(f"  digests: {f'equal in all {epochs} epochs: both trainers received the same bytes' if equal else 'DIFFERENT'}")
    print(f"  loss: {'falls' if falls else 'DOES NOT FALL'}")
    return equal and falls


def run(folder: Path, cpp_trainer: str, directory: Path, folder_given: bool) -> bool:
    commands = {"c++": [cpp_trainer], "python": [sys.executable, str(HERE / "trainer.py")]}
    settings = {"sources.photos.path": folder, "server.directory": directory}
    trainers: list[Trainer] = []
    with headrace.serve(CONFIG, set=settings) as server:
        pid = server.pid
        info = headrace.streams(server.address)[0]
        steps = math.ceil(info.samples / info.batch_size)
        epochs = max(3, math.ceil(FEWEST_STEPS / steps))
        print(f"{info.samples} images of {len(info.classes)} classes in {folder}; {epochs} epochs; metrics: {server.metrics_url}")
        try:
            trainers += [Trainer(name, command, server.address, epochs) for name, command in commands.items()]
            follow(trainers, server)
            cpu = cpu_seconds(pid)
            built = made_samples(headrace.stats(server.address))
            memory = shared_memory(Path(f"/proc/{pid}"))
            if not memory:
                raise RuntimeError("the server maps no shared memory, so leftovers could not be found")
        finally:
            for trainer in trainers:
                trainer.process.kill()
                trainer.process.wait()
    good = report(trainers, cpu, built, epochs)
    left = left_behind(pid, memory, directory)
    kept = [] if folder_given else [f"the images, for the next run: {folder}"]
    print(f"  left behind: {', '.join(left + kept) or 'nothing'}")
    return good and not left


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="one sub-folder of JPEGs or PNGs per class (default: images are made)")
    parser.add_argument("--cpp-trainer", required=True, help="the C++ trainer, which CMake's target demo_trainer builds")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    try:
        folder = checked_folder(arguments.folder) if arguments.folder else made_folder()
        return 0 if run(folder, arguments.cpp_trainer, directory, bool(arguments.folder)) else 1
    except (Unusable, RuntimeError, headrace.Error) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
