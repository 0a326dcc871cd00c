"""The contract of iteration, of resuming and of waiting, on the CPU backend: every test of those files again, with batches that are
copied ahead of the loop."""

from __future__ import annotations

import functools

import headrace
import pytest
from test_iteration import *  # noqa: F403
from test_resume import *  # noqa: F403
from test_waiting import *  # noqa: F403

# These tests differ here:
del test_a_loader_that_joins_late_begins_where_join_says  # noqa: F821  where others are counts what they have fetched
del test_a_loop_does_not_go_on_in_other_batches_but_its_state_does  # noqa: F821  nor here, behind what was fetched
del test_a_timeout_names_the_clients_that_are_waited_for  # noqa: F821  a loader that has begun fetches on, and nobody has to wait for it
del test_a_seek_that_is_interrupted_under_live_views_asks_for_their_release  # noqa: F821  there are no views


@pytest.fixture(autouse=True)
def on_the_cpu_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headrace, "Loader", functools.partial(headrace.Loader, device="host", output="numpy"))
