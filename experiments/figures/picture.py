"""The README's picture, from a report: `python -m nile.experiments.figures.picture report.json out.svg`.

Three panels over the budget: how many pairs under desc, how far from the exact ages under weighted, how many
outliers found under asc.  A plain SVG of a few kilobytes with its own background, readable on any page.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["draw"]

_WIDTH, _HEIGHT = 900, 300
_PANEL, _GAP, _TOP, _BOTTOM = 236, 52, 74, 238
_INK = {"nile/directory": "#2c7a4b", "nile/countsketch": "#0b61a4", "hash-drop": "#c0561f"}
_DASH = {"hash-drop": "5 4"}

Record = dict[str, Any]


def draw(report: dict[str, Any]) -> str:
    """The picture of a report's runs (the first cost table, means over seeds) as SVG text."""
    runs = [run for run in report["runs"] if run["costs"] == report["runs"][0]["costs"]]
    panels = (
        ("desc", "recall", "Pairs found (desc)", _share, _percent, (0.0, 0.25, 0.5, 0.75, 1.0)),
        ("weighted", "hist_mse_age", "Distance by age (weighted)", _decades, _power, (1e-6, 1e-4, 1e-2)),
        ("asc", "outlier_recall", "Outliers found (asc)", _share, _percent, (0.0, 0.25, 0.5, 0.75, 1.0)),
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12">',
        "<title>Budget curves of nile demo</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="#ffffff"/>',
        _legend(sorted({_name(run) for run in runs}, key=list(_INK).index)),
    ]
    for number, (preference, key, title, place, label, ticks) in enumerate(panels):
        mine = [run for run in runs if run["preference"] == preference and run[key] is not None]
        parts.append(_panel(58 + number * (_PANEL + _GAP), title, mine, key, place, label, ticks))
    parts.append("</svg>\n")
    return "\n".join(parts)


def _panel(
    left: int,
    title: str,
    runs: Sequence[Record],
    key: str,
    place: Callable[[float], float],
    label: Callable[[float], str],
    ticks: Sequence[float],
) -> str:
    budgets = sorted({run["budget"] for run in runs})
    low, high = math.log(budgets[0]), math.log(budgets[-1])
    parts = [f'<text x="{left}" y="{_TOP - 16}" font-weight="600" fill="#222">{title}</text>']
    for tick in ticks:
        y = _height(place(tick))
        parts.append(f'<line x1="{left}" x2="{left + _PANEL}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end" fill="#666">{label(tick)}</text>')
    across = {b: left + _PANEL * (math.log(b) - low) / (high - low or 1.0) for b in budgets}
    for budget, x in across.items():
        parts.append(f'<text x="{x:.1f}" y="{_BOTTOM + 18}" text-anchor="middle" fill="#666">{_percent(budget)}</text>')
    parts.append(
        f'<text x="{left + _PANEL / 2}" y="{_BOTTOM + 38}" text-anchor="middle" fill="#666">'
        "share of the exact cost</text>"
    )
    for name in sorted({_name(run) for run in runs}, key=list(_INK).index):
        points = []
        for budget in budgets:
            values = [run[key] for run in runs if _name(run) == name and run["budget"] == budget]
            if values:
                points.append((across[budget], _height(place(sum(values) / len(values)))))
        path = " ".join(f"{x:.1f},{y}" for x, y in points)
        dash = f' stroke-dasharray="{_DASH[name]}"' if name in _DASH else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="{_INK[name]}" stroke-width="2"{dash}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y}" r="3" fill="{_INK[name]}"/>' for x, y in points]
    return "\n".join(parts)


def _legend(names: Sequence[str]) -> str:
    parts = []
    for i, name in enumerate(names):
        x = 58 + 170 * i
        dash = f' stroke-dasharray="{_DASH[name]}"' if name in _DASH else ""
        parts.append(f'<line x1="{x}" x2="{x + 26}" y1="24" y2="24" stroke="{_INK[name]}" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{x + 32}" y="28" fill="#222">{name}</text>')
    return "\n".join(parts)


def _name(run: Record) -> str:
    return f"{run['method']}/{run['guide']}" if run["guide"] else str(run["method"])


def _height(share: float) -> float:
    return round(_BOTTOM - (_BOTTOM - _TOP) * min(1.0, max(0.0, share)), 1)


def _share(value: float) -> float:
    return value


def _decades(value: float) -> float:
    """1e-7 (and an exact answer's 0) at the foot, 1 at the top."""
    return 0.0 if value <= 1e-7 else (math.log10(value) + 7.0) / 7.0


def _percent(value: float) -> str:
    return f"{100 * value:g}%"


def _power(value: float) -> str:
    return f"1e{round(math.log10(value))}"


if __name__ == "__main__":
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.write_text(draw(json.loads(source.read_text(encoding="utf-8"))), encoding="utf-8")
