"""Small SVG drawings: boxes, arrows and text on a light panel, which is legible on light and dark pages."""

from __future__ import annotations

from html import escape
from pathlib import Path

INK, SOFT, PANEL, LINE = "#1f2937", "#5b6675", "#f6f8fb", "#c3ccd8"
BLUE, GREEN, ORANGE, GRAY = "#3b5bdb", "#2f9e63", "#d9730d", "#9aa5b4"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


class Drawing:
    def __init__(self, width: int, height: int, title: str) -> None:
        self.size, self.title = (width, height), title
        self.parts: list[str] = []

    def text(self, x: float, y: float, text: str, *, size: int = 13, color: str = INK, anchor: str = "start", bold: bool = False) -> None:
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}" text-anchor="{anchor}"{weight}>{escape(text)}</text>')

    def rect(self, x: float, y: float, width: float, height: float, fill: str, *, line: str = "none", round: float = 4) -> None:
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round:g}" fill="{fill}" stroke="{line}"/>')

    def box(self, x: float, y: float, width: float, height: float, *lines: str, fill: str = "#ffffff", line: str = LINE, ink: str = INK) -> None:
        """A box with centered lines; the first one is bold."""
        self.rect(x, y, width, height, fill, line=line, round=6)
        first = y + height / 2 + 5 - 8.5 * (len(lines) - 1)
        for number, words in enumerate(lines):
            faded = ink if number == 0 or ink != INK else SOFT
            self.text(x + width / 2, first + 17 * number, words, size=13 if number == 0 else 12, color=faded, anchor="middle", bold=number == 0)

    def arrow(self, *points: tuple[float, float], color: str = SOFT) -> None:
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6" marker-end="url(#head)"/>')

    def svg(self) -> str:
        width, height = self.size
        head = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" font-family="{FONT}">',
                f"<title>{escape(self.title)}</title>",
                f'<defs>{head}<path d="M0,0 L8,4 L0,8 z" fill="{SOFT}"/></marker></defs>',
                f'<rect width="{width}" height="{height}" rx="8" fill="{PANEL}"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


def write(drawings: dict[Path, str], check: bool) -> list[Path]:
    """Writes what differs from the files, or only returns it."""
    stale = [path for path, text in drawings.items() if not path.exists() or path.read_text() != text]
    if not check:
        for path in stale:
            path.write_text(drawings[path])
    return stale
