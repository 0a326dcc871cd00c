"""Headrace's client: batches from a data server on this machine, and the server itself.

    import headrace
    with headrace.serve("train.yaml") as server:
        loader = headrace.Loader(server.address, stream="train")
        for image, label in loader:
            ...
"""

from __future__ import annotations

from . import errors
from ._device import DeviceArray
from ._headrace import __version__
from .ask import cursors, drain, sample, stats, streams
from .batch import DictBatch, TupleBatch
from .dataloader_args import from_dataloader_args
from .digest import Digest
from .errors import Error
from .loader import Loader
from .maker import Maker
from .packing import Packed, pack
from .scatter import scatter
from .server import Server, serve
from .sharing import Share, share
from .types import FieldSpec, Fingerprint, Sample, StreamInfo

__all__ = [
    "DeviceArray",
    "DictBatch",
    "Digest",
    "Error",
    "FieldSpec",
    "Fingerprint",
    "Loader",
    "Maker",
    "Packed",
    "Sample",
    "Server",
    "Share",
    "StreamInfo",
    "TupleBatch",
    "__version__",
    "cursors",
    "drain",
    "errors",
    "from_dataloader_args",
    "pack",
    "sample",
    "scatter",
    "serve",
    "share",
    "stats",
    "streams",
]
