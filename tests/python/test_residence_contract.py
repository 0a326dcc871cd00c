"""The contract of iteration and of resuming, for a dataset in GPU memory: every test of those files again, on the CPU backend, with a chain
that the device can apply."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import headrace
import pytest
from test_iteration import *  # noqa: F403
from test_resume import *  # noqa: F403

# These tests differ here, because after the upload the loader sends the server no requests:
del test_set_epoch_after_iter_and_prefetch_discards_what_was_prefetched  # noqa: F821  the first batch brings the set
del test_a_loader_that_joins_late_begins_where_join_says  # noqa: F821  where others are it does not know
del test_a_loop_that_goes_back_from_where_it_joined_is_warned  # noqa: F821  the same
del test_next_commits_the_batch_before_it  # noqa: F821
del test_resume_from_the_servers_memory_goes_on_with_the_uncommitted_batch  # noqa: F821  refused
del test_resume_from_the_server_needs_a_name_on_a_broadcast_stream  # noqa: F821  the same
del test_ranks_that_were_killed_at_different_batches_come_back_to_one_cursor  # noqa: F821  the same
del test_a_loop_does_not_go_on_in_other_batches_but_its_state_does  # noqa: F821  it goes on in its own


@pytest.fixture
def basic_config(image_folder: Path) -> dict[str, Any]:
    """Same as in conftest.py."""
    transforms = [{"resize": {"size": [40, 40]}}, {"random_crop": {"size": 32}}, "random_horizontal_flip"]
    stream = {"source": "images", "batch_size": 8, "seed": 7, "residence": "gpu", "transforms": transforms}
    return {
        "server": {"threads": 1},
        "sources": {"images": {"type": "image_folder", "path": str(image_folder)}},
        "streams": {"train": stream},
    }


@pytest.fixture(autouse=True)
def on_the_cpu_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headrace, "Loader", functools.partial(headrace.Loader, device="host", output="numpy"))
