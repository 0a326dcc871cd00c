"""The reference of the C++ library, from what doxygen reads in the public headers."""

from __future__ import annotations

import functools
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

Element = ElementTree.Element

HEADERS = "clientlib/include/headrace"
INTRO = """# C++

This page lists what the public headers of the C++ library declare, for programmers who write a trainer. [The guide](../README.md)
explains how the parts work together, and each header begins with a summary. The site generates this page from the headers.

```cpp
#include <headrace/client.h>

auto client = headrace::or_throw(headrace::Client::connect());
auto stream = headrace::or_throw(client.open({.stream = "train"}));
```

"""
OPTIONS = """
INPUT = {headers}
OUTPUT_DIRECTORY = {out}
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
EXTRACT_ALL = YES
MARKDOWN_SUPPORT = NO
QUIET = YES
WARNINGS = NO
"""


@functools.cache
def compounds(root: Path) -> list[Element]:
    """What doxygen says about each class, struct and namespace of the headers."""
    with tempfile.TemporaryDirectory() as out:
        options = OPTIONS.format(headers=root / HEADERS, out=out)
        subprocess.run(["doxygen", "-"], input=options, text=True, check=True, capture_output=True)
        files = sorted(Path(out, "xml").glob("*.xml"))
        parsed = [ElementTree.parse(file).getroot() for file in files if file.name.startswith(("class", "struct", "namespace"))]
    return [compound for tree in parsed for compound in tree.iter("compounddef")]


def words(element: Element | None) -> str:
    return " ".join("".join(element.itertext()).split()) if element is not None else ""


def meaning(member: Element) -> str:
    text = " ".join(filter(None, (words(member.find("briefdescription")), words(member.find("detaileddescription")))))
    return text.replace("|", "\\|").replace("<", "&lt;")


def declaration(member: Element) -> str:
    """As a header writes it, without attributes."""
    name = words(member.find("name"))
    kind = words(member.find("type")).replace("< ", "<").replace(" >", ">").replace(" &", "&").replace(" *", "*")
    before = "static " if member.get("static") == "yes" else ""
    if member.get("kind") == "function":
        return f"{before}{kind} {name}{words(member.find('argsstring')).replace('< ', '<').replace(' >', '>')}".strip()
    if member.get("kind") == "typedef":
        return f"using {name} = {kind}"
    return f"{before}{kind} {name} {words(member.find('initializer'))}".strip()


def rows(members: list[Element], title: str) -> list[str]:
    lines = [f"| {title} | |", "|---|---|"]
    return lines + ["| `{}` | {} |".format(declaration(member).replace("|", "\\|"), meaning(member)) for member in members]


def enum_rows(enum: Element) -> list[str]:
    lines = ["| value | |", "|---|---|"]
    return lines + [f"| `{words(value.find('name'))}` | {meaning(value)} |" for value in enum.iter("enumvalue")]


def enumerators(root: Path, enum: str) -> list[tuple[str, str]]:
    """(name, meaning) of an enumeration's values."""
    (found,) = (
        member for compound in compounds(root) for member in compound.iter("memberdef") if member.get("kind") == "enum" and words(member.find("name")) == enum
    )
    return [(words(value.find("name")), meaning(value)) for value in found.iter("enumvalue")]


def header_of(element: Element) -> str:
    location = element.find("location")
    return Path(location.get("file", "")).name if location is not None else ""


def line_of(element: Element) -> int:
    location = element.find("location")
    return int(location.get("line", "0")) if location is not None else 0


def members_of(compound: Element) -> list[Element]:
    """What users see, in the order of the header: no destructors, moves and members of the implementation."""
    public = [member for member in compound.iter("memberdef") if member.get("prot") == "public"]
    hidden = ("~", "operator=")
    short = words(compound.find("compoundname")).rpartition("::")[2]
    shown = [
        member
        for member in public
        if not words(member.find("name")).startswith(hidden) and f"{short} &&" not in words(member.find("argsstring"))
    ]
    return sorted(shown, key=line_of)


def section(element: Element, name: str) -> list[str]:
    if element.get("kind") == "enum":
        table = enum_rows(element)
    elif element.tag == "compounddef":
        table = rows(members_of(element), "member")
    else:
        return [f"### `{name}`", "", f"```cpp\n{declaration(element)}\n```", "", meaning(element), ""]
    return [f"### `{name}`", "", meaning(element), "", *table, ""]


def page(root: Path) -> str:
    entries: dict[str, list[tuple[int, Element, str]]] = {}
    for compound in compounds(root):
        name = words(compound.find("compoundname"))
        if not name.startswith("headrace") or name.endswith("::pixels"):
            continue
        if compound.get("kind") != "namespace":
            entries.setdefault(header_of(compound), []).append((line_of(compound), compound, name))
            continue
        for member in compound.iter("memberdef"):
            full = f"{name}::{words(member.find('name'))}"
            entries.setdefault(header_of(member), []).append((line_of(member), member, full))
    lines = [INTRO]
    order = ("client.h", "error.h", "cursor.h", "field.h", "stream_info.h", "device_loader.h", "gpu.h")
    for header in [*order, *sorted(set(entries) - set(order))]:
        lines += [f"## `headrace/{header}`", "", f"[The header](headrace/{header})", ""]
        for _, element, name in sorted(entries[header], key=lambda entry: (entry[0], entry[2])):
            lines += section(element, name)
    return "\n".join(lines)
