"""The parts of the pictures of docs/: a page, texts, boxes, arrows."""

from __future__ import annotations

from html import escape

FONT = 'font-family="Helvetica, Arial, sans-serif"'


def svg(width: int, height: int, body: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">'
    )
    return "\n".join(
        [head, f'<rect width="{width}" height="{height}" fill="white"/>', *body, "</svg>\n"]
    )


def text(x: float, y: float, words: str, size: int = 13, extra: str = "") -> str:
    return f'<text x="{x}" y="{y}" {FONT} font-size="{size}" {extra}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{fill}" '
        'stroke="#333"/>'
    )
