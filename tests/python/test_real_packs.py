"""Real datasets in formats that only Python reads, packed or shared: trainers get the same values as PIL and torchvision give. Skipped
without HEADRACE_DATA (test_real_data.py)."""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import h5py
import headrace
import lmdb as lmdb_module
import lz4.frame
import numpy as np
import torch
from children import Child
from running import Process, headrace_binary, wait_until
from test_pack import CROP, folder, good, inspect, lmdb, run, served
from test_pack_layouts import PickledPairs, cifar_pickles, pack
from test_real_data import DATA, Pixels, bsd100, cifar, config, needs_data, unpacked, write_binary  # noqa: F401  (fixtures)

pytestmark = needs_data
Pairs = tuple[Path, list[str], dict[str, list[Pixels]]]
PAIR = {"lr": "image", "hr": "image x4"}


def check_middles(address: str, pair: dict[str, list[Pixels]]) -> None:
    """Checks that every pair comes once, with its center: 64 x 64 of LR and 256 x 256 of HR."""
    seen = []
    with headrace.Loader(address, stream="train", batch="dict") as loader:
        for batch in loader:
            for index, lr, hr in zip(batch.sample_index, batch["lr"], batch["hr"], strict=True):
                top, left = (round((side - 64) / 2) for side in pair["LR"][index].shape[:2])
                np.testing.assert_array_equal(lr, pair["LR"][index][top : top + 64, left : left + 64])
                np.testing.assert_array_equal(hr, pair["HR"][index][4 * top : 4 * top + 256, 4 * left : 4 * left + 256])
                seen.append(int(index))
    assert sorted(seen) == list(range(len(pair["LR"]))) and len(seen) >= 100


MIDDLE = {"transforms": [{"center_crop": {"size": 64}}], "output": {"layout": "NHWC"}, "batch_size": 8}


class PairsOfHdf5:
    """lr/<name> and hr/<name>; the file is opened by each worker for itself."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, None
        with h5py.File(path) as file:
            self._names = sorted(file["lr"])

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        self._file = self._file or h5py.File(self._path)
        return tuple(self._file[f"{kind}/{self._names[index]}"][()] for kind in ("lr", "hr"))


def test_bsd100_in_hdf5(start_server: Any, bsd100: Pairs, tmp_path: Path) -> None:  # noqa: F811
    _, names, pair = bsd100
    with h5py.File(tmp_path / "pairs.h5", "w") as file:
        for kind, images in pair.items():
            for name, pixels in zip(names, images, strict=True):
                file.create_dataset(f"{kind.lower()}/{name}", data=pixels, chunks=True, compression="gzip", compression_opts=1)
    out = tmp_path / "pairs.lmdb"
    assert pack(PairsOfHdf5(tmp_path / "pairs.h5"), out, fields=PAIR, compress="lz4").samples == len(names)
    assert "none damaged" in good("verify", out)
    check_middles(start_server(config(lmdb(out), **MIDDLE)).address, pair)


def test_bsd100_in_an_lmdb_of_compressed_pickles_is_cut_as_the_files_are(
    start_server: Any,
    bsd100: Pairs,  # noqa: F811
    tmp_path: Path,
) -> None:
    root, names, pair = bsd100
    with lmdb_module.open(str(tmp_path / "pairs"), map_size=1 << 28) as env, env.begin(write=True) as txn:
        for name, *pixels in zip(names, pair["LR"], pair["HR"], strict=True):
            txn.put(name.encode(), lz4.frame.compress(pickle.dumps(tuple(pixels))))
    out = tmp_path / "pairs.lmdb"
    assert pack(PickledPairs(tmp_path / "pairs"), out, fields=PAIR).samples == len(names)
    check_middles(start_server(config(lmdb(out), **MIDDLE)).address, pair)
    # Random crops are equal, too, because draws depend only on the position in the epoch.
    files = {kind.lower(): {"path": str(root), "names": f"{{}}_{kind}"} for kind in pair}
    cut = []
    for source in (lmdb(out), {"type": "paired_folders", "fields": files}):
        stream = {"transforms": [{"random_crop": {"size": 48}}, "random_rotate90"], "batch_size": 16, "seed": 3}
        with headrace.Loader(start_server(config(source, **stream)).address, stream="train", batch="dict") as loader:
            cut.append([(batch.sample_index.tolist(), batch["lr"].tobytes(), batch["hr"].tobytes()) for batch in loader])
    assert cut[0] == cut[1]


def test_cifar_10_pickles_give_the_batches_of_the_binary_version(
    start_server: Any,
    cifar: tuple[Pixels, Any, list[str]],  # noqa: F811
    tmp_path: Path,
) -> None:
    images, labels, names = cifar
    some = np.random.default_rng(0).permutation(len(images))[:10_000]
    dataset = cifar_pickles(tmp_path, images[some], labels[some], names)
    packed = pack(dataset, tmp_path / "cifar.lmdb", compress="lz4")
    assert (packed.samples, packed.bad) == (10_000, 0)
    (tmp_path / "binary").mkdir()
    write_binary(tmp_path / "binary", images[some], labels[some], names)
    stream = {"transforms": [{"random_crop": {"size": 32, "padding": 4}}, "random_horizontal_flip"], "batch_size": 256}
    binary = {"type": "cifar", "path": str(tmp_path / "binary")}
    expected = served(start_server, binary, **stream)
    assert served(start_server, lmdb(tmp_path / "cifar.lmdb"), **stream) == expected
    assert expected[2] == tuple(names)


class Patches(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The center of each pair, and the pair's number."""

    def __init__(self, pair: dict[str, list[Pixels]]) -> None:
        self._pair = pair

    def __len__(self) -> int:
        return len(self._pair["LR"])

    def __getitem__(self, index: int) -> dict[str, Any]:
        lr, hr = self._pair["LR"][index][8:40, 8:40], self._pair["HR"][index][32:160, 32:160]
        return {"lr": torch.from_numpy(lr.copy()), "hr": torch.from_numpy(hr.copy()).float() / 255, "index": index}


