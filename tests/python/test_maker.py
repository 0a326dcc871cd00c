"""A headrace.Maker makes the batches that a server hands out, for every file of configs/. Its errors are named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import example_sources  # noqa: F401  (registers its runs)
import headrace
import numpy as np
import pytest
import yaml
from examples import CONFIGS, RUNS, Example, photos
from far_server import FarServer
from running import wait_until
from test_webdataset import write_shards

MOST_BATCHES = 5  # of an epoch that are compared


def assert_equal_batches(made: Any, served: Any) -> None:
    """Equal names, types, shapes and bytes of all fields, and equal rows."""
    assert list(made) == list(served) and (made.epoch, made.number) == (served.epoch, served.number)
    for name in (*made, "valid", "sample_index", "replaced"):
        pair = [getattr(batch, name) if name not in batch else batch[name] for batch in (made, served)]
        ours, theirs = ([*value] if isinstance(value, tuple) else [value] for value in pair)
        for mine, other in zip(ours, theirs, strict=True):
            assert (mine.dtype, mine.shape) == (other.dtype, other.shape), name
            assert mine.tobytes() == np.asarray(other).tobytes(), name


def compare(address: str, file: Path, changes: dict[str, object]) -> int:
    """Compares two epochs of each stream of a server with Makers of one and two threads. Returns the number of batches."""
    compared = 0
    for info in headrace.streams(address):
        if info.name.endswith(".resident"):  # the server's own, for uploads
            continue
        makers = [headrace.Maker(file, info.name, threads=threads, set=changes, batch="dict") for threads in (1, 2)]
        for maker in makers:
            assert maker.info.fingerprint == info.fingerprint
            assert (maker.info.fields, maker.info.classes, maker.info.samples) == (info.fields, info.classes, info.samples)
        device = {"device": "host", "output": "numpy"} if info.on_device else {}
        for world in (1, 2) if info.delivery == "shard" else (1,):
            with ExitStack() as stack:
                ranks = [
                    stack.enter_context(headrace.Loader(address, stream=info.name, rank=rank, world_size=world, batch="dict", **device))
                    for rank in range(world)
                ]
                assert makers[0].length(world) == len(ranks[0])
                for epoch in range(2):
                    for k, batches in enumerate(islice(zip(*ranks, strict=True), MOST_BATCHES)):
                        for rank, served in enumerate(batches):
                            for maker in makers:
                                assert_equal_batches(maker.batch(epoch, k, world, rank), served)
                            compared += 1
    return compared


class Compared(Exception):
    """Ends the run of an example after the comparison with its first server."""


class ComparedExample(Example):
    """Compares the server with Makers before the example's clients connect."""

    @contextmanager
    def served(self, **changed: object) -> Iterator[str]:
        alone = {f"streams__{name}__sharing__wait_for": 1 for name in yaml.safe_load(self.file.read_text())["streams"]}
        changed = {**changed, **alone}
        with super().served(**changed) as address:
            changes = {**self.own(), **{name.replace("__", "."): value for name, value in changed.items()}}
            assert compare(address, self.file, changes) > 0
            raise Compared
        yield address


@pytest.mark.parametrize("name", sorted(set(RUNS) - {"feed"}))
def test_batches_of_every_example_equal_the_servers(name: str, tmp_path: Path) -> None:
    with pytest.raises(Compared):
        RUNS[name](ComparedExample(name, tmp_path))


def test_a_stream_with_a_feed_is_refused() -> None:
    with pytest.raises(headrace.errors.InvalidArgument, match="stream `train` is fed from outside"):
        headrace.Maker(CONFIGS / "feed.yaml", "train")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """60 photos in a shuffled stream `train` of 8."""
    photos(tmp_path / "photos")
    file = tmp_path / "train.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "sources": {"photos": {"type": "image_folder", "path": "photos"}},
                "streams": {"train": {"source": "photos", "batch_size": 8, "transforms": [{"random_resized_crop": 64}, "random_horizontal_flip"]}},
            }
        )
    )
    return file


def test_rows_equal_those_of_the_batches(config: Path) -> None:
    maker = headrace.Maker(config, "train", threads=2)
    images, labels = epoch = maker.rows(3, 0, 60)
    assert images.shape == (60, 3, 64, 64) and images.dtype == np.uint8 and labels.shape == (60,) and images.flags.writeable
    assert sorted(epoch.sample_index) == list(range(60)) and epoch.valid.all() and not epoch.replaced.any()
    for k in range(maker.length()):
        batch = maker.batch(3, k)
        np.testing.assert_array_equal(batch[0], images[8 * k : 8 * k + 8])
        np.testing.assert_array_equal(batch[1], labels[8 * k : 8 * k + 8])
        np.testing.assert_array_equal(batch.sample_index, epoch.sample_index[8 * k : 8 * k + 8])
    np.testing.assert_array_equal(maker.rows(3, 17, 1)[0], images[17:18])
    assert repr(maker) == "Maker(stream='train', samples=60, batch_size=8)"


