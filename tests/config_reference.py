#!/usr/bin/env python3
"""Generates configs/reference.md from configs/headrace.schema.json: a table for each map of a configuration.

  config_reference.py           writes it
  config_reference.py --check   fails if what is there is not what would be written
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
SCHEMA: dict[str, Any] = json.loads((CONFIGS / "headrace.schema.json").read_text())
INTRO = """# Reference of configurations

This page lists every key of a configuration, with its type, range and default. The [guide](README.md) explains how to use the keys.
`tests/config_reference.py` generates this page from `headrace.schema.json`. **Bold** keys are required. A default of - means none,
unless the text states one.
"""


SECTIONS = {"sampler": "a [sampler](#samplers)", "transforms": "list of [transforms](#transforms)"}


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    """The node that a reference names. Members beside the reference override the node's."""
    while "$ref" in node:
        node = SCHEMA["definitions"][node["$ref"].rpartition("/")[2]] | {key: value for key, value in node.items() if key != "$ref"}
    return node


def bounds(node: dict[str, Any]) -> str:
    low, above, high = node.get("minimum"), node.get("exclusiveMinimum"), node.get("maximum")
    parts = [f"from {low}" if low is not None else "", f"above {above}" if above is not None else "", f"to {high}" if high is not None else ""]
    return " ".join(part for part in parts if part)


def type_of(node: dict[str, Any]) -> str:
    node = resolved(node)
    if expected := node.get("x-expected"):
        return str(expected)
    if words := node.get("enum"):
        return ", ".join(f"`{word}`" for word in words)
    if forms := node.get("anyOf"):
        return "; or ".join(dict.fromkeys(type_of(form) for form in forms))
    kinds = node.get("type", "any")
    kind = next(each for each in ([kinds] if isinstance(kinds, str) else kinds) if each != "null")
    if kind == "array":
        return f"list; each item: {type_of(node['items'])}"
    if kind == "object":
        others = node.get("additionalProperties")
        return f"map: name -> {type_of(others)}" if isinstance(others, dict) else "map, below"
    names = {"integer": "whole number", "number": "number", "boolean": "`true`, `false`", "string": "text"}
    return f"{names[kind]} {bounds(node)}".strip()


def maps_in(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The maps with their own keys that a value of `node` may be or contain."""
    node = resolved(node)
    if "properties" in node:
        return [node]
    below = [*node.get("anyOf", [])] + [node[key] for key in ("items", "additionalProperties") if isinstance(node.get(key), dict)]
    return [found for each in below for found in maps_in(each)]


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def table(title: str, node: dict[str, Any], depth: int, without: tuple[str, ...] = ()) -> list[str]:
    """A heading, the table of the map's keys, and the tables of the maps in it, except for maps in SECTIONS."""
    lines = ["", "#" * depth + " " + title, ""]
    if text := node.get("description"):
        lines += [str(text), ""]
    keys = {key: resolved(value) for key, value in node["properties"].items() if key not in without}
    if keys:
        lines += ["| key | value | default | |", "|---|---|---|---|"]
    for key, value in keys.items():
        name = f"**`{key}`**" if key in node.get("required", []) else f"`{key}`"
        default = f"`{json.dumps(value['default'])}`" if "default" in value else "-"
        text = "" if maps_in(value) and "description" in maps_in(value)[0] else value.get("description", "")
        lines.append(f"| {name} | {SECTIONS.get(key) or cell(type_of(value))} | {default} | {cell(text)} |")
    for key, value in keys.items():
        if key in SECTIONS:
            continue
        for below in maps_in(value):
            lines += table(f"`{title.strip('`')}.{key}`", below, min(depth + 1, 5))
    return lines


def reference() -> str:
    definitions, properties = SCHEMA["definitions"], SCHEMA["properties"]
    types = definitions["source"]["oneOf"]
    shared = ("cache", "io", "split", "s3", "tls_ca")  # by several types
    lines = table("`server`", properties["server"], 2)
    lines += ["", "## `sources`", "", "Name -> a map with the key `type` and those of the type."]
    for each in types:
        takes = [f"`{key}`" for key in shared if key in each["properties"]]
        lines += table(f"`{each['properties']['type']['const']}`", each, 3, ("type", *shared))
        lines += ["", f"Also [keys of several types](#source): {', '.join(takes)}." if takes else "No further keys."]
    common = {key: value for each in types for key, value in each["properties"].items() if key in shared}
    lines += table("`source`", {"properties": common, "description": "Keys that several types have."}, 3)
    lines += table("`stream`", definitions["stream"], 2)
    sections = {
        "sampler": ("Samplers", "`sampler` is one of these names, or a map from one of them to its arguments."),
        "transform": ("Transforms", "Each item of `transforms` is one of these names, or a map from one of them to its arguments; they apply in the order of the list. Where one argument is required, its value may take the place of the map: `random_resized_crop: 224`."),
    }
    for name, (title, text) in sections.items():
        words, ways = definitions[name]["anyOf"]
        lines += ["", f"## {title}", "", f"{text} Without arguments: {', '.join(f'`{word}`' for word in words['enum'])}."]
        for key, node in ways["properties"].items():
            lines += table(f"`{key}`", maps_in(node)[0], 3, ("fields",))
    return INTRO + "\n".join(lines) + "\n"


def main() -> int:
    file = CONFIGS / "reference.md"
    if sys.argv[1:] == ["--check"]:
        if file.exists() and file.read_text() == reference():
            return 0
        print("configs/reference.md is not what the schema says: run tests/config_reference.py")
        return 1
    file.write_text(reference())
    return 0


if __name__ == "__main__":
    sys.exit(main())
