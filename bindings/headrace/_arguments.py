"""Checks of callers' arguments. Errors name the argument; the compiled module's own errors would only show a signature."""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import math
import operator
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import _headrace
from ._caller import warn
from .errors import InvalidArgument

# The key of the configuration that replaces each of these arguments of a DataLoader.
_CONFIGURED = {
    "batch_size": "streams.{stream}.batch_size",
    "shuffle": "streams.{stream}.shuffle",
    "drop_last": "streams.{stream}.last (`drop`)",
    "seed": "streams.{stream}.seed",
    "sampler": "streams.{stream}.sampler",
    "num_workers": "server.threads",
    "prefetch_factor": "streams.{stream}.ring.prefetch",
}
# Arguments of a DataLoader that have no effect here, and what replaces them.
DATALOADER_REPLACEMENTS = {
    "num_workers": "`server.threads`: one pool for all streams and trainers",
    "prefetch_factor": "`ring.prefetch`, and Loader(prefetch=…) on a device",
    "pin_memory": "device='cuda:N' pins the ring itself; host batches are not pinned",
    "pin_memory_device": "device='cuda:N'",
    "generator": "the stream's `seed:`",
    "worker_init_fn": "no Python runs in the server's workers",
    "multiprocessing_context": "there are no worker processes",
    "persistent_workers": "the server's threads are always persistent",
    "in_order": "batches are always in order",
}
_ELSEWHERE = {
    **DATALOADER_REPLACEMENTS,
    "collate_fn": "the server makes the batches; Loader(transform=…) changes them",
    "wait_for": "the stream's `sharing.wait_for`",
    "name": "Loader(client=…)",
}
MOST = 2**32 - 1
MOST_EPOCH = 2**48  # the largest number that a message holds


def explain_unknown(init: Callable[..., None]) -> Callable[..., None]:
    """Wraps Loader.__init__: the TypeError for an unknown argument names the configuration's key if it is a DataLoader's argument, else
    the most similar argument."""
    known = list(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def checked(self: Any, *given: Any, **named: Any) -> None:
        name = next((name for name in named if name not in known), None)
        if name in _CONFIGURED:
            key = _CONFIGURED[name].format(stream=named.get("stream") or "train")
            raise TypeError(
                f"Loader({name}=...): the server makes the batches, so its configuration sets this: {key}. "
                "headrace.from_dataloader_args() takes a DataLoader's arguments, and says which keys to change"
            )
        if name in _ELSEWHERE:
            raise TypeError(f"Loader({name}=...): unknown argument; instead: {_ELSEWHERE[name]}")
        if name is not None:
            near = difflib.get_close_matches(name, known, 1)
            raise TypeError(f"Loader({name}=...): unknown argument; " + (f"did you mean {near[0]}?" if near else f"expected one of: {', '.join(known)}"))
        init(self, *given, **named)

    return checked


def state_text(state: object, otherwise: str = "") -> str:
    """A saved state as JSON. `otherwise`: for the error: what else may be given."""
    if not isinstance(state, dict) or not state:
        found = "an empty dict" if isinstance(state, dict) else type(state).__name__
        raise InvalidArgument(f"state: expected the dict that state_dict() returned{otherwise}, found {found}")
    try:
        return json.dumps(state)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"state: {error}; pass what state_dict() returned") from None


def refuse_nameless_resume(given: dict[str, Any], stream: dict[str, Any]) -> None:
    """Refuses resume="server" where the server would remember no position, unless there is another reason to refuse it."""
    remembers = not stream.get("live") and not (stream.get("residence") and given["device"] is not None)
    named = given["group"] or given["client"]
    sole = given["state"] is None and given["join"] == "default"
    if given["resume"] and stream.get("delivery") == "broadcast" and remembers and not named and sole:
        raise InvalidArgument(
            "resume='server' on a broadcast stream: the server remembers positions by group, which is the client's name there, and the "
            "default name is new in each process; pass client='NAME', the same in each run"
        )


