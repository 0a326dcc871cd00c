"""A hook of mkdocs (mkdocs.yml): adds the pages of the site, which are the repository's Markdown files, under their own paths.

Files that a page links to become pages with highlighted text, or are copied if they are images. References that are generated from
code (references.py) exist in the site only.
"""

from __future__ import annotations

import posixpath
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("bindings", "clientlib", "configs", "docker", "server", "tests")
IMAGES = {".svg", ".jpg", ".png"}
LANGUAGES = {".h": "cpp", ".cpp": "cpp", ".cu": "cpp", ".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}

sys.path.insert(0, str(ROOT / "tests/docs"))
import references  # noqa: E402


def markdown_files() -> list[str]:
    """Paths relative to the repository."""
    below = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.md")]
    return [str(file.relative_to(ROOT)) for file in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(below)]]


def targets(page: str, text: str) -> set[str]:
    """The files of the repository that a page's links and images name."""
    found = set()
    for token in (child for block in MarkdownIt().enable("table").parse(text) for child in block.children or ()):
        link = str(token.attrs.get("href") or token.attrs.get("src") or "")
        address = urlsplit(link)
        if address.path and not address.scheme and not address.netloc:
            found.add(posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(address.path))))
    return found


class SourceFile(File):
    """A source file as a page of its own."""

    def is_documentation_page(self) -> bool:
        return True


def source_page(config: Any, path: str) -> File:
    text = (ROOT / path).read_text()
    fence = "`" * 4
    while fence in text:
        fence += "`"
    name = posixpath.basename(path)
    front = "---\nsearch: {exclude: true}\nhide: [toc]\n---\n"
    page = SourceFile.generated(
        config, path, content=f"{front}# {name}\n\n`{path}`\n\n{fence}{LANGUAGES.get(Path(path).suffix, 'text')}\n{text}\n{fence}\n"
    )
    page.name, page.dest_uri = name, f"{path}.html"
    return page


def on_files(files: Files, config: Any) -> Files:
    pages = {path: (ROOT / path).read_text() for path in markdown_files()} | references.pages(ROOT)
    for path, text in pages.items():
        if (ROOT / path).exists():
            files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
        else:
            files.append(File.generated(config, path, content=text))
    linked = {target for path, text in pages.items() for target in targets(path, text)} - set(pages)
    for path in sorted(path for path in linked if (ROOT / path).is_file()):
        if Path(path).suffix in IMAGES:
            files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
        else:
            files.append(source_page(config, path))
    return files
