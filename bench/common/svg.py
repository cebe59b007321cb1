"""Plots as SVG, by hand: horizontal bars, and lines over a logarithmic axis. Nothing to install."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, LABELS, ROW, TOP = 900, 380, 22, 46
_STYLE = "font-family='sans-serif' font-size='12'"
_COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#475569")


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    mark: float | None = None
    """A line across the bar, such as a goal."""


def bars(path: Path, title: str, items: Sequence[Bar]) -> None:
    most = max((max(item.value, item.mark or 0.0) for item in items), default=1.0) or 1.0
    scale = (WIDTH - LABELS - 80) / most
    parts = []
    for index, item in enumerate(items):
        y = TOP + index * ROW
        length = item.value * scale
        colour = _COLOURS[0] if item.mark is None or item.value >= item.mark else _COLOURS[1]
        parts.append(f"<text x='{LABELS - 8}' y='{y + 14}' text-anchor='end'>{escape(item.label)}</text>")
        parts.append(f"<rect x='{LABELS}' y='{y + 3}' width='{length:.1f}' height='{ROW - 8}' fill='{colour}'/>")
        parts.append(f"<text x='{LABELS + length + 5:.1f}' y='{y + 14}'>{_figure(item.value)}</text>")
        if item.mark is not None:
            x = LABELS + item.mark * scale
            parts.append(f"<path d='M{x:.1f} {y} V{y + ROW - 2}' stroke='black' stroke-width='2'/>")
    _save(path, title, TOP + len(items) * ROW + 16, parts)


def lines(path: Path, title: str, series: Mapping[str, Sequence[tuple[float, float]]], *, height: int = 420) -> None:
    """Points (x, y) per name; x runs over powers of ten, y from zero."""
    points = [point for values in series.values() for point in values]
    if not points:
        return
    left, right, bottom = 80, WIDTH - 190, height - 40
    x_min, x_max = (math.log10(bound) for bound in (min(p[0] for p in points), max(p[0] for p in points)))
    y_max = max(p[1] for p in points) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - x_min) / ((x_max - x_min) or 1.0)
        return left + across * (right - left), bottom - y / y_max * (bottom - TOP)

    parts = [f"<path d='M{left} {TOP} V{bottom} H{right}' fill='none' stroke='black'/>"]
    for share in (0.0, 0.5, 1.0):
        y = place(points[0][0], share * y_max)[1]
        parts.append(f"<text x='{left - 6}' y='{y + 4:.1f}' text-anchor='end'>{_figure(share * y_max)}</text>")
    parts += [
        f"<text x='{place(x, 0)[0]:.1f}' y='{bottom + 18}' text-anchor='middle'>{_figure(x)}</text>"
        for x in sorted({point[0] for point in points})
    ]
    for index, (name, values) in enumerate(series.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        way = " L".join("{:.1f} {:.1f}".format(*place(x, y)) for x, y in values)
        parts.append(f"<path d='M{way}' fill='none' stroke='{colour}' stroke-width='2'/>")
        parts.append(f"<text x='{right + 10}' y='{TOP + 18 * index + 10}' fill='{colour}'>{escape(name)}</text>")
    _save(path, title, height, parts)


def _figure(value: float) -> str:
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def _save(path: Path, title: str, height: int, parts: Sequence[str]) -> None:
    head = f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' {_STYLE}>"
    ground = "<rect width='100%' height='100%' fill='white'/>"
    caption = f"<text x='12' y='26' font-size='15'>{escape(title)}</text>"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([head, ground, caption, *parts, "</svg>", ""]))
