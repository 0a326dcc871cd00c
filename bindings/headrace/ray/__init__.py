"""Headrace on a Ray cluster: a server on each trainer's node, and rows that other nodes make.

    import headrace.ray
    with headrace.ray.start("train.yaml", makers=(1, 8)) as servers:
        loader = headrace.Loader(servers.address(), stream="train")
"""

from __future__ import annotations

try:
    import ray as _ray  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401
except ImportError as error:
    raise ImportError("headrace.ray needs Ray: pip install 'headrace[ray]'") from error

from ._start import Servers, start

__all__ = ["Servers", "start"]
