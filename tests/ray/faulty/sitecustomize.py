"""Makes the Python processes of a node faulty: its raylet has this folder in PYTHONPATH and the fault in RAY_TEST_FAULT. Only maker actors import
headrace there."""

from __future__ import annotations

import importlib.abc
import importlib.util
import itertools
import os
import sys
import time
from typing import Any

FAULT, _, ARGUMENT = os.environ.get("RAY_TEST_FAULT", "").partition(":")


def _break(headrace: Any) -> None:
    rows, opened, calls = headrace.Maker.rows, headrace.Maker.__init__, itertools.count()

    def wrong(self: Any, *asked: Any) -> Any:
        batch = rows(self, *asked)
        batch[0].reshape(-1)[7] ^= 1  # one bit of one sample
        return batch

    def every_row_wrong(self: Any, *asked: Any) -> Any:
        batch = rows(self, *asked)
        batch[0][...] ^= 1
        return batch

    def slow(self: Any, *asked: Any) -> Any:
        time.sleep(float(ARGUMENT))
        return rows(self, *asked)

    def hanging(self: Any, *asked: Any) -> Any:
        if next(calls) == 5:
            time.sleep(3600)
        return rows(self, *asked)

    def raising(self: Any, *asked: Any) -> Any:
        raise headrace.errors.Error(f"disk on fire, rows {asked}", "TRANSIENT_IO")

    def huge(self: Any, *asked: Any) -> Any:
        import numpy

        batch = rows(self, *asked)
        large = type(batch)((numpy.empty((4 << 30) + 1, numpy.uint8), *batch[1:]))
        vars(large).update(vars(batch))
        return large

    def elsewhere(self: Any, *asked: Any, **named: Any) -> None:
        key, _, path = ARGUMENT.partition("=")
        opened(self, *asked, **{**named, "set": {**named["set"], key: path}})

    if FAULT == "version":
        headrace.__version__ = ARGUMENT
    elif FAULT == "data":
        headrace.Maker.__init__ = elsewhere
    else:
        headrace.Maker.rows = {"wrong": every_row_wrong, "bit": wrong, "slow": slow, "hanging": hanging, "raising": raising, "huge": huge}[FAULT]


class _Finder(importlib.abc.MetaPathFinder):
    """Breaks the package once it has been imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "headrace":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            _break(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if FAULT:
    sys.meta_path.insert(0, _Finder())
