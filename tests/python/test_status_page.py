"""The status page and the JSON behind it: a real server, real trainers, and a real browser."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import re
import shutil
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from bridging import NODE, Making
from children import Child
from conftest import ServerFactory
from PIL import Image
from running import ROOT, Server, free_port, http_get, wait_until
from test_trust import Serve, serve
from users import NOBODY, as_user, common, needs_root

__all__ = ["common", "serve"]


@pytest.fixture
def config(basic_config: dict[str, Any]) -> dict[str, Any]:
    return {**basic_config, "server": {"threads": 1, "metrics": {"port": 0}}}


def status(server: Server) -> dict[str, Any]:
    got: dict[str, Any] = json.loads(http_get(server.metrics_url + "/api/v1/status"))
    return got


def said(server: Server, stream: str = "train") -> str:
    return str(status(server)["streams"][stream]["finding"]["text"])


def get(server: Server, path: str, **query: Any) -> tuple[str, bytes]:
    """(content type, body)"""
    with urllib.request.urlopen(f"{server.metrics_url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10) as reply:
        return reply.headers["Content-Type"], reply.read()


def pixels(image: tuple[str, bytes]) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(image[1])))


def refusal(server: Server, path: str, **query: Any) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as error:
        get(server, path, **query)
    return error.value.code, error.value.read().decode()


SLOW = """
with headrace.Loader(sys.argv[1], stream="train", client="slow") as loader:
    say(attached=True)
    while True:
        for _ in loader:
            time.sleep(0.2)