def test_rows_equal_those_that_sample_shows(config: Path) -> None:
    maker = headrace.Maker(config, "train", batch="dict", meta=True)
    with headrace.serve(config) as server:
        for index in (0, 31, 59):
            shown, rows = headrace.sample(server.address, "train", 2, index), maker.rows(2, index, 1)
            np.testing.assert_array_equal(rows["image"][0], shown.fields["image"])
            assert rows["sample_index"].tolist() == [shown.sample_index] and rows["label"].tolist() == [shown.label]


def test_calls_in_several_threads_release_the_gil(config: Path) -> None:
    maker = headrace.Maker(config, "train", set={"sources.photos.io.delay": "5ms"})  # an epoch takes more than 0.3 s
    made: list[Any] = []
    threads = [threading.Thread(target=lambda: made.append(maker.rows(0, 0, 60))) for _ in range(2)]
    for thread in threads:
        thread.start()
    ticks = 0
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.001)
        ticks += 1
    assert ticks > 50, "this thread ran meanwhile"
    np.testing.assert_array_equal(made[0][0], made[1][0])


def test_threads_divide_a_batch_among_themselves(config: Path) -> None:
    took = []
    for threads in (1, 8):
        maker = headrace.Maker(config, "train", threads=threads, set={"sources.photos.io.delay": "50ms"})
        begun = time.monotonic()
        maker.batch(0, 0)  # 8 rows
        took.append(time.monotonic() - begun)
    assert took[0] > 0.4 and took[1] < took[0] / 2, took


class Rang(Exception):
    """Raised by the handler of SIGALRM."""


def test_a_signal_ends_a_call(config: Path) -> None:
    maker = headrace.Maker(config, "train", set={"sources.photos.io.delay": "1s"})  # a row

    def ring(*_: object) -> None:
        raise Rang

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        begun = time.monotonic()
        with pytest.raises(Rang):
            maker.rows(0, 0, 5)
        assert time.monotonic() - begun < 2, "it ends after a row at most"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(maker.rows(0, 0, 2)[1]) == 2


@pytest.fixture
def far(image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FarServer]:
    """A file server for the configuration `far.yaml`, whose stream `train` reads a shard of 60 images over HTTP."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_shards(image_folder, tmp_path / "web", "train", tarfile.GNU_FORMAT, "cls", count=1)
    with FarServer(tmp_path / "web") as server:
        source = {"type": "webdataset", "path": f"{server.url}/train-0000.tar"}
        stream = {"source": "shard", "batch_size": 8, "transforms": [{"center_crop": 16}]}
        (tmp_path / "far.yaml").write_text(yaml.safe_dump({"sources": {"shard": source}, "streams": {"train": stream}}))
        yield server


def test_ctrl_c_ends_the_constructor_while_a_remote_source_stalls(far: FarServer, tmp_path: Path) -> None:
    far.stall.set()
    pressed: list[float] = []

    def press() -> None:
        wait_until(lambda: far.requests, "the first request")
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        headrace.Maker(tmp_path / "far.yaml", "train")
    assert time.monotonic() - pressed[0] < 10, "a read that hangs is given up after 20 s, and then retried"
    thread.join()


def fork(check: Callable[[], bool]) -> int:
    """The process ID of a forked child, which exits with 0 if `check()` is true."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(1)
    return child


def test_a_forked_child_can_use_its_parents_maker(config: Path) -> None:
    maker = headrace.Maker(config, "train", threads=2)
    expected = maker.batch(0, 1)[0].tobytes()
    assert os.waitpid(fork(lambda: maker.batch(0, 1)[0].tobytes() == expected), 0)[1] == 0


def test_forked_children_open_their_own_connections(far: FarServer, tmp_path: Path) -> None:
    maker = headrace.Maker(tmp_path / "far.yaml", "train")

    def epoch() -> list[bytes]:
        return [maker.batch(0, k)[0].tobytes() for k in range(maker.length())]

    expected, connections = epoch(), far.connections
    assert os.waitpid(fork(lambda: epoch() == expected), 0)[1] == 0
    assert far.connections > connections, "the child used its parent's"
    # Replies over a connection that several processes use would be mixed up.
    children = [fork(lambda: all(epoch() == expected for _ in range(5))) for _ in range(3)]
    assert all(epoch() == expected for _ in range(5))
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]


