"""Which tests show what happens in each case of rows.yaml, and how they ended last.

    python tests/fault/report.py --check                   each case has tests, and each test exists (part of the lint)
    python tests/fault/report.py build/logs/junit/*.xml    writes README.md beside this file; --out FILE: another one

`./run test` writes the results of its parts into build/logs/junit, each with the commit that was tested.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import xml.etree.ElementTree as xml
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

TESTS = Path(__file__).resolve().parents[1]
ROWS = Path(__file__).with_name("rows.yaml")

HEAD = """# Faults and bad input

This page lists what can go wrong, what Headrace must do then, the tests of each case, and their last results. Read it to see what is
tested, and before you change how a fault is handled. The list is [`rows.yaml`](rows.yaml). To generate this page:

```sh
./run test                                             # or all, or some of its parts
python tests/fault/report.py build/logs/junit/*.xml
```

A test is `file::function` below `tests/`, or `Suite.Name` for C++. A trailing `*` stands for all tests whose names begin with what
precedes it. Some tests run only a short version by default; `./run test long` sets `HEADRACE_STRESS=1` and runs the full one.
[The ring](../../clientlib/ring/README.md) explains slot, lease, lane, grant and fencing.

In the last column, *not run* names tests of parts that did not run, such as `containers` and `gpu`. *open* says what no test shows yet.
"""


@dataclass
class Row:
    number: int
    case: str
    must: str
    tests: list[str] = field(default_factory=list)
    open: str = ""  # what no test shows yet
    note: str = ""


@dataclass(frozen=True)
class Result:
    outcome: str  # passed, failed or skipped
    why: str = ""


@dataclass
class Run:
    """One file of results: of a part of the tests at a commit."""

    part: str
    time: str
    commit: str
    results: dict[str, Result]


def rows() -> list[Row]:
    return [Row(number=number, **row) for number, row in yaml.safe_load(ROWS.read_text()).items()]


def existing() -> set[str]:
    """Every test below tests/, by the names that rows.yaml uses."""
    found = set()
    for file in TESTS.rglob("test_*.py"):
        functions = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef))
        found |= {f"{file.relative_to(TESTS)}::{function.name}" for function in functions if function.name.startswith("test_")}
    for file in [*TESTS.rglob("*_test.cpp"), *TESTS.rglob("*_test.cu")]:
        found |= {f"{suite}.{name}" for suite, name in re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", file.read_text())}
    return found


def named(pattern: str, tests: Iterable[str]) -> list[str]:
    """The tests that an entry of rows.yaml names; `*` at its end stands for every rest."""
    if not pattern.endswith("*"):
        return [test for test in tests if test == pattern]
    return sorted(test for test in tests if test.startswith(pattern[:-1]))


def problems() -> Iterator[str]:
    listed, tests = rows(), existing()
    if [row.number for row in listed] != list(range(1, len(listed) + 1)):
        yield "the rows are not numbered 1, 2, 3 ..."
    for row in listed:
        if not row.tests and not row.open:
            yield f"row {row.number} names no test: add one, or say in `open` what is missing"
        for pattern in row.tests:
            if not named(pattern, tests):
                yield f"row {row.number} names {pattern}, which is no test below tests/"


def name_of(case: xml.Element) -> str:
    """The name of a test as rows.yaml has it, without parameters."""
    name, of = case.get("name", ""), case.get("classname", "")
    cpp = re.match(r"\w+/\w+\.(?:\w+/)?(\w+\.\w+)(?:/|$)", name)  # unit/record_test.All/Records.AreRead/0
    if cpp:
        return cpp[1]
    return f"{of.removeprefix('tests.').replace('.', '/')}.py::{name.partition('[')[0]}"


def result_of(case: xml.Element) -> Result:
    if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
        return Result("failed")
    skipped = case.find("skipped")
    if skipped is None:
        return Result("passed")
    why = skipped.get("message", "")
    if skipped.get("type") == "pytest.xfail":
        return Result("failed", f"as expected: {why}")
    return Result("skipped", "" if why.startswith("SKIP_") else why)


def worse(a: Result, b: Result) -> Result:
    """Of a test's parameters: it is skipped only if all of them are."""
    return min(a, b, key=lambda result: ("failed", "passed", "skipped").index(result.outcome))


def read_run(file: Path) -> Run:
    suites = [*xml.parse(file).getroot().iter("testsuite")]
    results: dict[str, Result] = {}
    for case in (case for suite in suites for case in suite.findall("testcase")):
        name, result = name_of(case), result_of(case)
        results[name] = worse(results[name], result) if name in results else result
    commit = file.with_suffix(".commit")
    return Run(file.stem, suites[0].get("timestamp", ""), commit.read_text().strip() if commit.exists() else "unknown", results)


def ended(row: Row, runs: list[Run]) -> str:
    """How a row's tests ended, each in the newest run that has it. Those that did not pass are named."""
    passed, missing, others, days = 0, list[str](), list[str](), list[str]()
    known = {test: run for run in runs for test in run.results}  # the newest is the last
    for pattern in row.tests:
        tests = named(pattern, known)
        missing += [] if tests else [f"not run: `{pattern}`"]
        for test in tests:
            result = known[test].results[test]
            days.append(known[test].time[:10])
            if result.outcome == "passed":
                passed += 1
            else:
                others.append(f"{result.outcome}{' (' + result.why + ')' if result.why else ''}: `{test}`")
    said = [f"{passed} passed, {min(days)}"] if passed else []
    said += missing + others + ([f"open: {row.open}"] if row.open else [])
    return "<br>".join(said).replace("|", "\\|").replace("\n", " ")


def page(runs: list[Run]) -> str:
    lines = [HEAD, "| part | time | commit | tests |", "|---|---|---|---|"]
    lines += [f"| `{run.part}` | {run.time[:16].replace('T', ' ')} | `{run.commit}` | {len(run.results)} |" for run in runs]
    lines += ["", "| row | case | what must happen | tests | last result |", "|---|---|---|---|---|"]
    for row in rows():
        case = f"{row.case} ({row.note})" if row.note else row.case
        tests = "<br>".join(f"`{test}`" for test in row.tests)
        lines.append(f"| {row.number} | {case} | {row.must} | {tests or '-'} | {ended(row, runs)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="*", type=Path, help="JUnit files")
    parser.add_argument("--check", action="store_true", help="only check rows.yaml")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("README.md"))
    options = parser.parse_args()
    wrong = list(problems())
    for problem in wrong:
        print(f"{ROWS.relative_to(TESTS.parent)}: {problem}", file=sys.stderr)
    if not options.check:
        runs = sorted(map(read_run, options.results), key=lambda run: run.time)
        options.out.write_text(page(runs))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
