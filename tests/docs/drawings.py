#!/usr/bin/env python3
"""Draws the pictures of the pages: the chart of RESULTS.md's figures, and how ring, exactness and sharing work.

  drawings.py           writes them
  drawings.py --check   fails if a file is not what would be written
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from svg import BLUE, GRAY, GREEN, INK, LINE, ORANGE, SOFT, Drawing, write

ROOT = Path(__file__).resolve().parents[2]
# Row of RESULTS.md's first table -> what the chart calls it.
WORKLOADS = {
    "W3 ImageNet JPEG, float32": "ImageNet JPEGs",
    "W3 packed as tiles, float32": "ImageNet JPEGs, packed as tiles",
    "W2 CIFAR-10, float32, 1 rank": "CIFAR-10",
    "W1 MNIST, float32": "MNIST",
    "W4 pairs decoded once, float32, batch 8": "Image pairs, decoded once, batch 8",
    "W5 colors, float32": "Color jitter on JPEGs",
    "W-share, 2 trainers": "ImageNet JPEGs, 2 trainers",
    "W-share, 4 trainers": "ImageNet JPEGs, 4 trainers",
}


def figures() -> list[tuple[str, str, float]]:
    """(workload, best other loader, its CPU time / Headrace's), as RESULTS.md has them."""
    text = (ROOT / "tests/bench/peers/RESULTS.md").read_text().partition("## In short")[2]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n") if line.startswith("| W")]
    found = {row[0]: (row[2], float(row[3])) for row in rows}
    return [(name, re.split(r",| around", found[row][0])[0], found[row][1]) for row, name in WORKLOADS.items()]


def chart() -> str:
    rows = figures()
    drawing = Drawing(760, 96 + 34 * len(rows), "CPU time per sample of the best other loader, relative to Headrace")
    drawing.text(24, 34, "CPU time per sample: Headrace, and the best of a dozen other loaders", size=16, bold=True)
    drawing.text(24, 56, "Relative to Headrace. float32 batches, 2 cores of an AMD EPYC; shorter is better.", color=SOFT)
    left, unit = 262, 30.0
    for number, (name, other, ratio) in enumerate(rows):
        y = 76 + 34 * number
        drawing.text(left - 12, y + 17, name, anchor="end")
        drawing.rect(left, y, unit, 10, BLUE, round=2)
        drawing.rect(left, y + 12, unit * ratio, 10, GRAY, round=2)
        drawing.text(left + unit + 6, y + 10, "1", size=11, color=BLUE, bold=True)
        drawing.text(left + unit * ratio + 6, y + 22, f"{ratio:g}  {other}", size=11, color=SOFT)
    return drawing.svg()


def ring() -> str:
    drawing = Drawing(760, 260, "The server writes batches into slots of shared memory; trainers hold leases on slots")
    drawing.box(20, 90, 140, 70, "headrace serve", "worker threads", fill="#e7ecfd", line=BLUE)
    states = [("READY", GREEN), ("READY", GREEN), ("FILLING", ORANGE), ("FREE", GRAY), ("FREE", GRAY)]
    drawing.text(330, 62, "ring: slots of shared memory, one batch each", color=SOFT, anchor="middle")
    for slot, (state, color) in enumerate(states):
        x = 200 + 52 * slot
        drawing.rect(x, 90, 48, 70, "#ffffff", line=color, round=5)
        drawing.rect(x, 90, 48, 8, color, round=2)
        drawing.text(x + 24, 124, ("b7", "b8", "b9", "", "")[slot], anchor="middle", bold=True)
        drawing.text(x + 24, 148, state, size=10, color=color, anchor="middle", bold=True)
    drawing.arrow((160, 125), (196, 125))
    for y, name, leases in ((40, "trainer A", "holds b7, b8"), (160, "trainer B", "holds b8")):
        drawing.box(590, y, 150, 60, name, leases, fill="#e3f5eb", line=GREEN)
        drawing.arrow((460, 125), (524, 125), (524, y + 22), (586, y + 22))
        drawing.arrow((590, y + 44), (548, y + 44), (548, 232), (90, 232), (90, 164), color=ORANGE)
    drawing.text(470, 116, "grant", size=11, color=SOFT)
    drawing.text(320, 226, "ack: the lease ends; the slot is filled again when no lane needs it", size=11, color=ORANGE, anchor="middle")
    return drawing.svg()


def exactness() -> str:
    drawing = Drawing(760, 190, "A position of an epoch determines the sample, its random parameters and its pixels")
    drawing.box(20, 60, 130, 70, "position", "seed, epoch, p", fill="#e7ecfd", line=BLUE)
    drawing.box(200, 20, 170, 60, "keyed permutation", "which sample")
    drawing.box(200, 110, 170, 60, "Philox", "its random parameters")
    drawing.box(420, 60, 150, 70, "decode, transform", "exact arithmetic")
    drawing.box(620, 60, 120, 70, "row", "the same bytes", "each time", fill="#e3f5eb", line=GREEN)
    for y, inner in ((50, 80), (140, 110)):
        drawing.arrow((150, inner), (175, inner), (175, y), (196, y))
        drawing.arrow((370, y), (395, y), (395, inner), (416, inner))
    drawing.arrow((570, 95), (616, 95))
    return drawing.svg()


def positions() -> str:
    drawing = Drawing(760, 236, "Batches of two ranks, and the origin after a resume with another batch size")
    width = 28
    for y, title, origin, size in ((56, "2 ranks, batches of 3: saved after batch 1", 0, 3), (158, "resumed with 2 ranks, batches of 2: origin 12, batch 0", 12, 2)):
        drawing.text(24, y - 14, title, bold=True)
        for position in range(24):
            x = 24 + position * (width + 1.5)
            done = position < 12
            rank = (position - origin) // size % 2
            fill = "#e2e6ec" if origin and done else ("#c9d4fb" if rank == 0 else "#bfe8d1")
            drawing.rect(x, y, width, 30, fill, line=LINE, round=3)
            drawing.text(x + width / 2, y + 20, str(position), size=11, color=SOFT if origin and done else INK, anchor="middle")
        for batch in range((24 - origin) // (2 * size)):
            x = 24 + (origin + 2 * size * batch) * (width + 1.5)
            drawing.text(x, y + 48, f"batch {batch}", size=11, color=SOFT)
    drawing.rect(560, 12, 12, 12, "#c9d4fb", line=LINE, round=2)
    drawing.text(578, 22, "rank 0", size=11)
    drawing.rect(634, 12, 12, 12, "#bfe8d1", line=LINE, round=2)
    drawing.text(652, 22, "rank 1", size=11)
    drawing.text(24, 226, "gray: delivered before. Each remaining position comes once, whatever the sizes are.", size=11, color=SOFT)
    return drawing.svg()


def sharing() -> str:
    drawing = Drawing(760, 300, "Trainers in step share whole batches; trainers that are behind get rows from the window")
    drawing.box(20, 110, 120, 70, "decode, crop", "once per image", fill="#e7ecfd", line=BLUE)
    drawing.box(210, 40, 150, 60, "ring of stream 1", "whole batches")
    drawing.box(210, 190, 150, 60, "window", "uint8 rows, kept", "until all have them", fill="#fdf1e3", line=ORANGE)
    drawing.box(430, 190, 130, 60, "colors, dtype", "of each stream")
    for y, name, note in ((14, "trainer A", "in step"), (76, "trainer B", "in step"), (160, "trainer C", "behind on stream 1"), (226, "trainer D", "on stream 2")):
        drawing.box(600, y, 140, 52, name, note, fill="#e3f5eb", line=GREEN)
    drawing.arrow((140, 130), (175, 130), (175, 70), (206, 70))
    drawing.arrow((140, 160), (175, 160), (175, 220), (206, 220))
    drawing.arrow((360, 60), (480, 60), (480, 40), (596, 40))
    drawing.arrow((360, 80), (480, 80), (480, 102), (596, 102))
    drawing.arrow((360, 220), (426, 220))
    drawing.arrow((560, 210), (580, 210), (580, 186), (596, 186))
    drawing.arrow((560, 230), (580, 230), (580, 252), (596, 252))
    drawing.text(395, 280, "from a row of the window: no read, no decode", size=11, color=SOFT, anchor="middle")
    return drawing.svg()


def main() -> int:
    drawings = {
        ROOT / "tests/bench/peers/summary.svg": chart(),
        ROOT / "clientlib/ring/ring.svg": ring(),
        ROOT / "server/sampler/exactness.svg": exactness(),
        ROOT / "server/sampler/positions.svg": positions(),
        ROOT / "server/exec/sharing.svg": sharing(),
    }
    stale = write(drawings, "--check" in sys.argv[1:])
    if "--check" in sys.argv[1:] and stale:
        print(*(f"{path.relative_to(ROOT)} is not current: run tests/docs/drawings.py" for path in stale), sep="\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
