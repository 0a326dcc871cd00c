"""The page of faults: results are found by the names that rows.yaml has, and a list that names no real test is refused."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from running import ROOT

CTEST = """<testsuite name="(empty)" timestamp="2026-11-27T09:00:00">
<testcase name="death/ring_death_test.RingDeath.AtAnyMoment" classname="x" status="run"/>
<testcase name="unit/record_test.All/Records.AreRead/0" classname="x" status="run"/>
<testcase name="unit/record_test.All/Records.AreRead/1" classname="x" status="fail"><failure message=""/></testcase>
</testsuite>"""
PYTEST = """<testsuites><testsuite name="pytest" timestamp="2026-11-28T10:00:00.5+00:00">
<testcase classname="tests.python.test_x" name="test_runs[a.b::c]"/>
<testcase classname="tests.python.test_x" name="test_runs[d]"><skipped type="pytest.skip" message="no root"/></testcase>
<testcase classname="tests.python.test_x" name="test_waits"><skipped type="pytest.xfail" message="a | b"/></testcase>
<testcase classname="tests.python.test_x" name="test_skips"><skipped type="pytest.skip" message="no root"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fault_report", ROOT / "tests/fault/report.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fault_report", module)  # its dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("tests", "ended"),
    [
        (["RingDeath.AtAnyMoment", "python/test_x.py::test_runs"], "2 passed, 2026-11-27"),
        (["Records.AreRead"], "failed: `Records.AreRead`"),
        (["python/test_x.py::test_waits"], "failed (as expected: a \\| b): `python/test_x.py::test_waits`"),
        (["python/test_x.py::test_skips"], "skipped (no root): `python/test_x.py::test_skips`"),
        (["RingDeath.*", "Ring.Is"], "1 passed, 2026-11-27<br>not run: `Ring.Is`"),
    ],
)
def test_results_are_found_by_the_names_of_the_list(report: ModuleType, tmp_path: Path, tests: list[str], ended: str) -> None:
    (tmp_path / "cpp.xml").write_text(CTEST)
    (tmp_path / "cpp.commit").write_text("abc\n")
    (tmp_path / "python.xml").write_text(PYTEST)
    runs = [report.read_run(tmp_path / f"{name}.xml") for name in ("cpp", "python")]
    assert [run.commit for run in runs] == ["abc", "unknown"]
    assert report.ended(report.Row(1, "case", "must", tests), runs) == ended


def test_each_row_must_name_tests_that_exist_or_say_what_is_open(
    report: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(report.problems()) == []
    listed = tmp_path / "rows.yaml"
    listed.write_text(
        "1: {case: a, must: b, tests: ['python/test_fault_report.py::*', Ring.NoSuchTest]}\n"
        "2: {case: a, must: b}\n"
        "4: {case: a, must: b, open: a test}\n"
    )
    monkeypatch.setattr(report, "ROWS", listed)
    assert list(report.problems()) == [
        "the rows are not numbered 1, 2, 3 ...",
        "row 1 names Ring.NoSuchTest, which is no test below tests/",
        "row 2 names no test: add one, or say in `open` what is missing",
    ]
