"""Packs any Python dataset into one database, which a source of `type: lmdb` reads."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from . import _binary
from ._arguments import flag, text, texts, whole
from ._forks import release_in_children
from ._pack_fields import Field
from ._pack_samples import Failure, Local, WorkerPool, end_mark
from .errors import Error, InvalidArgument, from_code


@dataclass(frozen=True)
class Packed:
    """The result of pack(). `before` of the `samples` were packed by earlier calls. `bad` counts samples whose file could
    not be decoded, and with on_error="bad" those that raised or lacked a value; `first_bad` says what is wrong with the first ten."""

    path: str
    samples: int
    before: int
    raw_bytes: int
    file_bytes: int
    bad: int
    first_bad: tuple[str, ...]


class _Binary:
    """A process `headrace pack - OUT`, which reads records. It keeps the records that it has received, even if this process is killed."""

    def __init__(self, out: Path, options: list[str], header: dict[str, Any]) -> None:
        try:
            # In a session of its own: control-C reaches only this process, which then closes the pipe.
            self._process = subprocess.Popen(
                [_binary.path(), "pack", "-", str(out), *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise from_code("ENVIRONMENT", f"cannot start the binary that packs: {error}") from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        release_in_children(self, _Binary.close_pipe)  # a child's copy of the pipe would hide the end of the records
        try:
            self.write(json.dumps(header).encode() + b"\n")
            answer = self._line()
            if "next" not in answer:
                raise self._failure(answer)
        except BaseException:
            self.close()
            raise
        self.next, self.complete = int(answer["next"]), bool(answer["complete"])

    def _line(self) -> dict[str, Any]:
        line = self._out.readline()
        return dict(json.loads(line)) if line else {}

    def _failure(self, answer: dict[str, Any]) -> Error:
        if "error" in answer:
            return from_code(answer["error"]["code"], answer["error"]["message"])
        return from_code("ENVIRONMENT", f"`headrace pack` ended with status {self._process.wait()}")

    def write(self, data: Any) -> None:
        view = memoryview(data)
        try:
            while view.nbytes:
                view = view[self._in.write(view) :]
        except BrokenPipeError:
            raise self._failure(self._line()) from None

    def finish(self) -> dict[str, Any]:
        answer = self._line()
        if "error" in answer or not answer.get("complete", False):
            raise self._failure(answer)
        return answer

    def close(self) -> None:
        """Closes the pipe and waits for the process. Records without an end mark are kept as incomplete."""
        self.close_pipe()
        self._out.read()
        self._out.close()
        self._process.wait()

    def close_pipe(self) -> None:
        """Closes the pipe's file object, not its descriptor: after a close, another file may have that number."""
        with contextlib.suppress(OSError):
            self._in.close()

    def __enter__(self) -> _Binary:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _is_of_ray(dataset: Any) -> bool:
    data = sys.modules.get("ray.data")  # if it was never imported, there are no Ray Datasets
    return data is not None and isinstance(dataset, data.Dataset)


def _count_of(dataset: Any) -> int | None:
    """The dataset's length; None if it can only be iterated."""
    if _is_of_ray(dataset):
        return None  # counting would execute it
    data = sys.modules.get("torch.utils.data")
    iterable = data is not None and isinstance(dataset, data.IterableDataset)
    if not iterable and hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return len(dataset)
    if not hasattr(dataset, "__iter__"):
        raise InvalidArgument(f"{type(dataset).__name__} is not a dataset: expected __len__ and __getitem__, or __iter__")
    return None


def _making(dataset: Any, count: int | None, workers: int | None, start: str) -> Any:
    """What reads the samples and encodes them: the tasks of Ray, this process, or worker processes."""
    if _is_of_ray(dataset):
        from .ray._pack import Rows

        return Rows(dataset, workers)
    processes = len(os.sched_getaffinity(0)) if workers is None else whole("workers", workers, 0, 1024)
    return Local(dataset, count) if count is None or processes == 0 else WorkerPool(dataset, count, processes, start)


