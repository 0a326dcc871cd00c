"""Compares Headrace with other loaders. Run `python -m peers --help` in tests/bench."""