def warn_of_going_back(epoch: int, begins: int) -> None:
    """For a loader that begins in epoch `begins`: a loop that counts from 0 would undo that."""
    if epoch < begins:
        warn(
            f"set_epoch({epoch}) goes back: this loader begins in epoch {begins}, because of join, resume or a state. To continue there, "
            "count from loader.epoch: for epoch in range(loader.epoch, ...)"
        )


def text(name: str, value: Any, choices: tuple[str, ...] = ()) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{name}={value!r}: expected a str")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
        raise InvalidArgument(f"{name}={value!r}: contains control characters")
    if choices and value not in choices:
        raise InvalidArgument(f"{name}={value!r}: expected {' or '.join(map(repr, choices))}")
    return value


def texts(name: str, value: Any) -> list[str]:
    """Checks a list of names and returns it. A str, which is a sequence of its letters, is refused."""
    if isinstance(value, str):
        raise InvalidArgument(f"{name}={value!r}: expected a list of names, such as [{value!r}]")
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise InvalidArgument(f"{name}={value!r}: expected a list of str, found {type(value).__name__}")
    names = [text(f"{name}[{i}]", each) for i, each in enumerate(value)]
    seen: set[str] = set()
    for each in names:
        if each in seen:
            raise InvalidArgument(f"{name}: duplicate name {each!r}")
        seen.add(each)
    return names


def mapping(name: str, value: Any) -> dict[str, object]:
    """Checks changes to the configuration and returns them: a dict of dotted paths, or None."""
    if value is not None and not isinstance(value, Mapping):
        raise InvalidArgument(f"{name}={value!r}: expected a dict of dotted paths and values")
    return dict(value or {})


def setting(path: str, value: object) -> str:
    """A change to the configuration, as the server's option --set takes it."""
    scalar = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return f"{path}={scalar}"


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name}={value!r}: expected True or False")
    return value


def whole(name: str, value: Any, least: int = 0, most: int = MOST) -> int:
    """Checks an int, which may be numpy's, and returns it. True and False are refused."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name}={value!r}: expected an int") from None
    if not least <= number <= most:
        raise InvalidArgument(f"{name}={value!r}: expected {least} to {most}")
    return number


def seconds(name: str, value: Any, above_zero: bool = False) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidArgument(f"{name}={value!r}: expected a number of seconds") from None
    if math.isnan(number) or number < 0 or (above_zero and number == 0):
        raise InvalidArgument(f"{name}={value!r}: expected {'more than 0' if above_zero else '0 or more'} seconds")
    return number


def from_environment(variable: str, default: int, least: int) -> int:
    value = os.environ.get(variable)
    if value is None:
        return default
    try:
        return whole(variable, int(value), least)
    except ValueError:
        raise InvalidArgument(f"the environment's {variable}={value!r} is not a whole number of {least} or more; pass it to the Loader") from None


def ranks_of_torch() -> tuple[int, int]:
    """Rank and world size of torch.distributed if it was initialized, else 0 and 1. For launchers that do not set RANK, such as Lightning's
    and multiprocessing."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def users(name: str, value: Any) -> list[int]:
    """Checks a list of user ids and returns it; raises InvalidArgument."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidArgument(f"{name}={value!r}: expected a list of user ids, such as [1000, 1001]")
    return [whole(name, uid, 0, MOST - 1) for uid in value]


def connect(address: str | os.PathLike[str] | None, timeout: Any, allow_uids: Any = ()) -> _headrace.Client:
    """Connects to a server's directory; None: HEADRACE_ADDRESS, then the server's default."""
    try:
        path = os.fsdecode(os.fspath("" if address is None else address))
    except TypeError:
        has_one = isinstance(getattr(address, "address", None), str)  # as Server and Share have
        wanted = "pass its `.address`" if has_one else "expected the path of a server's directory, such as the `.address` of serve() and share()"
        raise InvalidArgument(f"address={address!r:.60}: {wanted}") from None
    return _headrace.connect(path, seconds("timeout", timeout, above_zero=True), users("allow_uids", allow_uids))