def _header(dataset: Any, fields: list[Field], classes: Sequence[str] | None, count: int | None, identity: str) -> dict[str, Any]:
    labelled = any(field.kind == "label" for field in fields)
    if classes is not None and not labelled:
        raise InvalidArgument("classes=: the samples have no label; say which field it is: fields={..., 'target': 'label'}")
    if classes is None and labelled:
        own = getattr(dataset, "classes", None)
        classes = own if isinstance(own, list | tuple) and all(isinstance(name, str) for name in own) else None
    return {
        "headrace": "records",
        "version": 1,
        **({} if count is None else {"count": count}),
        "labelled": labelled,
        "classes": list(classes or []),
        "identity": identity,
        "fields": [field.described() for field in fields if field.kind != "label"],
    }


def pack(
    dataset: Any,
    out: str | Path,
    fields: Mapping[Any, str | None] | None = None,
    *,
    classes: Sequence[str] | None = None,
    workers: int | None = None,
    start: str = "fork",
    store: str = "tiled",
    compress: str = "none",
    resize: str | int | None = None,
    on_error: str = "raise",
    identity: str = "",
    progress: bool = True,
) -> Packed:
    """Writes all samples of `dataset` into the database `out`, for a source of `type: lmdb`.

    dataset    has __len__ and __getitem__, or is an iterable, or a ray.data.Dataset, whose rows are dicts of columns
    fields     the kind of each entry of a sample, such as {"x": "image", "y": "label"}; None: inferred from the first sample
    classes    the names of the classes; None: the dataset's own list `classes`, if it has one
    workers    processes that read samples; None: one for each core; 0: this process. For a Ray Dataset the number of tasks that read its
               blocks at once, on all nodes; None: as many as there are free CPUs
    start      how workers start: "fork", "spawn" or "forkserver"
    store      "tiled", "encoded" or "decoded"; with `compress` and `resize` as in `headrace pack --help`
    on_error   "raise", or "bad": packs a sample that raises, or that has None in a field, as a bad one
    identity   your own version of the data, such as "v2"; a call that continues an incomplete database must give the same
    progress   False: shows no progress

    If it was interrupted, call it again: it continues with the first sample that is missing. bindings/README.md says what samples and
    `fields` may be, and what is stored.
    """
    if isinstance(dataset, (str, bytes, os.PathLike)):
        raise InvalidArgument(f"{dataset!r} is a name, not a dataset: `headrace pack {os.fsdecode(dataset)} {os.fspath(out)}` packs a folder")
    if fields is not None and not isinstance(fields, Mapping):
        raise InvalidArgument(f"fields={fields!r}: expected a dict of kinds, such as {{'x': 'image', 'y': 'label'}}; for tuples, its order is theirs")
    text("start", start, ("fork", "spawn", "forkserver"))
    text("on_error", on_error, ("raise", "bad"))
    text("identity", identity)
    classes = None if classes is None else texts("classes", classes)
    count = _count_of(dataset)
    if count == 0:
        raise InvalidArgument("the dataset has no samples")
    options = ["--store", text("store", store, ("tiled", "encoded", "decoded"))]
    options += ["--compress", text("compress", compress, ("none", "lz4", "zstd"))]
    if resize is not None:
        if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)?", str(resize)):
            raise InvalidArgument(f"resize={resize!r}: expected the shorter side in pixels, such as 256, or 'HEIGHTxWIDTH', such as '256x320'")
        options += ["--resize", str(resize)]
    if not flag("progress", progress):
        options.append("--quiet")
    making = _making(dataset, count, workers, start)
    with making:
        described = making.describe(fields)
        if isinstance(described, Failure):
            raise described.raised("nothing was written: the first sample shows what the fields are, so repair or remove it", described=False)
        header = _header(dataset, described, classes, count, identity)
        with _Binary(Path(out), options, header) as binary:
            if not binary.complete:
                end = making.feed(binary.next, described, len(header["classes"]), on_error == "bad", binary.write)
                if isinstance(end, Failure):
                    raise end.raised(f"{end.index} samples before it are kept in {out}: repair the dataset, then run the same command or program again to continue", described=True)
                binary.write(end_mark(end))
            done = binary.finish()
    bad = done["undecodable"], tuple(done["first_undecodable"])
    return Packed(str(out), done["packed"], done["before"], done["raw_bytes"], done["file_bytes"], *bad)
