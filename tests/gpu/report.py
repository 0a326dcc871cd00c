"""What tests/gpu/run.sh found, as one JSON and one Markdown file: report.py OUT LOGS, from the logs and statuses of its steps
(LOGS/<step>.log, LOGS/<step>.rc) and the lines in them that begin with "[figure] " or "[not run] "."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def said(*command: str) -> str:
    """The first line of what a command says; empty: it is not there."""
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    except FileNotFoundError:
        return ""
    return lines[0] if lines else ""


def collect(logs: Path) -> dict[str, Any]:
    steps: dict[str, str] = {}
    figures: list[dict[str, Any]] = []
    not_run: list[str] = []
    for rc in sorted(logs.glob("*.rc"), key=lambda path: path.stat().st_mtime):
        status = rc.read_text().strip()
        steps[rc.stem] = {"0": "passed", "not run": "not run"}.get(status, f"FAILED (status {status})")
        text = rc.with_suffix(".log").read_text(errors="replace") if rc.with_suffix(".log").exists() else ""
        if status == "not run":
            not_run.append(f"{rc.stem}: all of it: {text.splitlines()[0] if text else 'it does not say why'}")
        not_run += [f"{rc.stem}: {line}" for line in re.findall(r"^\[not run\] (.*)$", text, re.MULTILINE)]
        figures += [json.loads(line) for line in re.findall(r"^\[figure\] (\{.*\})$", text, re.MULTILINE)]
        figures += [{"figure": rc.stem, "text": line} for line in re.findall(r"^\[figure\] ([^{].*)$", text, re.MULTILINE)]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": said("git", "rev-parse", "HEAD") or "unknown",
        "gpu": said("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"),
        "cuda": said("sh", "-c", "nvcc --version | grep release"),
        "cores": int(said("nproc") or 0),
        "steps": steps,
        "not_run": not_run,
        "figures": figures,
    }


def table(rows: list[dict[str, Any]]) -> list[str]:
    columns = list(dict.fromkeys(name for row in rows for name in row if name != "figure"))
    shown = [[f"{row[c]:.4g}" if isinstance(row.get(c), float) else str(row.get(c, "")) for c in columns] for row in rows]
    return ["| " + " | ".join(line) + " |" for line in [columns, ["---"] * len(columns), *shown]]


def markdown(found: dict[str, Any]) -> str:
    lines = [f"# {found['gpu'] or 'no GPU'}", "", f"{found['date']}, commit {found['commit'][:12]}, {found['cuda'] or 'no nvcc'}, {found['cores']} cores.", ""]
    lines += ["| step | |", "| --- | --- |", *(f"| {name} | {result} |" for name, result in found["steps"].items()), ""]
    if found["not_run"]:
        lines += ["## Not run", "", *(f"- {line}" for line in found["not_run"]), ""]
    for name in dict.fromkeys(figure["figure"] for figure in found["figures"]):
        lines += [f"## {name}", "", *table([figure for figure in found["figures"] if figure["figure"] == name]), ""]
    return "\n".join(lines)


def main() -> None:
    out, logs = Path(sys.argv[1]), Path(sys.argv[2])
    found = collect(logs)
    name = re.sub(r"[^A-Za-z0-9]+", "-", found["gpu"].split(",")[0]).strip("-") or "no-gpu"
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    (out / f"{name}.md").write_text(markdown(found))
    print(f"{out / name}.json, {out / name}.md")


if __name__ == "__main__":
    main()
