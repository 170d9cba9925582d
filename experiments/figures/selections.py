"""Figures 15 and 16 of the paper again, on a synthetic stream: `python -m nile.experiments.figures.selections`.

15a: the share of each query's tuples that is found, mean over 100 range predicates of 5 to 10 %, against the
budget.  15b: the same with 20 to 200 queries under one grant a tuple.  16a, 16b: the mean square error of
AVG and SUM over those queries.  Beside the paper's SELECTION stand `nile`, giving pairs and giving ranges, and
the opponents `naive` (the paper's SIMPLE) and `predicate-index`, which the paper does not compare with.
`structures` is 15a for the paper's method over the structures T1 to T4, which the paper compares for joins alone.
The paper's axis is the mean time between arrivals, 10 to 100 ms; here it is the grant a tuple as a fraction of what
`naive` needs for 100 queries, under both cost tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import click
import numpy as np

import nile
from nile.answers.selection_answer import SelectionAnswer
from nile.answers.selection_query import SelectionQuery
from nile.operators.inputs.selecting import Selectable
from nile.preferences.budget import Budget
from nile.pyramid.grid.spec import STRUCTURES
from nile.streams.synthetic import SyntheticRetail
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

__all__ = [
    "CONTESTANTS",
    "FIGURES",
    "Measured",
    "Setting",
    "figure",
    "loaded",
    "mean_cost",
    "point",
    "ranges_over",
    "table",
]

BUDGETS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
COUNTS = (20, 40, 60, 80, 100, 150, 200)
CONTESTANTS: dict[str, dict[str, str]] = {
    "nile": {"method": "nile"},
    "nile ranges": {"method": "nile", "output": "ranges"},
    "paper": {"method": "paper"},
    "naive": {"method": "naive"},
    "predicate-index": {"method": "predicate-index"},
}
"""By name: the options of a query."""
STRUCTURED = {name: {"method": "paper", "structure": name} for name in STRUCTURES}
_QUERIES = 100
_LEAST, _MOST = 0.05, 0.10  # selectivities, uniform


@dataclass(frozen=True, slots=True)
class Setting:
    """What is measured on: `tuples` of SyntheticRetail, `seeds` of them, one table of costs, range predicates on price.

    grant: 15b's grant a tuple, as a fraction of what `naive` needs for 100 queries.
    """

    tuples: int = 60_000
    seeds: int = 3
    costs: str = "engine"
    grant: float = 0.4
    budgets: tuple[float, ...] = BUDGETS
    counts: tuple[int, ...] = COUNTS

    def __post_init__(self) -> None:
        if self.tuples < 1_000 or self.seeds < 1:
            raise ConfigError(
                f"figures 15 and 16: needed 1,000 tuples and 1 seed or more; got {self.tuples} and {self.seeds}; "
                "raise them"
            )


@dataclass(frozen=True, slots=True)
class Measured:
    """One point of a figure, mean over seeds.  x: budget fraction (15a, 16a, 16b) or number of queries (15b).

    y: share found (15), mean square error over the queries (16; an empty SUM is 0, a query with an empty AVG is
    left out and counted in `unanswered`, its share of the queries).  relative: the root mean square of the
    errors as shares of the exact values (16; NaN for 15).  spent: share of what `naive` needs for these queries.
    """

    figure: str
    costs: str
    method: str
    x: float
    y: float
    relative: float
    unanswered: float
    spent: float


@dataclass(frozen=True, slots=True)
class _Figure:
    title: str
    aggregate: str | None
    by_queries: bool = False
    contestants: Mapping[str, dict[str, str]] = field(default_factory=lambda: CONTESTANTS)


FIGURES = {
    "15a": _Figure("share of output against budget, 100 queries", None),
    "15b": _Figure("share of output against the number of queries", None, by_queries=True),
    "16a": _Figure("mean square error of AVG(price) against budget, 100 queries", "avg"),
    "16b": _Figure("mean square error of SUM(price) against budget, 100 queries", "sum"),
    "structures": _Figure("share of output of SELECTION over T1 to T4, 100 queries", None, contestants=STRUCTURED),
}


def figure(name: str, setting: Setting) -> Iterator[Measured]:
    """The points of one figure, method by method.  Raises ConfigError for a figure that is not here.

    Cost: about 0.2 s a point, seed and 60,000 tuples.
    """
    if name not in FIGURES:
        raise ConfigError(f"figure: needed one of {', '.join(FIGURES)}; got {name!r}; name one of these")
    wanted = FIGURES[name]
    counts = setting.counts if wanted.by_queries else (_QUERIES,)
    given = {(seed, count): loaded(setting, seed, count) for seed in range(setting.seeds) for count in counts}
    base = [mean_cost(given.get((seed, _QUERIES)) or loaded(setting, seed, _QUERIES)) for seed in range(setting.seeds)]
    for contestant, options in wanted.contestants.items():
        for x in setting.counts if wanted.by_queries else setting.budgets:
            points = []
            for seed in range(setting.seeds):
                query, selectable = given[seed, int(x) if wanted.by_queries else _QUERIES]
                fraction = x
                if wanted.by_queries:
                    fraction = setting.grant * base[seed] / mean_cost((query, selectable))
                points.append(point(query.using(**options), selectable, Budget(fraction), wanted.aggregate))
            y, relative, unanswered, spent = np.mean(np.array(points), axis=0).tolist()
            yield Measured(name, setting.costs, contestant, x, y, relative, unanswered, spent)


def loaded(setting: Setting, seed: int, queries: int) -> tuple[SelectionQuery, Selectable]:
    """A stream and its queries, of which the first are the same however many there are."""
    sales = SyntheticRetail(seed=seed, tuples=setting.tuples, rare=setting.tuples // 500).table()
    query = ranges_over(sales, seed, queries).using(costs=setting.costs)
    return query, query.load()


def ranges_over(sales: pa.Table, seed: int, queries: int, *, time: str = "ts", value: str = "price") -> SelectionQuery:
    """Range predicates over a column of numbers, each with 5 to 10 % of the tuples."""
    prices = np.sort(sales[value].to_numpy())
    chance = np.random.Generator(np.random.PCG64([seed, 15]))
    predicates = {}
    for number, (wide, place) in enumerate(chance.random((queries, 2)).tolist()):
        share = _LEAST + (_MOST - _LEAST) * wide
        first = int(place * (1.0 - share) * prices.shape[0])
        last = min(prices.shape[0] - 1, first + int(share * prices.shape[0]))
        predicates[f"q{number}"] = f"{value} >= {prices[first]} AND {value} < {prices[last]}"
    return nile.connect().register("sales", sales, time=time).select("sales", on=value, predicates=predicates)


def mean_cost(given: tuple[SelectionQuery, Selectable]) -> float:
    """What `naive` needs for everything, a tuple."""
    query, selectable = given
    answer = SelectionAnswer(selectable, query.using(method="naive").plan(1e-9))
    return answer.figures.exact_cost / answer.figures.arrivals


def point(
    query: SelectionQuery, selectable: Selectable, budget: Budget, aggregate: str | None
) -> tuple[float, float, float, float]:
    """What one query set finds under a budget: y, relative, unanswered and spent of a `Measured`."""
    preferred = query if aggregate is None else query.preferring_for(aggregate)
    answer = SelectionAnswer(selectable, preferred.plan(budget))
    spent = answer.budget.spent
    if aggregate is None:
        shares = [share for share in answer.shares.values() if share is not None]
        return float(np.mean(shares)), math.nan, 0.0, spent
    found, exact = answer.aggregate(aggregate), answer.exact_aggregate(aggregate)
    errors, relative, unanswered, asked = [], [], 0, 0
    for name, value in exact.items():
        if value is None:
            continue
        asked += 1
        obtained = found[name]
        if obtained is None and aggregate == "sum":
            obtained = 0.0
        if obtained is None:
            unanswered += 1
            continue
        errors.append((obtained - value) ** 2)
        relative.append((obtained / value - 1.0) ** 2)
    if not errors:
        return math.nan, math.nan, 1.0, spent
    return float(np.mean(errors)), math.sqrt(float(np.mean(relative))), unanswered / asked, spent


def table(points: Sequence[Measured]) -> str:
    """Points of one figure as a text table: a row a method, a column for each x; under 16 relative errors too."""
    if not points:
        return ""
    wanted = FIGURES[points[0].figure]
    xs = list(dict.fromkeys(point.x for point in points))
    head = f"{'queries' if wanted.by_queries else 'budget':18}" + "".join(
        f"{_number(x) if wanted.by_queries else f'{x:.0%}':>9}" for x in xs
    )
    lines = [f"Figure {points[0].figure}: {wanted.title} ({points[0].costs} costs)", head]
    for method in dict.fromkeys(point.method for point in points):
        mine = [point for point in points if point.method == method]
        if wanted.aggregate is None:
            lines.append(_row(method, (f"{point.y:.1%}" for point in mine)))
            continue
        lines.append(_row(method, (_number(point.y) for point in mine)))
        lines.append(_row("  relative", (_share(point.relative) for point in mine)))
        if any(point.unanswered for point in mine):
            lines.append(_row("  unanswered", (f"{point.unanswered:.0%}" for point in mine)))
    return "\n".join(lines)


def _row(name: str, cells: Iterable[str]) -> str:
    return f"{name:18}" + "".join(f"{cell:>9}" for cell in cells)


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3g}"


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2%}"


@click.command()
@click.option(
    "--figure", "names", multiple=True, default=tuple(FIGURES), help="15a, 15b, 16a, 16b, structures; all by default."
)
@click.option("--tuples", default=Setting().tuples, show_default=True)
@click.option("--seeds", default=Setting().seeds, show_default=True)
@click.option("--costs", default=("engine", "memory"), multiple=True, help="Cost tables; both by default.")
def main(names: tuple[str, ...], tuples: int, seeds: int, costs: tuple[str, ...]) -> None:
    """Measure figures 15 and 16 and print them."""
    for name in names:
        for costing in costs:
            print(table(list(figure(name, Setting(tuples=tuples, seeds=seeds, costs=costing)))), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
