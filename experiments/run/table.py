"""A report as a table for the terminal, 80 columns wide."""

from __future__ import annotations

from typing import Any

__all__ = ["print_report"]

_COLUMNS = (
    ("asked", 7), ("spent", 7), ("pairs", 7), ("key MSE", 8), ("age MSE", 8), ("prec.", 6), ("found", 6),
)  # fmt: skip
_TITLES = {
    "desc": "desc: as many matches as the budget buys",
    "weighted": "weighted: a faithful sample",
    "asc": "asc: the rare things",
}


def print_report(report: dict[str, Any], console: Any) -> None:
    """Print one table a preference: a row for each method and budget, means over seeds.

    console: a rich Console.  asked, spent: in the unit of the budget.  pairs: share of
    the exact ones.  MSE: Hist-MSE by key and by age, lower is more
    faithful.  prec., found: of the output, how much is outliers; of the outliers, how many were found.
    """
    from rich.table import Table

    runs = report["runs"]
    for costs in dict.fromkeys(run["costs"] for run in runs):
        for preference in dict.fromkeys(run["preference"] for run in runs):
            mine = [run for run in runs if run["preference"] == preference and run["costs"] == costs]
            table = Table(
                title=f"{_TITLES.get(preference, preference)} ({costs} costs)",
                title_justify="left",
                box=None,
                pad_edge=False,
            )
            table.add_column("method", width=18, no_wrap=True)
            for name, width in _COLUMNS:
                table.add_column(name, justify="right", width=width, no_wrap=True)
            before = ""
            for name, budget, group in _groups(mine):
                if before and name != before:
                    table.add_section()
                table.add_row(name if name != before else "", *_cells(budget, group))
                before = name
            console.print(table)
            console.print()


def _groups(runs: list[dict[str, Any]]) -> list[tuple[str, float, list[dict[str, Any]]]]:
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    several = len({run["structure"] for run in runs if run["method"] == "paper"}) > 1
    for run in runs:
        part = run["guide"] or (run["structure"] if several and run["method"] == "paper" else None)
        name = f"{run['method']}/{part}" if part else run["method"]
        groups.setdefault((name, run["budget"]), []).append(run)
    return [(name, budget, group) for (name, budget), group in groups.items()]


def _cells(budget: float, runs: list[dict[str, Any]]) -> list[str]:
    return [
        _amount(budget, runs),
        _amount(_mean(runs, "budget_spent"), runs),
        _percent(_mean(runs, "recall"), 1),
        _small(_mean(runs, "hist_mse_key")),
        _small(_mean(runs, "hist_mse_age")),
        _percent(_mean(runs, "outlier_precision")),
        _percent(_mean(runs, "outlier_recall")),
    ]


def _amount(value: float | None, runs: list[dict[str, Any]]) -> str:
    """A budget in its unit, in 7 characters at most: a share, CPU seconds, or a count of outputs."""
    unit = runs[0]["budget_unit"]
    if value is None or unit in ("fraction", "share"):
        return _percent(value)
    if unit == "outputs":
        return f"{value:.0f}" if value < 1e6 else f"{value:.0e}"
    for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if value >= size:
            return f"{value / size:.3g}{name}"
    return f"{value:.0e}s"


def _mean(runs: list[dict[str, Any]], name: str) -> float | None:
    values = [run[name] for run in runs if run[name] is not None]
    return sum(values) / len(values) if values else None


def _percent(value: float | None, places: int = 0) -> str:
    return "-" if value is None else f"{100 * value:.{places}f}%"


def _small(value: float | None) -> str:
    if value is None:
        return "-"
    return "0" if value == 0 else f"{value:.1e}"
