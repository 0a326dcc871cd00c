"""The site builds without a warning, has each page, links to nothing that is missing, and loads nothing from another host.

mkdocs --strict checks links between Markdown files; these tests check the HTML that comes out, with the generated pages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]


class Page(HTMLParser):
    """The links, the ids, and what a browser loads by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.update(value for name, value in given.items() if name in ("id", "name"))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("script", "img", "link", "iframe") and given.get("rel") != "canonical":
            self.loads += [given[name] for name in ("src", "href") if name in given]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    built = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", out], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return out


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file.read_text()) for file in site.rglob("*.html")}


def in_navigation(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for below in entry.values():
            yield from in_navigation(below)
    elif isinstance(entry, list):
        for below in entry:
            yield from in_navigation(below)


def navigation() -> list[str]:
    loader = type("Loader", (yaml.SafeLoader,), {})
    loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    return list(in_navigation(yaml.load((ROOT / "mkdocs.yml").read_text(), loader)["nav"]))


def test_the_navigation_has_every_page_of_the_repository() -> None:
    listed = navigation()
    assert len(listed) == len(set(listed))
    tracked = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    assert sorted(set(tracked.stdout.split()) - set(listed)) == [], "add them to nav in mkdocs.yml"


def test_lists_in_lists_are_indented_by_four_spaces() -> None:
    """As Python-Markdown needs it; with less, GitHub shows two lists and the site one."""
    shallow = []
    for page in navigation():
        lines = (ROOT / page).read_text().split("\n") if (ROOT / page).exists() else []
        for token in MarkdownIt().parse("\n".join(lines)):
            if token.type in ("bullet_list_open", "ordered_list_open") and token.level and token.map and not lines[token.map[0]].startswith("    "):
                shallow.append(f"{page}:{token.map[0] + 1}")
    assert shallow == []


def test_links_lead_to_pages_and_anchors_that_exist(pages: dict[Path, Page]) -> None:
    missing = []
    for file, page in pages.items():
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or address.netloc or file.name == "404.html":
                continue
            target = (file.parent / unquote(address.path)).resolve() if address.path else file
            if target.is_dir():
                target /= "index.html"
            anchor = unquote(address.fragment)
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].ids):
                missing.append(f"{file.name}: {link}")
    assert missing == []


def test_nothing_comes_from_another_host(site: Path, pages: dict[Path, Page]) -> None:
    loaded = {load for page in pages.values() for load in page.loads} | {
        found for sheet in site.rglob("*.css") for found in re.findall(r"url\(([^)]*)\)", sheet.read_text())
    }
    assert sorted(load for load in loaded if re.match(r"[\"']?(https?:)?//", load)) == []


def test_the_references_name_everything(site: Path) -> None:
    verbs = re.findall(r"^  ([\w-]+)  ", subprocess.run(["headrace", "--help"], capture_output=True, text=True).stdout.partition("Subcommands:")[2], re.MULTILINE)
    commands = (site / "server/verbs/commands.html").read_text()
    assert len(verbs) > 10 and [verb for verb in verbs if f'id="headrace-{verb}"' not in commands] == []
    python = (site / "bindings/headrace/reference.html").read_text()
    exported = re.findall(r'^    "(\w+)",$', (ROOT / "bindings/headrace/__init__.py").read_text(), re.MULTILINE)
    named = [name for name in exported if not name.startswith("__") and name != "errors"]
    assert len(named) > 15 and [name for name in named if f'id="{name.lower()}"' not in python] == []
    cpp = (site / "clientlib/include/reference.html").read_text()
    for header in (ROOT / "clientlib/include/headrace").glob("*.h"):
        declared = re.findall(r"^(?:class|struct) (\w+) (?:\{|: )", header.read_text(), re.MULTILINE)
        assert [name for name in declared if f"::{name}</code>" not in cpp] == [], header


def test_drawings_are_current() -> None:
    done = subprocess.run([sys.executable, ROOT / "tests/docs/drawings.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_front_page_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
