"""A picture for every token, drawn from its id alone."""

from __future__ import annotations

from random import Random

__all__ = ["draw"]

_SIZE = 400


def draw(token_id: str) -> str:
    """Draw abstract art as SVG: the same id gives the same picture, and nothing else enters it.

    Args:
        token_id: any UUID, in any case.
    """
    pen = Random(token_id.lower())  # noqa: S311 - art
    hue = pen.randrange(360)
    shapes = [_shape(pen, (hue + pen.choice((0, 25, 180, 205))) % 360) for _ in range(9)]
    sky = f"hsl({hue} 62% {pen.randrange(16, 34)}%)"
    ground = f"hsl({(hue + pen.randrange(30, 90)) % 360} 58% {pen.randrange(52, 72)}%)"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {_SIZE}">'
        f'<defs><linearGradient id="g" gradientTransform="rotate({pen.randrange(20, 90)})">'
        f'<stop offset="0" stop-color="{sky}"/><stop offset="1" stop-color="{ground}"/>'
        f'</linearGradient></defs><rect width="{_SIZE}" height="{_SIZE}" fill="url(#g)"/>'
        f"{''.join(shapes)}</svg>"
    )


def _shape(pen: Random, hue: int) -> str:
    x, y, size = pen.randrange(_SIZE), pen.randrange(_SIZE), pen.randrange(24, 130)
    paint = f"hsl({hue} {pen.randrange(55, 90)}% {pen.randrange(45, 85)}%)"
    fill = f'fill="{paint}" fill-opacity="0.{pen.randrange(25, 75)}"'
    line = f'fill="none" stroke="{paint}" stroke-width="{pen.randrange(3, 14)}"'
    turn = f'transform="rotate({pen.randrange(360)} {x} {y})"'
    kind = pen.randrange(4)
    if kind == 0:
        return f'<circle cx="{x}" cy="{y}" r="{size}" {fill}/>'
    if kind == 1:
        return f'<circle cx="{x}" cy="{y}" r="{size}" {line}/>'
    if kind == 2:
        corner = pen.randrange(size)
        return f'<rect x="{x}" y="{y}" width="{size}" height="{size}" rx="{corner}" {fill} {turn}/>'
    bend = pen.randrange(-_SIZE, _SIZE)
    return f'<path d="M{x - _SIZE} {y}Q{x} {y + bend} {x + _SIZE} {y}" {line} {turn}/>'
