"""How much of their output standing selections find under a budget: the bars of `method="nile"`, and its opponents.

The stream is synthetic, the queries 100 range predicates of 5 to 10 % over price
(`nile.experiments.figures.selections`). The budget is a fraction of what `naive` needs, whose outputs are tuples: the
same base for pairs and for ranges.

The ceiling of pairs.  Under the `engine` table an output costs 10, and a tuple has 7.5 of them: 75 of naive's 285.  A
tenth of the naive cost buys 2.85 outputs per tuple, 38 % of all, if nothing else were done at all.  So 65 % can be had
as ranges alone, where one record stands for all tuples of a query's cells in a zone.

Here the operators spend 3.8 to 4 ns of CPU on a predicate put to a tuple and 2.5 to 5 on an output, where that table
says 2 and 10: it charges an output what five predicates cost, which is dear for whoever has few other costs.  The
`machine` table has those nanoseconds, and is the default of a query that names none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

import nile
from nile.answers.selection_answer import SelectionAnswer
from nile.answers.selection_query import SelectionQuery
from nile.experiments.benchmarks.harness import Measure
from nile.experiments.figures.selections import Setting, loaded, mean_cost
from nile.operators.inputs.selecting import Selectable
from nile.streams.synthetic import SyntheticRetail

__all__ = ["rows"]

_BUDGET = 0.1
_MEMORY_BAR, _ENGINE_BAR = 0.95, 0.65
_COUNTS = (20, 40, 60, 80, 100, 200, 500)
_BUDGETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
_NO_LOSS = 0.002
"""What learning about admission may cost: less than this behind counts as no less."""
_OPPONENTS = {"predicate-index": -_NO_LOSS, "shed-uniform": None}
"""What nile must not fall behind of by more; no bar for random admission, which is told the exact answer's cost."""
_TUPLES = 60_000
_ROUNDS = 7
_STRICT = "one record per tuple as the base"


def rows(seeds: Sequence[int], *, tuples: int = _TUPLES) -> list[Measure]:
    """Every bar of standing selections, measured.  seeds: five or more; about a minute."""
    return [
        *_tenth(seeds, tuples),
        *_ahead_of_naive(seeds, tuples),
        *_against_indices(seeds, tuples),
        *_by_the_clock(tuples),
    ]


def _found(query: SelectionQuery, selectable: Selectable, budget: float, method: str, output: str = "pairs") -> float:
    """The share of the whole output that is found."""
    answer = SelectionAnswer(selectable, query.using(method=method, output=output).plan(budget))
    for _ in answer.outputs():
        pass
    return answer.figures.outputs / max(1, sum(answer.exact.values()))


def _tenth(seeds: Sequence[int], tuples: int) -> Iterator[Measure]:
    for costs, count, bars in (
        ("memory", 100, {"pairs": _MEMORY_BAR, "ranges": _MEMORY_BAR}),
        ("engine", 100, {"ranges": _ENGINE_BAR, "pairs": None}),
        ("machine", 200, {"pairs": _MEMORY_BAR, "ranges": _MEMORY_BAR}),
    ):
        about = f"{count} ranges of 5 to 10 % at a tenth of the naive cost, {len(seeds)} seeds"
        setting = Setting(tuples=tuples, seeds=1, costs=costs)
        given = [loaded(setting, seed, count) for seed in seeds]
        for output, bar in bars.items():
            found = float(np.mean([_found(*one, _BUDGET, "nile", output) for one in given]))
            note = about
            if bar is None:
                ceiling = float(np.mean([_ceiling(*one) for one in given]))
                note += f"; no bar: emission alone allows {ceiling:.1%}"
            yield Measure(f"selections, {costs} table, {output}: output found", found, bar=bar, about=note)
        for method in ("shed-uniform", "predicate-index", "naive", "paper"):
            found = float(np.mean([_found(*one, _BUDGET, method) for one in given]))
            yield Measure(f"selections, {costs} table, {method}: output found", found, about=about)
        if costs == "engine":
            found = float(np.mean([_found(*one, _strict(*one), "nile", "ranges") for one in given]))
            yield Measure(
                f"selections, engine table, ranges, {_STRICT}: output found",
                found,
                bar=_ENGINE_BAR,
                about=f"{about}, if naive gave one record per tuple for all its queries",
            )


