"""The function of a spawned worker, in a module because multiprocessing imports it by name."""

from __future__ import annotations

import os
from typing import Any

import headrace


def digest(loader: headrace.Loader) -> str:
    state = headrace.Digest()
    for batch in loader:
        state.add(batch)
    return state.hexdigest()


def digest_of_an_epoch(loader: headrace.Loader, answers: Any) -> None:
    assert loader.info.name == "train", "known before the first batch"
    answers.put([os.getpid(), digest(loader)])
    loader.close()
