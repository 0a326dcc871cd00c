"""Sources behind http://, https:// and s3://: the same batches as from files, through cut connections and busy servers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
import yaml
from botocore.credentials import Credentials
from far_server import FarServer, make_certificate
from headrace.errors import Error
from images import write_images
from running import Server, headrace_binary, wait_until
from test_webdataset import stream_of, write_shards

CROP = {"seed": 7, "transforms": [{"random_resized_crop": {"size": 32}}, "random_horizontal_flip"]}
AWS = {"AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "very/secret+key", "AWS_SESSION_TOKEN": "a/token=="}
NO_AWS = dict.fromkeys([*AWS, "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION"], "")


def config(source: dict[str, Any], **stream: Any) -> dict[str, Any]:
    return {
        "server": {"threads": 2},
        "sources": {"set": source},
        "streams": {"train": {"source": "set", "batch_size": 16, **stream}},
    }


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Callable[..., FarServer]]:
    """far(folder, …): a running FarServer."""
    with ExitStack() as stack:
        yield lambda folder, **how: stack.enter_context(FarServer(folder, **how))


@pytest.fixture
def serve(start_server: Any, tmp_path: Path) -> Callable[..., Server]:
    """A server with the test's own caches, and without other S3 settings in its environment than the test's."""
    environment = {**NO_AWS, "XDG_CACHE_HOME": str(tmp_path / "cache"), "no_proxy": "*"}
    return lambda source, env=None, **stream: start_server(config(source, **stream), env={**environment, **(env or {})})


def check(tmp_path: Path, source: dict[str, Any], env: dict[str, str] | None = None) -> str:
    """The errors that `headrace check` reports."""
    file = tmp_path / "checked.yaml"
    file.write_text(yaml.safe_dump(config(source, **CROP)))
    environment = {**NO_AWS, "PATH": "/usr/bin", "XDG_CACHE_HOME": str(tmp_path / "cache"), "no_proxy": "*", **(env or {})}
    command = [headrace_binary(), "check", str(file)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert run.returncode in (2, 3), run.stdout + run.stderr
    return run.stdout + run.stderr


def metric(server: Server, name: str) -> float:
    found = re.search(rf'^headrace_network_{name}_total{{source="set"}} (\S+)$', server.metrics(), re.MULTILINE)
    assert found
    return float(found[1])


def test_shards_over_http_give_the_batches_of_the_files(
    serve: Any, far: Any, image_folder: Path, tmp_path: Path
) -> None:
    pattern = write_shards(image_folder, tmp_path / "my shards", "train", tarfile.GNU_FORMAT, "cls", count=3)
    expected = stream_of(serve({"type": "webdataset", "path": pattern, "index_cache": "off"}, **CROP).address)
    web = far(tmp_path, cut_every=5, busy_every=7)
    source = {"type": "webdataset", "path": f"{web.url}/my%20shards/train-{{0000..0002}}.tar"}
    server = serve(source, **CROP)
    assert stream_of(server.address) == expected
    assert metric(server, "retries") > 5
    assert metric(server, "requests") == len(web.requests)
    assert metric(server, "bytes") > 60 * 500
    assert 'headrace_io_threads{source="set"}' in server.metrics(), "reading ahead is on without a setting"
    assert len(list((tmp_path / "cache" / "headrace").glob("*.index"))) == 1
    assert not list((tmp_path / "my shards").glob(".headrace*"))
    server.stop()
    # With the cached index the server makes one request per shard.
    web.cut_every = web.busy_every = 0
    web.requests.clear()
    again = serve(source, **CROP)
    assert len(web.requests) == 3
    assert stream_of(again.address) == expected
    assert web.connections < 200, "connections are reused"


def test_sources_over_remote_shards_are_read_ahead_like_the_shards(
    start_server: Any, far: Any, image_folder: Path, tmp_path: Path
) -> None:
    write_shards(image_folder, tmp_path / "shards", "train", tarfile.GNU_FORMAT, "cls", count=1)
    shown = config({"type": "webdataset", "path": f"{far(tmp_path).url}/shards/train-0000.tar", "io": {"threads": 7}}, **CROP)
    pattern = write_shards(image_folder, tmp_path / "near", "train", tarfile.GNU_FORMAT, "cls", count=1)
    shown["sources"] |= {
        "near": {"type": "webdataset", "path": pattern, "index_cache": "off", "io": {"threads": 2}},
        "more": {"type": "concat", "of": ["near", "set"]},
        "twice": {"type": "repeat", "of": "more", "times": 2},
    }
    shown["streams"]["train"]["source"] = "twice"
    environment = {**NO_AWS, "XDG_CACHE_HOME": str(tmp_path / "cache"), "no_proxy": "*"}

    def pools() -> list[tuple[str, str]]:
        """(source, threads) of each read-ahead pool, after an epoch."""
        server = start_server(shown, env=environment)
        assert len(stream_of(server.address)) >= 4 * 48
        assert 'headrace_read_ahead_samples_total{stream="train",outcome="hit"}' in server.metrics()
        return re.findall(r'^headrace_io_threads{source="(\w+)"} (\d+)$', server.metrics(), re.MULTILINE)

    assert pools() == [("set", "7")], "the one of more threads, not the first"
    shown["sources"]["twice"]["io"] = {"threads": 3}
    assert pools() == [("twice", "3")], "its own `io` comes before its members'"


def test_https_is_trusted_by_its_authority_alone(serve: Any, far: Any, image_folder: Path, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path / "tls")
    pattern = write_shards(image_folder, tmp_path / "shards", "train", tarfile.PAX_FORMAT, "json", count=1)
    web = far(tmp_path / "shards", certificate=certificate)
    source = {"type": "webdataset", "path": f"{web.url}/train-0000.tar", "label": "json.label"}
    assert "for a certificate error name its authority in `tls_ca`" in check(tmp_path, source)
    trusted = {**source, "tls_ca": str(tmp_path / "tls" / "only.pem")}
    local = {**source, "path": pattern, "index_cache": "off"}
    assert stream_of(serve(trusted, **CROP).address) == stream_of(serve(local, **CROP).address)
    assert "No such file or directory; name a file of certificates" in check(tmp_path, {**source, "tls_ca": "none.pem"})


def odd_images(folder: Path) -> Path:
    """Images with names that URLs, queries and XML treat in their own ways."""
    write_images(folder, classes=2, per_class=6, seed=3)
    names = ["a b+c&d=e.jpg", "100%?x#y.jpg", "grün 図<1>'\".jpg", "nested/deep/~x!*().JPG", "..double..jpg", "nested-2/z.jpg"]
    for index, name in enumerate(names):
        target = folder / "class_0" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (folder / "class_0" / f"{index:04d}.jpg").rename(target)
    (folder / "class_0").rename(folder / "class & 0")
    return folder


@pytest.mark.parametrize("token", ["", "a/token=="])
def test_an_image_folder_in_a_bucket_is_the_folder(serve: Any, far: Any, tmp_path: Path, token: str) -> None:
    folder = odd_images(tmp_path / "buckets" / "my-bucket" / "sets" / "photos")
    web = far(
        tmp_path / "buckets",
        cut_every=6,
        busy_every=5,
        credentials=Credentials("AKIDTEST", "very/secret+key", token or None),
        region="eu-test-1",
    )
    env = {**AWS, "AWS_SESSION_TOKEN": token, "AWS_REGION": "eu-test-1"}
    source = {"type": "image_folder", "path": "s3://my-bucket/sets/photos", "s3": {"endpoint": web.url}}
    local = serve({"type": "image_folder", "path": str(folder)}, **CROP)
    remote = serve(source, env=env, **CROP)
    assert stream_of(remote.address) == stream_of(local.address)
    assert web.refused == []
    # A checkpoint over the folder resumes over the bucket.
    with headrace.Loader(local.address, stream="train") as loader:
        next(iter(loader))
        state = loader.state_dict()
        rest = [batch.sample_index.tolist() for batch in loader]
    with headrace.Loader(remote.address, stream="train", state=state) as loader:
        assert [batch.sample_index.tolist() for batch in loader] == rest
    # Wrong keys give a named error that contains no secret.
    wrong = check(tmp_path, source, {**env, "AWS_SECRET_ACCESS_KEY": "another/secret"})
    assert "the server answers 403 SignatureDoesNotMatch; see that the keys in the environment are right" in wrong
    unsigned = check(tmp_path, {**source, "s3": {"endpoint": web.url, "anonymous": True}}, env)
    assert "requests are not signed: set AWS_ACCESS_KEY_ID" in unsigned
    for text in (wrong, unsigned, remote.output()):
        assert not any(secret in text for secret in ("very/secret", "another/secret", "a/token", "AKIDTEST"))


def test_listings_of_many_pages_are_read_to_their_end(serve: Any, far: Any, tmp_path: Path) -> None:
    folder = write_images(tmp_path / "b" / "bucket" / "set", classes=2, per_class=2)
    one = next(folder.glob("class_0/*.jpg")).read_bytes()
    for index in range(2300):
        (folder / "class_1" / f"x{index:05d}.jpg").write_bytes(one + index.to_bytes(2, "big"))
    web = far(tmp_path / "b", credentials=Credentials("AKIDTEST", "very/secret+key", "a/token=="))
    source = {"type": "image_folder", "path": "s3://bucket/set/", "s3": {"endpoint": web.url, "region": "us-east-1"}}
    show = {"transforms": [{"resize": {"size": [8, 8]}}], "batch_size": 256, "shuffle": False}
    assert stream_of(serve(source, env=AWS, **show).address) == stream_of(
        serve({"type": "image_folder", "path": str(folder)}, **show).address
    )
    assert web.refused == []
    assert sum("continuation-token" in request for request in web.requests) == 2


def test_shards_in_a_bucket_are_listed(serve: Any, far: Any, image_folder: Path, tmp_path: Path) -> None:
    pattern = write_shards(image_folder, tmp_path / "b" / "bucket", "train", tarfile.GNU_FORMAT, "cls")
    (tmp_path / "b" / "bucket" / "notes.txt").write_text("no shard")
    web = far(tmp_path / "b", credentials=Credentials("AKIDTEST", "very/secret+key", "a/token=="))
    env = {**AWS, "AWS_ENDPOINT_URL": web.url}
    expected = stream_of(serve({"type": "webdataset", "path": pattern, "index_cache": "off"}, **CROP).address)
    for path in ("s3://bucket", "s3://bucket/train-{0000..0001}.tar"):
        assert stream_of(serve({"type": "webdataset", "path": path}, env=env, **CROP).address) == expected
    assert web.refused == []
    assert "s3://bucket/none/: holds no .tar object" in check(tmp_path, {"type": "webdataset", "path": "s3://bucket/none"}, env)


def test_a_manifest_may_be_elsewhere_than_its_images(serve: Any, far: Any, image_folder: Path, tmp_path: Path) -> None:
    names = [str(image.relative_to(image_folder)) for image in sorted(image_folder.glob("*/*.jpg"))]
    rows = "".join(f"{name},{name.split('/')[0]}\n" for name in names)
    (tmp_path / "train.csv").write_text("path,label\n" + rows)
    shutil.copytree(image_folder, tmp_path / "web" / "images")
    web = far(tmp_path / "web", cut_every=9, busy_every=4)
    (tmp_path / "web" / "train.csv").write_text("path,label\n" + rows.replace("class_0/0000.jpg", f"{web.url}/images/class_0/0000.jpg"))
    expected = stream_of(serve({"type": "manifest", "path": str(tmp_path / "train.csv"), "root": str(image_folder)}, **CROP).address)
    for path in (str(tmp_path / "train.csv"), f"{web.url}/train.csv?signature=hidden"):
        source = {"type": "manifest", "path": path, "root": f"{web.url}/images"}
        assert stream_of(serve(source, **CROP).address) == expected


def test_arrays_are_fetched_whole(serve: Any, far: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    images = random.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    labels = np.arange(40) % 3
    (tmp_path / "web").mkdir()
    np.savez_compressed(tmp_path / "web" / "set.npz", image=images, label=labels)
    np.save(tmp_path / "web" / "image.npy", images)
    web = far(tmp_path / "web", cut_every=2)
    for far_source, near_source in [
        ({"path": f"{web.url}/set.npz"}, {"path": str(tmp_path / "web" / "set.npz")}),
        ({"fields": {"image": f"{web.url}/image.npy"}}, {"fields": {"image": str(tmp_path / "web" / "image.npy")}}),
    ]:
        servers = [serve({"type": "npy", **source}) for source in (far_source, near_source)]
        with ExitStack() as stack:
            loaders = [stack.enter_context(headrace.Loader(server.address, stream="train")) for server in servers]
            for batch, other in zip(*loaders, strict=True):
                for one, two in zip(batch, other, strict=True):
                    np.testing.assert_array_equal(one, two)
    assert "image.npy" in "".join(web.requests)


def test_a_file_that_changes_while_it_is_served_stops_the_stream_and_is_named(
    serve: Any, far: Any, image_folder: Path, tmp_path: Path
) -> None:
    write_shards(image_folder, tmp_path / "web", "train", tarfile.GNU_FORMAT, "cls", count=1)
    web = far(tmp_path / "web")
    server = serve({"type": "webdataset", "path": f"{web.url}/train-0000.tar"}, **CROP)
    shard = tmp_path / "web" / "train-0000.tar"
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    with (
        headrace.Loader(server.address, stream="train") as loader,
        pytest.raises(Error, match=r"train-0000.tar: it was changed since the dataset was opened"),
    ):
        list(loader)


def test_a_server_ends_while_the_network_stands_still(serve: Any, far: Any, image_folder: Path, tmp_path: Path) -> None:
    write_shards(image_folder, tmp_path / "web", "train", tarfile.GNU_FORMAT, "cls", count=1)
    web = far(tmp_path / "web")
    server = serve({"type": "webdataset", "path": f"{web.url}/train-0000.tar"}, **CROP)
    web.stall.set()
    before = len(web.requests)
    with headrace.Loader(server.address, stream="train"):
        wait_until(lambda: len(web.requests) > before, "a read that hangs")
    assert server.stop(seconds=10) == 0
    assert "stopped without" not in server.output(), "its reads are cancelled"


def test_a_server_ends_also_while_it_opens_what_does_not_answer(
    far: Any, image_folder: Path, tmp_path: Path
) -> None:
    write_shards(image_folder, tmp_path / "web", "train", tarfile.GNU_FORMAT, "cls", count=1)
    web = far(tmp_path / "web")
    web.stall.set()
    source = {"type": "webdataset", "path": f"{web.url}/train-0000.tar"}
    (tmp_path / "server").mkdir()
    server = Server(config(source, **CROP), tmp_path / "server", env={"no_proxy": "*"})
    wait_until(lambda: web.requests, "the server's first request")
    assert server.stop(seconds=10) == 3
    assert "train-0000.tar: not read, because the server is stopping" in server.output()


def test_check_proposes_a_configuration_for_urls(far: Any, image_folder: Path, tmp_path: Path) -> None:
    write_shards(image_folder, tmp_path / "web" / "shards", "val", tarfile.GNU_FORMAT, "json")
    shutil.copytree(image_folder, tmp_path / "web" / "photos")
    (tmp_path / "web" / "list.csv").write_text("path,label\nphotos/class_0/0000.jpg,3\n")
    web = far(tmp_path / "web")
    environment = {**os.environ, **NO_AWS, "AWS_ENDPOINT_URL": web.url, "XDG_CACHE_HOME": str(tmp_path / "cache"), "no_proxy": "*"}
    for url, found in [
        (f"{web.url}/shards/val-{{0000..0001}}.tar", "{type: webdataset, path: \"URL\", label: json.label}"),
        ("s3://shards", "{type: webdataset, path: \"URL\", label: json.label}"),
        ("s3://photos/", "{type: image_folder, path: \"URL\"}"),
        (f"{web.url}/list.csv?sig=hidden", "{type: manifest, path: \"URL\"}"),
    ]:
        command = [headrace_binary(), "check", url]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
        if url == "s3://photos/":  # a bucket with class folders at its root
            assert run.returncode == 0, run.stderr
        assert found.replace("URL", url) in run.stdout, run.stderr
        assert "hidden" not in run.stderr
    run = subprocess.run([headrace_binary(), "check", web.url], capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 3
    assert "HTTP has no listings of folders; name a .tar" in run.stderr


def test_check_says_what_cannot_be_read_over_the_network(tmp_path: Path) -> None:
    def refused(**source: Any) -> str:
        return check(tmp_path, source)

    secret = "https://me:hushhush@example.org/set?sig=hidden"
    for text in (
        refused(type="lmdb", path=secret),
        refused(type="image_folder", path=secret),
        refused(type="paired_folders", fields={"hr": secret, "lr": "lr"}),
    ):
        assert "hush" not in text and "hidden" not in text
    assert "sources.set.path: a database is mapped" in refused(type="lmdb", path=secret)
    assert "HTTP has no listings of folders" in refused(type="image_folder", path=secret)
    assert "list them in a manifest" in refused(type="paired_folders", fields={"hr": secret, "lr": "lr"})
    assert "expected an http://, https:// or s3:// URL, found gs://..." in refused(type="webdataset", path="gs://bucket/a.tar")
    assert "names no bucket" in refused(type="webdataset", path="s3:///a.tar")
    assert "no path of this source is an s3:// URL" in refused(type="webdataset", path="http://h/a.tar", s3={"region": "x"})
    assert "no path of this source is a URL" in refused(type="webdataset", path="a.tar", tls_ca="ca.pem")
    bad = refused(type="webdataset", path="s3://b/a.tar", s3={"endpoint": "https://me:hushhush@host"})
    assert "sources.set.s3.endpoint: has more than a scheme" in bad and "hush" not in bad
    half = check(tmp_path, {"type": "webdataset", "path": "s3://b/a.tar"}, {"AWS_ACCESS_KEY_ID": "AKIDTEST"})
    assert "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not" in half
