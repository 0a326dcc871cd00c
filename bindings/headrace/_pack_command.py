"""The commands that pack the files of other programs: the arguments that they share, and their errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

from .errors import DatasetInvalid, Error, InvalidArgument
from .packing import pack


def check_label(columns: Collection[str], label: str | None, where: str) -> None:
    """The column `label` becomes the field `label`, so no other column may have that name."""
    if label not in (None, "label") and "label" in columns:
        raise InvalidArgument(f"{where}: columns {label!r} and 'label' would both become the field `label`: choose the columns to pack without one of them (columns=, --columns)")


def _remedies(error: Error, out: str) -> str:
    """The options with which the command would go on, as the end of the error's message."""
    helps = error.helps if isinstance(error, DatasetInvalid) else ()
    return "".join(
        (
            "; or pack such samples as bad ones with --on-error bad" if "on_error" in helps else "",
            f"; or leave the column out with --columns, and remove {out} first if it is there" if "columns" in helps else "",
        )
    )


def run(parser: argparse.ArgumentParser, dataset: Callable[[argparse.Namespace], Any], arguments: Sequence[str] | None) -> int:
    """Adds the shared arguments to those of `parser`, packs `dataset(given)`, and returns the exit status."""
    parser.add_argument("out", help="folder of the database, which is created")
    parser.add_argument("--columns", nargs="+", metavar="NAME", help="the columns to pack (default: all)")
    parser.add_argument("--store", choices=("tiled", "encoded", "decoded"), default="tiled", help="as in `headrace pack --help` (default: tiled)")
    parser.add_argument("--compress", choices=("none", "lz4", "zstd"), default="none", help="as in `headrace pack --help` (default: none)")
    parser.add_argument("--resize", help="as in `headrace pack --help`")
    parser.add_argument("--on-error", choices=("raise", "bad"), default="raise", help="bad: pack a row that cannot be read, or that has a null, as a bad sample (default: raise)")
    parser.add_argument("--workers", type=int, help="processes that read rows (default: one for each core)")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    given = parser.parse_args(arguments)
    try:
        packed = pack(
            dataset(given),
            given.out,
            store=given.store,
            compress=given.compress,
            resize=given.resize,
            workers=given.workers,
            on_error=given.on_error,
            progress=not given.quiet,
        )
    except Error as error:
        print(f"headrace: {error}{_remedies(error, given.out)}", file=sys.stderr)
        return 2 if isinstance(error, InvalidArgument) else 3
    bad = f", {packed.bad} of them bad ({'; '.join(packed.first_bad[:3])}{'; …' if packed.bad > 3 else ''})" if packed.bad else ""
    done = f"packed {packed.samples} samples into {packed.path}"
    if packed.before == packed.samples:
        done = f"{packed.path} is complete already: {packed.samples} samples"
    print(f"{done}{bad}; serve it: sources: {{packed: {{type: lmdb, path: {packed.path}}}}}")
    return 0