def test_batches_outlive_their_maker(config: Path) -> None:
    maker = headrace.Maker(config, "train")
    images, _ = maker.batch(0, 0)
    before = images.copy()
    del maker
    np.testing.assert_array_equal(images, before)
    images[:] = 0


def test_output_torch_gives_tensors(config: Path) -> None:
    torch = pytest.importorskip("torch")
    image, label = headrace.Maker(config, "train", output="torch").batch(0, 0)
    assert image.shape == (8, 3, 64, 64) and label.dtype == torch.int64


def test_the_environment_and_set_override_the_configuration(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_STREAMS__TRAIN__BATCH_SIZE", "5")
    assert headrace.Maker(config, "train").length() == 12
    assert headrace.Maker(config, "train", set={"streams.train.batch_size": 4}).length() == 15


E = headrace.errors


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda m: m.rows(0, 55, 6), E.InvalidArgument, "6 rows from position 55: stream `train` has 60 per epoch"),
        (lambda m: m.rows(0, 0, 0), E.InvalidArgument, "count=0: expected 1 to"),
        (lambda m: m.rows(-1, 0, 1), E.InvalidArgument, "epoch=-1: expected 0 to"),
        (lambda m: m.rows(0, "a", 1), E.InvalidArgument, "first='a': expected an int"),
        (lambda m: m.batch(0, 8), E.InvalidArgument, "batch is 8: stream `train` has 8 per epoch with world_size 1"),
        (lambda m: m.batch(0, 0, 0), E.InvalidArgument, "world_size=0: expected 1 to"),
    ],
)
def test_calls_refuse_invalid_arguments(config: Path, call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as raised:
        call(headrace.Maker(config, "train"))
    assert message in str(raised.value)


def test_only_a_shard_stream_checks_ranks(config: Path) -> None:
    maker = headrace.Maker(config, "train")
    assert maker.batch(0, 0, 2, 5)[0].tobytes() == maker.batch(0, 0)[0].tobytes()
    with pytest.raises(E.InvalidArgument, match="rank is 2: expected 0 to 1, because world_size is 2"):
        headrace.Maker(config, "train", set={"streams.train.delivery": "shard"}).batch(0, 0, 2, 2)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"stream": "tarin"}, E.NoSuchStream, "no stream `tarin`; expected one of: train; did you mean `train`?"),
        ({"stream": ""}, E.InvalidArgument, "a Maker needs a stream's name"),
        ({"threads": 0}, E.InvalidArgument, "threads=0: expected 1 to 1024"),
        ({"batch": "list"}, E.InvalidArgument, "batch='list': expected 'tuple' or 'dict'"),
        ({"output": "tf"}, E.InvalidArgument, "output='tf': use"),
        ({"set": ["a"]}, E.InvalidArgument, "set=['a']: expected a dict"),
        ({"set": {"streams.train.batch_sise": 2}}, E.ConfigInvalid, "batch_sise"),
        ({"set": {"sources.photos.path": "/nowhere"}}, E.DatasetInvalid, "/nowhere"),
        ({"config": "none.yaml"}, E.ConfigInvalid, "none.yaml"),
        ({"config": 3}, E.InvalidArgument, "config: expected the path of a YAML file, found int"),
    ],
)
def test_the_constructor_refuses_invalid_arguments(config: Path, arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    given = {"config": config, "stream": "train", **arguments}
    with pytest.raises(kind) as raised:
        headrace.Maker(given.pop("config"), given.pop("stream"), **given)
    assert message in str(raised.value)


def test_bad_samples_are_replaced_or_fail_as_in_a_server(config: Path) -> None:
    for number in range(5):
        (config.parent / f"photos/cat/{number:03d}.png").write_text("no image")
    made = headrace.Maker(config, "train").rows(0, 0, 60)
    assert made.replaced.sum() == 5
    with headrace.serve(config) as server, headrace.Loader(server.address, stream="train") as loader:
        batches = list(loader)
    assert np.concatenate([batch[0] for batch in batches]).tobytes() == made[0].tobytes()
    assert np.concatenate([batch.replaced for batch in batches]).tolist() == made.replaced.tolist()
    with pytest.raises(E.Error, match="cat/00") as raised:
        headrace.Maker(config, "train", set={"streams.train.on_error": "fail"}).rows(0, 0, 60)
    assert raised.value.code == "BAD_SAMPLE"
    with pytest.raises(E.TooManyBadSamples):
        headrace.Maker(config, "train", set={"streams.train.max_bad": 0.01}).rows(0, 0, 60)


def test_the_import_does_not_load_the_servers_libraries() -> None:
    program = "import headrace, sys; assert 'headrace._maker' not in sys.modules; assert 'headrace_server' not in open('/proc/self/maps').read()"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
