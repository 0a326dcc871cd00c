"""Import this before helpers of tests/python: it puts their folder on the path of modules."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
