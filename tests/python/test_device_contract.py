"""The contract of iteration, of resuming and of waiting, on the twin of a GPU: every test of those files again, with batches copied ahead."""

from __future__ import annotations

import functools

import headrace
import pytest
from test_iteration import *  # noqa: F403
from test_resume import *  # noqa: F403
from test_waiting import *  # noqa: F403


@pytest.fixture(autouse=True)
def on_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headrace, "Loader", functools.partial(headrace.Loader, device="host", output="numpy"))
