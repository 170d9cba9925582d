"""What joins find under a budget: the bars of `method="nile"`, its opponents beside it.

Synthetic streams of `accuracy_streams`; under the `engine` table a bar binds, under `memory` it is reported.  The
emission ceiling is what the grant would emit if nothing else were done.  Opponents: hash-drop and hash-backlog,
which take a tuple only when that can be paid, and without a replay never have credit to go back with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow.parquet as pq

import nile
from nile.answers.join_answer import JoinAnswer
from nile.answers.join_query import JoinQuery
from nile.experiments.benchmarks.harness import Measure
from nile.experiments.benchmarks.streams import WINDOW_TUPLES, Workload, workload
from nile.experiments.run.retail import retail_file
from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.inputs.joining import Joinable
from nile.operators.join.join import Outputs, PromisingJoin
from nile.preferences.budget import Budget
from nile.preferences.fade import Fade
from nile.report.metrics import Obtained, score
from nile.report.truth import completing, exact_pairs
from nile.streams.synthetic import SyntheticRetail
from nile.summaries.costs import ENGINE, MEMORY, CostTable

__all__ = ["plan_of", "rows", "run"]

_DENSE, _MIDDLE, _SPARSE = 0.067, 0.005, 0.0005
_TABLES = (ENGINE, MEMORY)
_GUIDES = ("directory", "countsketch")
_CAP = 4
_BACKLOG_LEAD = 0.02
_AGE_BAR = 0.6


def plan_of(given: Workload, fraction: float, costs: CostTable, *, seed: int = 0, **options: object) -> JoinPlan:
    """A plan over the summary that a join gets when none is described."""
    ranking = options.get("preference", "desc") != "asc"
    return JoinPlan(
        window=given.window,
        budget=Budget(fraction),
        costs=costs,
        spec=default_spec(given.window, ranking=ranking),
        seed=seed,
        **options,  # type: ignore[arg-type]
    )


def run(plan: JoinPlan, joined: Joinable) -> tuple[PromisingJoin, Outputs]:
    """A run to its end and all its outputs."""
    join = PromisingJoin(plan, joined.input(plan.costs, ranges=plan.output == "ranges"), ahead=True)
    parts = list(join.run())
    none = [Outputs(left=np.zeros(0, np.int64), right=np.zeros(0, np.int64), weight=np.zeros(0))]
    return join, Outputs(
        left=np.concatenate([part.left for part in parts or none]),
        right=np.concatenate([part.right for part in parts or none]),
        weight=np.concatenate([part.weight for part in parts or none]),
    )


def rows(seeds: Sequence[int], *, tuples: int = 4 * WINDOW_TUPLES, unbiased: int = 500) -> list[Measure]:
    """Every bar of joins, measured.  seeds: five or more; tuples: of each stream; some minutes."""
    return [
        *_volume(seeds, tuples),
        *_faithful(seeds, tuples),
        *_unbiased(unbiased),
        *_outliers(seeds, tuples),
        *_fresh(seeds, tuples),
        *_retail(seeds),
    ]


def _found(given: list[Workload], fraction: float, costs: CostTable, **options: object) -> tuple[float, float]:
    """Mean share of the exact answer, and of the emission ceiling."""
    shares, ceilings = [], []
    for seed, one in enumerate(given):
        join, _ = run(plan_of(one, fraction, costs, seed=seed, **options), one.joined)
        figures = join.figures
        shares.append(figures.outputs / one.joined.pairs)
        ceilings.append(figures.outputs * costs.emit / figures.granted)
    return float(np.mean(shares)), float(np.mean(ceilings))


def _volume(seeds: Sequence[int], tuples: int) -> Iterator[Measure]:
    for selectivity, budgets in (
        (_DENSE, (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8)),
        (_MIDDLE, (0.02, 0.05, 0.1, 0.5)),
        (_SPARSE, (0.05, 0.5)),
    ):
        given = [workload(selectivity, seed, tuples=tuples) for seed in seeds]
        for costs in _TABLES:
            for fraction in budgets:
                drop, _ = _found(given, fraction, costs, method="hash-drop")
                backlog, _ = _found(given, fraction, costs, method="hash-backlog")
                for guide in _GUIDES:
                    found, ceiling = _found(given, fraction, costs, guide=guide)
                    yield from _volume_rows(
                        selectivity, fraction, costs, guide, found, ceiling, drop, backlog, len(given)
                    )


def _volume_rows(
    selectivity: float,
    fraction: float,
    costs: CostTable,
    guide: str,
    found: float,
    ceiling: float,
    drop: float,
    backlog: float,
    seeds: int,
) -> Iterator[Measure]:
    name = f"desc {selectivity:.2%}, budget {fraction:.0%}, {costs.name}, {guide}"
    about = f"{seeds} seeds; recall {found:.4f}; hash-drop {drop:.4f}, hash-backlog {backlog:.4f}"
    binds = costs is ENGINE
    if selectivity == _DENSE:
        if 0.1 <= fraction <= 0.5:
            bar = 0.9 if binds else None
            yield Measure(f"{name}: share of the emission ceiling", ceiling, bar=bar, about=about)
        ahead = found / drop
        bar = 1.0 if binds and guide == "directory" else None
        yield Measure(f"{name}: times hash-drop", ahead, bar=bar, about=about)
        ahead = found / backlog
        bar = 1.0 - _BACKLOG_LEAD if binds else None
        yield Measure(f"{name}: times hash-backlog", ahead, bar=bar, about=about)
    elif selectivity == _MIDDLE and fraction == 0.05:
        least = 0.03 if guide == "directory" else 0.003
        yield Measure(f"{name}: recall", found, bar=least if binds else None, about=about)
    else:
        yield Measure(f"{name}: recall", found, about=about)


def _faithful(seeds: Sequence[int], tuples: int) -> Iterator[Measure]:
    for selectivity, budgets in ((_DENSE, (0.05, 0.1, 0.5)), (_MIDDLE, (0.05, 0.1, 0.2, 0.5))):
        given = [workload(selectivity, seed, tuples=tuples) for seed in seeds]
        exact = [exact_pairs(one.joined) for one in given]
        for costs in _TABLES:
            for guide in _GUIDES:
                for fraction in budgets:
                    ratios = []
                    for seed, (one, truth) in enumerate(zip(given, exact, strict=True)):
                        plan = plan_of(one, fraction, costs, seed=seed, preference="weighted", guide=guide)
                        _, out = run(plan, one.joined)
                        told = score(
                            truth, Obtained(out.left, out.right, out.weight), window=one.window, outlier_cap=_CAP
                        )
                        ratios.append(
                            (
                                (told.hist_mse_key or 0.0) / (told.hist_mse_key_ideal or 1.0),
                                (told.hist_mse_age or 0.0) / (told.hist_mse_age_ideal or 1.0),
                            )
                        )
                    binds = costs is ENGINE and guide == "directory" and fraction >= (0.05, 0.2)[selectivity == _MIDDLE]
                    for what, ratio in zip(("key", "age"), np.mean(ratios, axis=0), strict=True):
                        yield Measure(
                            f"weighted {selectivity:.2%}, budget {fraction:.0%}, {costs.name}, {guide}: "
                            f"Hist-MSE of {what} over the ideal",
                            float(ratio),
                            bar=1.0 if binds else None,
                            most=True,
                            about=f"{len(given)} seeds; 1 is a uniform sample of the same size",
                        )


def _unbiased(seeds: int) -> Iterator[Measure]:
    """Budgets that need admission: the mean Horvitz-Thompson total over many salts against the number of pairs."""
    one = workload(_MIDDLE, 0, tuples=2 * WINDOW_TUPLES)
    for guide in _GUIDES:
        for fraction in (0.02, 0.05):
            totals = np.array(
                [
                    run(plan_of(one, fraction, ENGINE, seed=seed, preference="weighted", guide=guide), one.joined)[
                        1
                    ].weight.sum()
                    for seed in range(seeds)
                ]
            )
            error = totals.std(ddof=1) / np.sqrt(seeds)
            off = abs(totals.mean() - one.joined.pairs) / error
            yield Measure(
                f"weighted {_MIDDLE:.2%}, budget {fraction:.0%}, engine, {guide}: standard errors off the exact total",
                float(off),
                bar=3.0,
                most=True,
                about=f"{seeds} seeds; mean {totals.mean():,.0f} of {one.joined.pairs:,}",
            )


def _outliers(seeds: Sequence[int], tuples: int) -> Iterator[Measure]:
    for selectivity, fraction in ((_DENSE, 0.02), (_MIDDLE, 0.2)):
        given = [workload(selectivity, seed, tuples=tuples) for seed in seeds]
        for costs in _TABLES:
            for guide in _GUIDES:
                precise, complete = [], []
                for seed, one in enumerate(given):
                    joined = one.joined
                    _, out = run(plan_of(one, fraction, costs, seed=seed, preference="asc", guide=guide), joined)
                    rare = joined.standing[completing(joined, out.left, out.right)] <= _CAP
                    precise.append(rare.mean() if rare.size else 1.0)
                    complete.append(rare.sum() / joined.matches[joined.standing <= _CAP].sum())
                binds = guide == "directory"
                for what, share in (("precision", np.mean(precise)), ("recall", np.mean(complete))):
                    yield Measure(
                        f"asc {selectivity:.2%}, budget {fraction:.0%}, {costs.name}, {guide}: {what}",
                        float(share),
                        bar=0.99 if binds else None,
                        about=f"{len(given)} seeds; outliers by the cap of {_CAP}",
                    )


def _fresh(seeds: Sequence[int], tuples: int) -> Iterator[Measure]:
    given = [workload(_DENSE, seed, tuples=tuples) for seed in seeds]
    for costs in _TABLES:
        for guide in _GUIDES:
            ages = []
            for fade in (1.0, 0.8):
                means = []
                for seed, one in enumerate(given):
                    _, out = run(plan_of(one, 0.1, costs, seed=seed, guide=guide, fade=Fade(fade)), one.joined)
                    means.append(np.abs(one.joined.left.ts[out.left] - one.joined.right.ts[out.right]).mean())
                ages.append(float(np.mean(means)))
            ratio = ages[1] / ages[0]
            bar = _AGE_BAR if costs is ENGINE else None
            yield Measure(
                f"desc {_DENSE:.2%}, budget 10%, {costs.name}, {guide}: mean age under fade 0.8 over that under fade 1",
                ratio,
                bar=bar,
                most=True,
                about=f"{len(given)} seeds; granularity a quarter of the window",
            )


def _retail(seeds: Sequence[int]) -> Iterator[Measure]:
    file = retail_file()
    table = pq.read_table(file) if file else SyntheticRetail(seed=1, tuples=120_000, vstores=10).table()
    data = "retail" if file else "synthetic retail"
    db = nile.connect()
    for name, where in (
        ("low", "vstore <= 4"),
        ("high", "vstore >= 5"),
        ("one", "vstore = 0"),
        ("two", "vstore = 1"),
    ):
        db.register(name, table, time="ts", where=where)
    played = db.join("low", "high", on="item_id", window=1_200).replayed("exponential", mean=0.1).prefer("desc")
    kept = db.join("one", "two", on="item_id", window="6 hours").prefer("desc")
    for query, title, bar in (
        (played, f"{data}, vstore 0-4 x 5-9, exponential replay of mean 0.1 s, 1,200 s, budget 50%", 0.4),
        (kept, f"{data}, vstore 0 x 1, 6 h, budget 50%", None),
    ):
        found = {
            name: float(np.mean([_recall(query.using(method=method, seed=seed), guide) for seed in seeds]))
            for name, method, guide in (
                ("nile, directory", "nile", "directory"),
                ("nile, countsketch", "nile", "countsketch"),
                ("hash-drop", "hash-drop", "auto"),
                ("hash-backlog", "hash-backlog", "auto"),
                ("shed-uniform", "shed-uniform", "auto"),
            )
        }
        best = max(value for name, value in found.items() if not name.startswith("nile"))
        for name, value in found.items():
            asked = (bar if bar is not None else best) if name == "nile, directory" else None
            about = f"{len(seeds)} seeds, engine table; the best opponent finds {best:.3f}"
            yield Measure(f"{title}, {name}: recall", value, bar=asked, about=about)


def _recall(query: JoinQuery, guide: str) -> float:
    answer: JoinAnswer = query.guided_by(guide).run(0.5)
    for _ in answer.outputs():
        pass
    return float(answer.figures.outputs / answer.joined.pairs)