CONSUMER = """
import hashlib
with headrace.Loader(address, stream="train", batch="dict") as loader:
    for epoch in range(2):
        for batch in loader:
            say(batch=hashlib.sha256(b"".join(np.ascontiguousarray(batch[name]).tobytes() for name in ("lr", "hr", "index"))).hexdigest())
say(end=True)
"""


def test_a_torch_loader_of_bsd100_is_shared_by_two_processes(bsd100: Pairs) -> None:  # noqa: F811
    def loader(workers: int) -> Any:
        return torch.utils.data.DataLoader(Patches(bsd100[2]), batch_size=16, num_workers=workers)

    expected = [
        hashlib.sha256(b"".join(batch[name].numpy().tobytes() for name in ("lr", "hr", "index"))).hexdigest() for batch in loader(0)
    ]
    with headrace.share(loader(2), epochs=2, wait_for=2) as share:
        with Child(CONSUMER, share.address) as one, Child(CONSUMER, share.address) as two:
            for consumer in (one, two):
                assert [consumer.receive(60)["batch"] for _ in range(2 * len(expected))] == expected * 2
                assert consumer.receive() == {"end": True}
            share.wait(60)
    assert share.stats["batches"] == 2 * len(expected)


def test_a_pack_of_imagenet_that_is_killed_goes_on_and_serves_what_the_folder_gives(start_server: Any, tmp_path: Path) -> None:
    unpacked("imagenet-500.tar", tmp_path / "flat")
    for path in (tmp_path / "flat").glob("*.JPEG"):
        (tmp_path / "images" / path.stem).mkdir(parents=True)
        os.link(path, tmp_path / "images" / path.stem / path.name)
    out = tmp_path / "imagenet.lmdb"
    arguments = ["pack", str(tmp_path / "images"), str(out), "--store", "decoded", "--compress", "zstd"]
    first = Process([headrace_binary(), *arguments, "--threads", "1"], tmp_path / "pack.log")

    def some() -> bool:
        first.check_alive()
        return (out / "data.mdb").exists() and '"packed": 0' not in (said := run("inspect", out, "--json").stdout) and bool(said)

    wait_until(some, "the first samples to be packed")
    first.popen.send_signal(signal.SIGKILL)
    first.popen.wait(30)
    half = inspect(out)
    assert not half["complete"] and 0 < half["packed"] < half["count"] == 500
    assert "500 samples" in good(*arguments)
    assert "none damaged" in good("verify", out, "--decode")
    stream = {"transforms": CROP, "batch_size": 64}
    assert served(start_server, lmdb(out), **stream) == served(start_server, folder(tmp_path / "images"), **stream)
