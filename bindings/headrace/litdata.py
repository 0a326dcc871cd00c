"""LitData folders, as litdata.optimize() writes them: packs them into one database that the server reads.

    python -m headrace.litdata FOLDER train.lmdb

JPEG files are not decoded. If it was stopped or killed, the same command continues it. Needs litdata, which runs the code of pickled
values: pack only folders that you trust.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

from ._folder_dataset import FolderDataset, command


class LitDataset(FolderDataset):
    format, module, install = "LitData", "litdata", "litdata"
    __doc__ = FolderDataset.__doc__

    def _open(self, library: Any) -> Any:
        undecoded = importlib.import_module("litdata.streaming.serializers").BytesSerializer()
        return library.StreamingDataset(self._folder, shuffle=False, serializers={"jpeg": undecoded, "image": undecoded})

    def _sample(self, opened: Any, index: int) -> Any:
        sample = super()._sample(opened, index)
        if not isinstance(sample, dict):
            return sample
        return {name: bytes(value) if isinstance(value, memoryview) else value for name, value in sample.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    return command(LitDataset, "litdata", __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
