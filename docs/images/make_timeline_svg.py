"""Draw timeline.svg: a wallet's reads, a change between two of them, and the certainty in between.

Run `python docs/images/make_timeline_svg.py`. The picture is a white card with dark text, so that
it is readable on light and dark pages.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

_PICTURE = Path(__file__).with_name("timeline.svg")
_WIDTH, _HEIGHT = 960, 372
_START, _NOW = 176, 936
_READS = (268, 440, 636, 790)
_CHANGE = 550

_INK, _GRAY, _LINE = "#1f2328", "#59636e", "#8c959f"
_STATES = {"A": "#cfe3fb", "B": "#fbe3c4"}
_CERTAINTIES = (
    ("unknown", "#eceff2", _START, _READS[0]),
    ("bracketed", "#c6ebcf", _READS[0], _READS[1]),
    ("gap", "#fbd0cc", _READS[1], _READS[2]),
    ("bracketed", "#c6ebcf", _READS[2], _READS[3]),
    ("open", "#fdf0b8", _READS[3], _NOW),
)

_HEAD = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
    ' font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"'
    ' font-size="14">\n'
    "<title>Reads of a wallet, a change between two of them, and the certainty</title>"
)
_CARD = (
    f'<rect x="0.5" y="0.5" width="{_WIDTH - 1}" height="{_HEIGHT - 1}" rx="8" fill="#ffffff"'
    ' stroke="#d1d9e0"/>'
)


def _text(x: int, y: int, text: str, *, anchor: str = "middle", color: str = _INK) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'


def _bar(y: int, start: int, end: int, color: str, text: str) -> str:
    box = f'<rect x="{start}" y="{y}" width="{end - start}" height="34" rx="4" fill="{color}"/>'
    return box + _text((start + end) // 2, y + 22, text)


def _vertical(x: int, top: int, bottom: int, dashes: str) -> str:
    return (
        f'<line x1="{x}" y1="{top}" x2="{x}" y2="{bottom}" stroke="{_LINE}"'
        f' stroke-dasharray="{dashes}"/>'
    )


def draw() -> str:
    """Return the picture."""
    parts = [_HEAD, _CARD]
    for y, label in ((57, "At the provider"), (127, "Reads"), (187, "nftsync shows")):
        parts.append(_text(20, y, label, anchor="start", color=_GRAY))
    parts.append(_text(20, 239, "Certainty", anchor="start", color=_GRAY))
    parts.append(_text(20, 306, "Change feed", anchor="start", color=_GRAY))

    parts += [_vertical(x, 122, 278, "2 3") for x in _READS]
    parts.append(_vertical(_CHANGE, 28, 82, "5 3"))

    parts.append(_bar(35, _START, _CHANGE - 1, _STATES["A"], "state A: NFTs 1 and 2"))
    parts.append(_bar(35, _CHANGE + 1, _NOW, _STATES["B"], "state B: NFT 2 only"))
    parts.append(_text(_CHANGE, 23, "NFT 1 leaves, at a time that no read shows"))

    parts.append(
        f'<line x1="{_START}" y1="122" x2="{_NOW}" y2="122" stroke="{_LINE}" stroke-width="1.5"/>'
    )
    for number, x in enumerate(_READS):
        parts.append(f'<circle cx="{x}" cy="122" r="6" fill="{_INK}"/>')
        parts.append(_text(x, 108, "read" if number else "first read"))
    parts.append(_text(_NOW, 108, "now", anchor="end", color=_GRAY))

    parts.append(_bar(165, _START, _READS[0] - 1, "#eceff2", "nothing"))
    parts.append(_bar(165, _READS[0] + 1, _READS[2] - 1, _STATES["A"], "state A"))
    parts.append(_bar(165, _READS[2] + 1, _NOW, _STATES["B"], "state B"))
    parts += [
        _bar(217, start + 1, end - 1, color, name) for name, color, start, end in _CERTAINTIES
    ]

    parts.append(_text(_READS[0], 298, "NFTs 1 and 2 added,"))
    parts.append(_text(_READS[0], 318, "baseline 1"))
    parts.append(_text(_READS[2], 298, "NFT 1 removed, baseline 0"))
    parts.append(
        f'<path d="M{_READS[1]} 330v8H{_READS[2]}v-8" fill="none" stroke="{_INK}"'
        ' stroke-width="1.5"/>'
    )
    parts.append(_text(_READS[1], 322, "observed_after", color=_GRAY))
    parts.append(_text(_READS[2], 322, "observed_at", color=_GRAY))
    middle = (_READS[1] + _READS[2]) // 2
    parts.append(_text(middle, 356, "the change happened in between"))
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    _PICTURE.write_text(draw(), encoding="utf-8")