"""


def test_the_finding_names_the_slow_trainer(start_server: ServerFactory, config: dict[str, Any]) -> None:
    server = start_server(config)
    assert said(server) == "No trainer is attached."
    with Child(SLOW, server.address) as slow:
        slow.receive(30)
        wait_until(lambda: "Data is no bottleneck: the server waited for trainer `slow`" in said(server), "the slow trainer's sentence")
        stream = status(server)["streams"]["train"]
        assert 0.5 <= stream["blocked"] <= 1 and stream["sharing_factor"] > 0
        (client,) = stream["clients"]
        assert client["client"] == "slow" and 0 < client["samples_per_second"] and client["waited"] < 0.1


def test_busy_workers_are_the_bottleneck_of_a_fast_trainer(start_server: ServerFactory, config: dict[str, Any]) -> None:
    config["streams"]["train"]["transforms"] = [{"random_resized_crop": {"size": 512}}, {"gaussian_blur": {"kernel_size": 23, "sigma": 5.0}}]
    server = start_server(config)
    stop = threading.Event()

    def fast() -> None:
        with headrace.Loader(server.address, stream="train", client="fast") as loader:
            while not stop.is_set():
                for _ in loader:
                    if stop.is_set():
                        break

    trainer = threading.Thread(target=fast)
    trainer.start()
    try:
        found = wait_until(lambda: re.match("The bottleneck is (transforming|the CPUs): trainer `fast` waited .*", said(server)), "the workers' sentence")
        assert "device: gpu" in found[0] if found[1] == "transforming" else status(server)["cpu_wait"] > 0.1, "other tests may use the CPUs"
        assert status(server)["workers_busy"] > 0.5
    finally:
        stop.set()
        trainer.join()


def test_figures_are_sent_every_second(start_server: ServerFactory, config: dict[str, Any]) -> None:
    server = start_server(config)
    with urllib.request.urlopen(server.metrics_url + "/api/v1/events", timeout=10) as reply:
        assert reply.headers["Content-Type"] == "text/event-stream"
        first, empty, second = (reply.readline() for _ in range(3))
        assert empty == b"\n"
        one, two = (json.loads(line.removeprefix(b"data: ")) for line in (first, second))
        assert 0.9 < two["uptime_seconds"] - one["uptime_seconds"] < 5
        assert server.stop() == 0, "a reader of live figures does not keep the server"


def test_event_readers_do_not_use_all_threads(start_server: ServerFactory, config: dict[str, Any]) -> None:
    server = start_server(config)
    readers = [urllib.request.urlopen(server.metrics_url + "/api/v1/events", timeout=10) for _ in range(8)]
    code, why = refusal(server, "events")
    assert code == 503 and "close one of them" in why
    assert http_get(server.metrics_url + "/healthz") == "ok\n"
    for reader in readers:
        reader.close()
    wait_until(lambda: get_status_code(server) == 200, "room for another reader")


def get_status_code(server: Server) -> int:
    try:
        with urllib.request.urlopen(server.metrics_url + "/api/v1/events", timeout=10) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


OUTPUTS = {
    "uint8": {},
    "planes": {"layout": "NCHW"},
    "float32": {"dtype": "float32"},
    "normalized": {"dtype": "float32", "layout": "NHWC"},
    "float16": {"dtype": "float16"},
    "bfloat16": {"dtype": "bfloat16"},
}
NORMALIZE = {"normalize": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}}


def test_rows_are_shown_as_trainers_receive_them(start_server: ServerFactory, config: dict[str, Any]) -> None:
    base = config["streams"].pop("train") | {"shuffle": True}
    for name, output in OUTPUTS.items():
        chain = [*base["transforms"], *([NORMALIZE] if name in ("normalized", "float16") else [])]
        config["streams"][name] = {**base, "transforms": chain, **({"output": output} if output else {})}
    server = start_server(config)
    with headrace.Loader(server.address, stream="uint8", output="numpy") as loader:
        image, label = batch = next(iter(loader))
        rows = image if image.shape[-1] == 3 else image.transpose(0, 2, 3, 1)
        samples = json.loads(get(server, "samples", stream="normalized", count=4)[1])
        assert [(sample["epoch"], sample["position"]) for sample in samples["samples"]] == [(0, 0), (0, 1), (0, 2), (0, 3)]
        for position, sample in enumerate(samples["samples"]):
            assert sample["sample_index"] == batch.sample_index[position] and sample["label"] == label[position]
            assert sample["class"] == loader.classes[sample["label"]] and sample["name"].startswith(sample["class"])
            assert [step["op"] for step in sample["parameters"]][:2] == ["random_resized_crop", "random_horizontal_flip"]
            assert sample["images"] == ["image"] and not sample["replaced"]
        for name in OUTPUTS:
            for position in (0, 5):
                shown = get(server, "row", stream=name, epoch=0, position=position, field="image")
                assert shown[0] == "image/png"
                apart = np.abs(pixels(shown).astype(int) - rows[position])
                assert apart.max() <= (2 if name == "bfloat16" else 0), name


def test_the_original_is_the_file(start_server: ServerFactory, config: dict[str, Any], image_folder: Path) -> None:
    server = start_server(config)
    sample = json.loads(get(server, "samples", stream="train", count=1)[1])["samples"][0]
    kind, body = get(server, "original", stream="train", epoch=0, position=0, field="image")
    assert kind == "image/jpeg" and body == (image_folder / sample["name"]).read_bytes()


def test_bare_pixels_are_shown_as_png(start_server: ServerFactory, config: dict[str, Any], tmp_path: Path) -> None:
    images = np.random.default_rng(3).integers(0, 256, (20, 9, 7, 3), np.uint8)
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "labels.npy", np.arange(20))
    config["sources"] = {"images": {"type": "npy", "fields": {"image": str(tmp_path / "images.npy"), "label": str(tmp_path / "labels.npy")}}}
    config["streams"]["train"]["transforms"] = ["random_horizontal_flip"]
    server = start_server(config)
    sample = json.loads(get(server, "samples", stream="train", count=1)[1])["samples"][0]
    original = get(server, "original", stream="train", epoch=0, position=0, field="image")
    assert original[0] == "image/png"
    np.testing.assert_array_equal(pixels(original), images[sample["sample_index"]])


def test_unknown_streams_fields_and_positions_are_refused(start_server: ServerFactory, config: dict[str, Any]) -> None:
    server = start_server(config)
    assert refusal(server, "row", stream="none", field="image")[0] == 404
    assert refusal(server, "row", stream="%74rain", field="image") == (404, "no stream `%74rain`; expected one of: train\n"), "decoded once"
    assert refusal(server, "row", stream="train", field="picture") == (404, "stream `train` has no image field `picture`\n")
    assert refusal(server, "original", stream="train", field="image", position=60)[1] == "position 60 is out of range: an epoch of stream `train` has positions 0 to 59\n"
    assert refusal(server, "row", stream="train", field="image", epoch="-1") == (400, "epoch: expected a whole number from 0 to 1000000000000, found `-1`\n")
    for count in ("many", 0, 33):
        assert refusal(server, "samples", stream="train", count=count) == (400, f"count: expected a whole number from 1 to 32, found `{count}`\n")


@pytest.mark.parametrize(("query", "why"), [
    ("samples", "parameter `stream` is missing"),
    ("samples?stream=", "parameter `stream` is empty"),
    ("samples?stream=train&stream=val", "parameter `stream` is given twice"),
    ("samples?stream=train&number=4", "unknown parameter `number`; expected: stream, count"),
    ("status?stream=train", "unknown parameter `stream`; expected: none"),
    ("row?stream=train", "parameter `field` is missing"),
    ("samples?stream=%FF", "expected UTF-8 text without NUL in the query"),
    ("samples?stream=tr%00ain", "expected UTF-8 text without NUL in the query"),
    ("samples?stream=train&count=%2B1", "count: expected a whole number from 1 to 32, found `+1`"),
    ("samples?stream=train&a%26b=1", "unknown parameter `a&b`; expected: stream, count"),
    ("samples?stream=" + 300 * "x", "expected names and values of at most 256 bytes in the query, found 300"),
])
def test_queries_are_checked(start_server: ServerFactory, config: dict[str, Any], query: str, why: str) -> None:
    server = start_server(config)
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{server.metrics_url}/api/v1/{query}", timeout=10)
    assert (error.value.code, error.value.read().decode()) == (400, why + "\n")


def test_head_is_answered_and_other_methods_are_refused(start_server: ServerFactory, config: dict[str, Any]) -> None:
    server = start_server(config)

    def asked(method: str, path: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(server.metrics_url.removeprefix("http://"), timeout=10)
        connection.request(method, path)
        return connection.getresponse()

    for path in ("/", "/metrics", "/healthz", "/api/v1/status", "/api/v1/events", "/api/v1/samples?stream=train"):
        reply = asked("HEAD", path)
        assert (reply.status, reply.read()) == (200, b""), path
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        reply = asked(method, "/api/v1/status")
        assert (reply.status, reply.headers["Allow"], reply.read()) == (405, "GET, HEAD", f"expected GET or HEAD, found {method}\n".encode()), method
    assert asked("GET", "/api/v2/status").status == 404


@needs_root
def test_images_are_for_users_who_may_attach(serve: Serve, basic_config: dict[str, Any], image_folder: Path) -> None:
    def asked(server: Server) -> tuple[int, str]:
        return as_user(NOBODY, lambda: refusal(server, "samples", stream="train"))

    def started(**keys: Any) -> Server:
        return serve({**basic_config, "server": {"threads": 1, "metrics": {"port": 0, **keys.pop("metrics", {})}, **keys}})

    server = started()
    for path, field in (("samples", {}), ("row", {"field": "image"}), ("original", {"field": "image"})):
        code, why = as_user(NOBODY, lambda path=path, field=field: refusal(server, path, stream="train", **field))
        assert code == 403 and f"images are not shown to user {NOBODY}" in why
    assert json.loads(get(server, "samples", stream="train")[1])["samples"], "the server's user may"
    assert as_user(NOBODY, lambda: said(server)) == "No trainer is attached."

    for keys in ({"allow": {"uids": [NOBODY]}}, {"metrics": {"images": "everybody"}}):
        open_to_others = started(**keys)
        assert as_user(NOBODY, lambda server=open_to_others: get(server, "samples", stream="train"))[0] == "application/json"
    closed = started(metrics={"images": "nobody"})
    assert refusal(closed, "samples", stream="train") == (403, "images are off (server.metrics.images: nobody)\n")


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1:9464", True), ("localhost", True), ("[::1]:80", True), ("attacker.example:9464", False), ("", False)])
def test_images_are_not_shown_to_pages_of_other_hosts(start_server: ServerFactory, config: dict[str, Any], host: str, shown: bool) -> None:
    """A page whose name was made to resolve to 127.0.0.1 has the browser ask with that name (DNS rebinding)."""
    server = start_server(config)
    asked = urllib.request.Request(f"{server.metrics_url}/api/v1/samples?stream=train&count=1", headers={"Host": host})
    if shown:
        with urllib.request.urlopen(asked, timeout=10) as reply:
            assert reply.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    else:
        with pytest.raises(urllib.error.HTTPError, match="40[03]"):
            urllib.request.urlopen(asked, timeout=10)


def test_warnings_are_listed(start_server: ServerFactory, config: dict[str, Any], tmp_path: Path, image_folder: Path) -> None:
    folder = shutil.copytree(image_folder, tmp_path / "copy")
    (folder / "class_1" / "0003.jpg").write_bytes(b"no image")
    config["sources"]["images"]["path"] = str(folder)
    server = start_server(config)
    with headrace.Loader(server.address, stream="train") as loader:
        for _ in loader:
            pass
    got = status(server)
    assert any("class_1/0003.jpg" in line["text"] and line["level"] == "warning" for line in got["log"])
    assert "class_1/0003.jpg" in got["streams"]["train"]["bad_samples"]["first"][0]
    assert not any("disconnected" in line["text"] for line in got["log"]), "the loader was closed"


def test_killed_and_late_trainers_are_warnings(start_server: ServerFactory, config: dict[str, Any]) -> None:
    config["streams"]["train"]["sharing"] = {"max_lag": 1}
    server = start_server(config)

    def logged(text: str) -> bool:
        return any(text in line["text"] and line["level"] == "warning" for line in status(server)["log"])
    with Child(SLOW, server.address) as slow:
        slow.receive(30)
        with headrace.Loader(server.address, stream="train", client="late") as late:
            wait_until(lambda: status(server)["streams"]["train"]["clients"][0]["next"]["batch"] >= 5, "the first trainer to be ahead")
            with pytest.warns(RuntimeWarning, match="client 'late' begins"):
                next(iter(late))
        slow.kill()
        wait_until(lambda: logged("client `slow` (pid "), "the killed trainer")
    assert logged("it did not close the stream: its process was probably killed")


# --- in a browser


@contextmanager
def browser(width: int, height: int, dark: bool = False) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    shade = ["--blink-settings=preferredColorScheme=0"] if dark else []
    for argument in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},{height}", *shade]:
        options.add_argument(argument)
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def text_of(driver: Any) -> str:
    return str(driver.execute_script("return document.body.innerText"))


@pytest.mark.parametrize("shape", ["desktop", "phone"])
def test_the_page_in_a_browser(start_server: ServerFactory, config: dict[str, Any], shape: str) -> None:
    server = start_server(config)
    size = (1100, 1600) if shape == "desktop" else (420, 900)
    with Child(SLOW, server.address) as slow, browser(*size, dark=shape == "phone") as driver:
        slow.receive(30)
        driver.get(server.metrics_url + "/#images")
        wait_until(lambda: "Data is no bottleneck: the server waited for trainer slow" in text_of(driver), "the sentence on the page")
        loaded = "return [...document.images].filter(i => i.complete && i.naturalWidth > 0).length"
        wait_until(lambda: (driver.execute_script("document.images[document.images.length - 1]?.scrollIntoView()"), driver.execute_script(loaded))[1] == 16,
                   "originals and rows of eight samples")
        text = text_of(driver)
        for expected in ("sharing factor", "samples per second", "random_resized_crop: ", "class_", "None."):
            assert expected in text, text
        assert driver.execute_script("return document.documentElement.scrollWidth <= window.innerWidth"), "nothing is cut off"
        ground = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground.removeprefix("rgb(").rstrip(")").split(","))) < 200) == (shape == "phone"), "dark only if the system is"
        picture = np.asarray(Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("L"))
        assert picture.std() > 5, "something is drawn"
        problems = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
        assert problems == []
        assert server.stop() == 0
        wait_until(lambda: "The server does not respond" in text_of(driver), "the page to say that the server has ended")


def test_the_page_lists_other_nodes(start_server: ServerFactory, config: dict[str, Any]) -> None:
    server = start_server(config)
    with browser(1100, 900) as driver, Making(server.address, server.config):
        with headrace.Loader(server.address, stream="train") as loader:
            while not any(node["samples"] for node in status(server)["bridge"]["nodes"]):
                for _ in loader:
                    pass
        driver.get(server.metrics_url)
        wait_until(lambda: "Other nodes" in text_of(driver) and NODE in text_of(driver), "the node")
        assert "bridge connected; orders: " in text_of(driver)


def test_a_page_without_events_asks_again_after_an_outage(start_server: ServerFactory, config: dict[str, Any]) -> None:
    config["server"]["metrics"]["port"] = free_port()
    server = start_server(config)
    with contextlib.ExitStack() as readers, browser(1100, 900) as driver:
        for _ in range(8):
            readers.enter_context(urllib.request.urlopen(server.metrics_url + "/api/v1/events", timeout=10))
        driver.get(server.metrics_url)
        hidden = "return document.getElementById('lost').hidden"
        wait_until(lambda: "No trainer is attached." in text_of(driver) and driver.execute_script(hidden), "the page")
        assert server.stop() == 0
        wait_until(lambda: not driver.execute_script(hidden), "the page to say that the server has ended")
        start_server(config)
        wait_until(lambda: driver.execute_script(hidden), "the new server's figures")


def test_client_names_are_not_parsed_as_html(start_server: ServerFactory, config: dict[str, Any]) -> None:
    server = start_server(config)
    name = "<img src=x onerror=document.title='run'>"
    with headrace.Loader(server.address, stream="train", client=name) as loader, browser(1100, 900) as driver:
        next(iter(loader))
        driver.get(server.metrics_url)
        wait_until(lambda: name in text_of(driver), "the client's name")
        assert driver.title == "Headrace"
        assert driver.execute_script("return document.images.length") == 0


def test_the_page_needs_no_other_host() -> None:
    page = (ROOT / "server/status/page.html").read_text()
    assert "http://www.w3.org/2000/svg" in page  # a name, not an address that is fetched
    assert [part for part in page.split('"') if part.startswith(("http:", "https:", "//"))] == ["http://www.w3.org/2000/svg"]
