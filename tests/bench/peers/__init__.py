"""Headrace beside other loaders, in one run: `python -m peers --help`, from tests/bench."""
