"""MDS folders, as MosaicML's streaming writes them: packs them into one database that the server reads.

    python -m headrace.mds FOLDER train.lmdb

JPEG and PNG columns are not decoded. If it was stopped or killed, the same command continues it. Needs mosaicml-streaming.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from ._folder_dataset import FolderDataset, command
from .errors import DatasetInvalid


class MDSDataset(FolderDataset):
    format, module, install = "MDS", "streaming", "mosaicml-streaming"
    __doc__ = FolderDataset.__doc__

    def _open(self, library: Any) -> Any:
        with open(os.path.join(self._folder, "index.json"), encoding="utf-8") as index:
            formats = {shard["format"] for shard in json.load(index)["shards"]}
        for other in sorted(formats - {"mds"}):
            raise DatasetInvalid(f"{self._folder} has {str(other).upper()} shards: expected MDS; write it again with streaming.MDSWriter")
        dataset = library.LocalDataset(self._folder)
        for shard in dataset.shards:
            path = os.path.join(self._folder, shard.raw_data.basename)
            if not os.path.exists(path):
                raise DatasetInvalid(f"{path} is missing: unpack compressed shards first, by iterating over streaming.StreamingDataset(local=...)")
            # The library would give what is left of a row.
            if os.path.getsize(path) != shard.raw_data.bytes:
                raise DatasetInvalid(f"{path} has {os.path.getsize(path)} bytes, expected {shard.raw_data.bytes} as index.json says: copy or download it again")
            shard.validate(False)  # refuses pickled columns, which would run code
            shard.column_encodings = ["bytes" if encoding in ("jpeg", "png") else encoding for encoding in shard.column_encodings]
        return dataset


def main(arguments: Sequence[str] | None = None) -> int:
    return command(MDSDataset, "mds", __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