def _by_the_clock(tuples: int) -> Iterator[Measure]:
    """The whole answer's CPU as a share of naive's: below a tenth, a tenth of naive's time buys all of it here."""
    for count in (100, 200, 300, 500):
        query, selectable = loaded(Setting(tuples=tuples, seeds=1, costs="memory"), 0, count)
        ways = {"naive": query.using(method="naive"), "pairs": query, "ranges": query.using(output="ranges")}
        took: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(_ROUNDS):  # in turn, so that what else runs disturbs them alike
            for way, asked in ways.items():
                begun = time.process_time()
                for _ in SelectionAnswer(selectable, asked.plan(1.0)).outputs():
                    pass
                took[way].append(time.process_time() - begun)
        for way in ("pairs", "ranges"):
            share = float(np.median(np.array(took[way]) / np.array(took["naive"])))
            about = f"{count} ranges of 5 to 10 %, process time, median of {_ROUNDS} rounds in turn"
            name = f"selections, the whole answer of {count} ranges as {way}: CPU over naive's"
            yield Measure(name, share, bar=_BUDGET if count > 100 else None, most=True, about=about)


def _ceiling(query: SelectionQuery, selectable: Selectable) -> float:
    """The share of all outputs whose emission alone costs the budget."""
    costs = query.plan().costs
    outputs = float(selectable.input.matches.sum())
    naive = mean_cost((query, selectable)) * len(selectable.loaded)
    return min(1.0, _BUDGET * naive / (costs.emit * outputs))


def _strict(query: SelectionQuery, selectable: Selectable) -> float:
    """A tenth of what naive would cost if all outputs of a tuple were one record, as a fraction of what it costs."""
    costs = query.plan().costs
    matches = selectable.input.matches
    record = costs.insert + len(selectable.names) * costs.scan + costs.emit * float(np.mean(matches > 0))
    return _BUDGET * record / mean_cost((query, selectable))


def _ahead_of_naive(seeds: Sequence[int], tuples: int) -> Iterator[Measure]:
    for costs in ("memory", "engine"):
        setting = Setting(tuples=tuples, seeds=1, costs=costs)
        behind = []
        least = np.inf
        for count in _COUNTS:
            given = [loaded(setting, seed, count) for seed in seeds]
            mine = float(np.mean([_found(*one, _BUDGET, "nile") for one in given]))
            naive = float(np.mean([_found(*one, _BUDGET, "naive") for one in given]))
            if count >= 40:
                least = min(least, mine / max(naive, 1e-9))
                if mine <= naive:
                    behind.append(count)
        yield Measure(
            f"selections, {costs} table, pairs: times what naive finds, least from 40 to 500 queries",
            float(least),
            bar=1.0,
            about=f"ranges of 5 to 10 %, a tenth of the naive cost of as many queries, {len(seeds)} seeds",
        )


def _against_indices(seeds: Sequence[int], tuples: int) -> Iterator[Measure]:
    for costs in ("memory", "engine"):
        for name, given in _workloads(seeds, tuples, costs):
            found = {
                method: [float(np.mean([_found(*one, budget, method) for one in given])) for budget in _BUDGETS]
                for method in ("nile", *_OPPONENTS)
            }
            for opponent, bar in _OPPONENTS.items():
                gains = [mine - theirs for mine, theirs in zip(found["nile"], found[opponent], strict=True)]
                told = ", ".join(
                    f"{budget:.0%}: {100 * gain:+.1f}" for budget, gain in zip(_BUDGETS, gains, strict=True)
                )
                yield Measure(
                    f"selections, {costs} table, {name}, pairs: least gain on {opponent}, share of output",
                    min(gains),
                    bar=bar,
                    about=f"points by budget: {told}; {len(seeds)} seeds",
                )


def _workloads(
    seeds: Sequence[int], tuples: int, costs: str
) -> Iterator[tuple[str, list[tuple[SelectionQuery, Selectable]]]]:
    setting = Setting(tuples=tuples, seeds=1, costs=costs)
    yield "100 ranges", [loaded(setting, seed, 100) for seed in seeds]
    for name, on in (("100 IN lists of 10 of 20,000 items", "item_id"), ("100 ranges over two columns", "price")):
        given = []
        for seed in seeds:
            sales = SyntheticRetail(seed=seed, tuples=tuples, items=20_000, rare=tuples // 500)
            chance = np.random.Generator(np.random.PCG64([seed, 16]))
            query = nile.connect().register("sales", sales, time="ts").select(
                "sales", on=on, predicates=_lists(chance) if on == "item_id" else _two_columns(chance)
            )  # fmt: skip
            query = query.using(costs=costs)
            given.append((query, query.load()))
        yield name, given


def _lists(chance: np.random.Generator) -> dict[str, str]:
    items = chance.integers(0, 20_000, (100, 10)).tolist()
    texts = [", ".join(f"'S{item:05d}'" for item in row) for row in items]
    return {f"q{q}": f"item_id IN ({text})" for q, text in enumerate(texts)}


def _two_columns(chance: np.random.Generator) -> dict[str, str]:
    drawn = chance.random((100, 2)).tolist()
    return {
        f"q{q}": f"price BETWEEN {13 * low:.2f} AND {13 * low + 1:.2f} AND quantity > {int(20 * least)}"
        for q, (low, least) in enumerate(drawn)
    }
