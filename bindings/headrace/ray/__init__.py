"""Headrace on a Ray cluster: a server beside each trainer, rows that other nodes make, and streams of a Ray Dataset. Only this package
imports ray.

    loader = headrace.ray.Loader("/data/train.yaml", stream="train", checkpoint=ray.train.get_checkpoint())  # in a worker of Ray Train

    with headrace.ray.start("train.yaml", makers=(1, 8)) as servers:  # other nodes decode
        loader = headrace.Loader(servers.address(), stream="train")

bindings/many-machines.md says what runs on which machine.
"""

from __future__ import annotations

try:
    import ray as _ray  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401
    import zmq as _zmq  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"headrace.ray needs {error.name}: pip install 'headrace[ray]'", name=error.name) from error

from ._loader import Loader
from ._share import Shared, share
from ._start import Servers, start

__all__ = ["Loader", "Servers", "Shared", "share", "start"]
