"""Encodes the rows of a Ray Dataset as records for headrace.pack(): in tasks of Ray, on all nodes. Records arrive in the dataset's order."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import ray
import ray.data

from .._arguments import whole
from .._pack_fields import Field, Misfit, fields_of
from .._pack_samples import Failure, Write, record, renumbered
from ..errors import DatasetInvalid, InvalidArgument


class _TaskFailure(Failure):
    """An error of the dataset itself. Ray then ends all of its tasks, so the sample is not known."""

    def __init__(self, written: int, error: ray.exceptions.RayError) -> None:
        cause: BaseException = error
        while (inner := getattr(cause, "cause", None) or cause.__cause__) is not None:
            cause = inner
        super().__init__(written, cause)
        self.trace = str(error)

    def raised(self, kept: str, described: bool) -> Exception:
        kind = type(self.error).__name__ if self.error is not None else "an error"
        what = DatasetInvalid(f"a task of Ray that makes the dataset's rows raised {kind}: {self.text}; {kept}\n{self.trace}")
        what.__cause__ = self.error
        return what


class Rows:
    """The samples of a Ray Dataset, as headrace._pack_samples.Local and WorkerPool have those of other datasets.

    tasks   how many tasks encode rows at once; None: as many as the cluster has free CPUs for"""

    def __init__(self, dataset: ray.data.Dataset, tasks: int | None) -> None:
        if tasks is not None:
            whole("workers", tasks, 1, 4096)  # 0 is this process, in which Ray does not run
        self._dataset, self._tasks = dataset, tasks

    def describe(self, spellings: Mapping[Any, Any] | None) -> list[Field] | Failure:
        try:
            rows = self._dataset.take(1)
            return fields_of(rows[0], spellings) if rows else Failure(0, InvalidArgument("the dataset has no samples"))
        except ray.exceptions.RayError as error:
            return _TaskFailure(0, error)
        except Exception as error:
            return Failure(0, error)

    def feed(self, begin: int, fields: list[Field], classes: int, bad: bool, write: Write) -> int | Failure:
        def encode(row: dict[str, Any]) -> dict[str, Any]:
            """The first part of a record, of which only the caller knows the index, and the rest; or a failure."""
            try:
                first, *rest = record(0, row, fields, classes)
            except Exception as error:
                return {"head": b"", "body": pickle.dumps(Failure(0, error))}
            return {"head": first, "body": b"".join(rest)}

        index = 0
        try:
            for head, body in self._encoded(encode):
                if index >= begin:
                    if head:
                        write(renumbered(head, index))
                        write(body)
                    else:
                        failure: Failure = pickle.loads(body)
                        failure.index = index
                        if not bad or not failure.may_be_bad:
                            return failure
                        write(failure.bad_record())
                index += 1
        except ray.exceptions.RayError as error:  # the dataset's own functions raised
            return _TaskFailure(max(index, begin), error)
        if index < begin:
            return Failure(begin, Misfit("the dataset ended before this sample, at which packing resumes: is it the same dataset as before?"))
        return index

    def _encoded(self, encode: Any) -> Iterator[tuple[bytes, bytes]]:
        mapped = self._dataset.map(encode, concurrency=self._tasks)
        for table in mapped.iter_batches(batch_size=None, batch_format="pyarrow"):
            yield from zip(table.column("head").to_pylist(), table.column("body").to_pylist(), strict=True)

    def __enter__(self) -> Rows:
        options = self._dataset.context.execution_options
        self._preserved, options.preserve_order = options.preserve_order, True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._dataset.context.execution_options.preserve_order = self._preserved
