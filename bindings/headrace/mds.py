"""MDS folders, as MosaicML's streaming writes them: packs them into one database that the server reads.

    python -m headrace.mds FOLDER train.lmdb

JPEG and PNG columns are not decoded. If it was stopped or killed, the same command continues it. Needs mosaicml-streaming.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from ._folder_dataset import FolderDataset, command


class MDSDataset(FolderDataset):
    format, module, install = "MDS", "streaming", "mosaicml-streaming"
    __doc__ = FolderDataset.__doc__

    def _open(self, library: Any) -> Any:
        dataset = library.LocalDataset(self._folder)
        for shard in dataset.shards:
            if not os.path.exists(os.path.join(self._folder, shard.raw_data.basename)):
                raise ValueError(f"{shard.raw_data.basename} is missing; unpack compressed shards first, by iterating over streaming.StreamingDataset(local=...)")
            shard.validate(False)  # refuses pickled columns, which would run code
            shard.column_encodings = ["bytes" if encoding in ("jpeg", "png") else encoding for encoding in shard.column_encodings]
        return dataset


def main(arguments: Sequence[str] | None = None) -> int:
    return command(MDSDataset, "mds", __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
