"""A Loader for the workers of Ray Train."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import ray

import headrace

from .._arguments import seconds
from ..errors import GroupMismatch, InvalidArgument, RankTaken
from ._job_server import server_of_node
from ._share import Shared

_STATE = re.compile(r"headrace-(.+)-rank(\d+)\.json")
_LONGEST_GROUP = 200  # bytes
_HANDOVER_SECONDS = 10.0  # that a worker group which has failed may keep its ranks


class _Servers(Protocol):
    """Servers that run already, each on a node."""

    def address(self) -> str:
        """The directory of the server on the caller's node."""


def _of_train() -> tuple[int, int, str]:
    """This worker's rank, the world size, and the name of the run."""
    import ray.train

    try:
        context = ray.train.get_context()
        rank, world_size, name = context.get_world_rank(), context.get_world_size(), context.get_experiment_name()
    except Exception:  # each version of Ray raises another error here
        rank = None
    if rank is None:
        raise InvalidArgument("headrace.ray.Loader: this is no worker of Ray Train; call it in train_loop_per_worker, or pass rank= and world_size=")
    return int(rank), int(world_size), str(name or "default")


def _group_of_run(address: str, stream: str, run: str) -> str | None:
    """Runs of one job have a group each, so that they can read from one server at the same time. A broadcast stream has no groups."""
    shards = any(info.name == stream and info.delivery == "shard" for info in headrace.streams(address))
    return run.encode()[:_LONGEST_GROUP].decode(errors="ignore") if shards else None


def _texts(checkpoint: Any) -> dict[str, str]:
    """The files with states in a checkpoint, by name. Reads no other files of it."""
    if not (hasattr(checkpoint, "filesystem") and hasattr(checkpoint, "path")):
        if not isinstance(checkpoint, str | os.PathLike):
            raise InvalidArgument(
                f"checkpoint: expected a ray.train.Checkpoint, as ray.train.get_checkpoint() returns, a folder or None; found {type(checkpoint).__name__}"
            )
        return {file.name: file.read_text() for file in Path(checkpoint).iterdir() if _STATE.fullmatch(file.name)}
    import pyarrow.fs  # type: ignore[import-not-found, import-untyped, unused-ignore]

    entries = checkpoint.filesystem.get_file_info(pyarrow.fs.FileSelector(checkpoint.path))
    texts: dict[str, str] = {}
    for entry in entries:
        if _STATE.fullmatch(entry.base_name):
            with checkpoint.filesystem.open_input_stream(entry.path) as file:
                texts[entry.base_name] = file.read().decode()
    return texts


def _saved_state(checkpoint: Any, stream: str) -> dict[str, Any]:
    """The state of `stream` in a checkpoint, into which each rank or only some have saved it."""
    where = getattr(checkpoint, "path", checkpoint)
    try:
        texts = _texts(checkpoint)
        saved = {int(found[2]): json.loads(text) for name, text in texts.items() if (found := _STATE.fullmatch(name)) and found[1] == stream}
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"checkpoint {where}: cannot be read: {error}") from error
    if not saved:
        raise InvalidArgument(
            f"checkpoint {where} has no state of stream '{stream}': call loader.save(directory) before ray.train.report(), or pass checkpoint=None to start anew"
        )
    first, one = min(saved.items())
    for rank, other in sorted(saved.items()):
        # Ranks beyond the world size are of an earlier checkpoint in the same folder.
        if rank < one["world_size"] and other["state"] != one["state"]:
            raise InvalidArgument(
                f"checkpoint {where}: stream '{stream}': ranks {first} and {rank} saved different positions, {one['state']} and {other['state']}: "
                "all ranks must call loader.save() after the same batch"
            )
    state: dict[str, Any] = one["state"]
    return state


class Loader(headrace.Loader):
    """A headrace.Loader that finds or starts the server of its node. For train_loop_per_worker of a Ray Train trainer.

    config       the path of a YAML file that each node has, or its content as a dict (with absolute paths). Workers of a node and job that
                 give the same configuration use one server, which ends with the job. Or the result of headrace.ray.share(), or another
                 object whose method address() returns the directory of a server on the caller's node
    stream       the stream's name; with a share, that of the share
    rank, world_size   of a shard stream; None: those of the Train context
    checkpoint   what ray.train.get_checkpoint() returned, or a folder: resumes from the state that save() wrote there, at any world size.
                 None: starts anew
    state        a state_dict() from which to resume, instead of `checkpoint`
    set          configuration values by dotted path, as in headrace.serve()
    num_cpus     CPUs that Ray reserves for the server on each node; its number of threads is the configuration's `server.threads`
    wait         seconds to wait until the server is ready
    options      further arguments of headrace.Loader. The default of `group` is the name of the Train run

    Raises what headrace.Loader and headrace.serve() raise, and InvalidArgument for a checkpoint without a state of this stream.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | Shared | _Servers,
        *,
        stream: str = "",
        rank: int | None = None,
        world_size: int | None = None,
        checkpoint: Any = None,
        state: dict[str, Any] | None = None,
        set: Mapping[str, object] | None = None,  # noqa: A002
        num_cpus: float = 0,
        wait: float = 60.0,
        **options: Any,
    ) -> None:
        if checkpoint is not None and state is not None:
            raise InvalidArgument("checkpoint= and state= were both given: pass one of them")
        if "address" in options:
            raise InvalidArgument("address=: headrace.ray.Loader finds its server by `config`; to use a server of your own, make a headrace.Loader")
        if isinstance(config, Shared):
            if set or checkpoint is not None:
                raise InvalidArgument(f"{'set' if set else 'checkpoint'}=: a shared Ray Dataset has neither a configuration nor a position to resume from")
            address, stream = config.address(), stream or config.name
            self._train_rank, self._train_world_size = 0, 1  # a broadcast stream
        else:
            run = None
            if rank is None or world_size is None:
                its_rank, its_world_size, run = _of_train()
                rank, world_size = its_rank if rank is None else rank, its_world_size if world_size is None else world_size
            self._train_rank, self._train_world_size = rank, world_size
            if checkpoint is not None:
                state = _saved_state(checkpoint, stream)
            of_node = getattr(config, "address", None)
            if callable(of_node):
                if set:
                    raise InvalidArgument("set=: these servers run already; give it to what started them")
                address = str(of_node())
            else:
                address = server_of_node(config, set, num_cpus, wait)
            if run is not None and options.get("group") is None:
                options["group"] = _group_of_run(address, stream, run)
        end = time.monotonic() + min(_HANDOVER_SECONDS, seconds("reconnect_timeout", options.get("reconnect_timeout", 60.0)))
        while True:
            try:
                super().__init__(address, stream=stream, rank=self._train_rank, world_size=self._train_world_size, state=state, **options)
                return
            except (RankTaken, GroupMismatch):
                # After a failure, Train may start new workers before the server has noticed the end of the old ones.
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes this rank's state into the folder of a checkpoint, as headrace-STREAM-rankN.json, for Loader(checkpoint=...).

        Call it after the same batch on each rank that reports a checkpoint; one rank is enough, because the state is the same on all."""
        name = f"headrace-{self._arguments['stream']}-rank{self._train_rank}.json"
        body = {"rank": self._train_rank, "world_size": self._train_world_size, "state": self.state_dict()}
        Path(directory, name).write_text(json.dumps(body))

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a headrace.ray.Loader belongs to its node and worker: make it in train_loop_per_worker instead of passing it there")

    def __repr__(self) -> str:
        return f"headrace.ray.Loader(stream={self._arguments['stream']!r}, rank={self._train_rank}, node={ray.get_runtime_context().get_node_id()!r:.10})"
