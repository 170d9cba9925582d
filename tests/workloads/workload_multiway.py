"""Small joins of n streams for tests: streams, brute force, and what every plan promises whatever its budget."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from workload_join import SECOND, random_stream

from nile.operators.common.plan import JoinPlan
from nile.operators.inputs.joining import Loaded
from nile.operators.inputs.multiway import MultiwayJoinable
from nile.operators.multiway.multiway import Combinations, MultiwayJoin, buys_everything
from nile.preferences.budget import Budget
from nile.pyramid.grid.spec import SummarySpec

Found = list[tuple[int, ...]]
NAN = float("nan")


def joinable(seed: int, *, streams: int, n: int, keys: int, window: int | None, gap: int = 2) -> MultiwayJoinable:
    """Random streams with skewed keys, nulls and ties, ready to join."""
    rng = np.random.default_rng(seed)
    return MultiwayJoinable(tuple(random_stream(f"s{k}", rng, n, keys, gap=gap) for k in range(streams)), window, None)


class Conditioned(MultiwayJoinable):
    """Under the condition that the first two members' ordinals add up to an even number."""

    def input(self, *args: Any, **options: Any) -> Any:
        data = super().input(*args, **options)
        return replace(data, test=lambda members: data.ordinal[members[:, :2]].sum(axis=1) % 2 == 0)


def even(joined: MultiwayJoinable) -> MultiwayJoinable:
    return Conditioned(joined.streams, joined.window, None)


def brute_force(streams: tuple[Loaded, ...], window: int | None) -> set[tuple[int, ...]]:
    """Every combination with equal keys, every two within the window, by looking: NaN equals NaN, null nothing."""
    by_key: dict[Any, list[list[int]]] = {}
    for k, one in enumerate(streams):
        for i, key in enumerate(one.key.to_pylist()):
            if key is not None:
                name = "NaN" if key != key else key
                by_key.setdefault(name, [[] for _ in streams])[k].append(i)
    found: set[tuple[int, ...]] = set()
    times = [one.ts.tolist() for one in streams]

    def extend(picked: tuple[int, ...], left: list[list[int]]) -> None:
        """left: of each further stream, those near all that are picked."""
        at = len(picked)
        if at == len(streams):
            found.add(picked)
            return
        for i in left[0]:
            ts, further = times[at][i], left[1:]
            if window is not None:
                further = [
                    [j for j in some if abs(times[at + k][j] - ts) <= window] for k, some in enumerate(further, 1)
                ]
            extend((*picked, i), further)

    for members in by_key.values():
        extend((), members)
    return found


def plan_of(window: int | None, fraction: float, **options: Any) -> JoinPlan:
    """A plan over small sketches, so that zones turn and estimates err."""
    summary = {"buckets": 4, "columns": 8, "max_zones": 4, "rate": 2, **options.pop("summary", {})}
    granularity = 40 * SECOND if window is None else max(1, window // 4)
    spec = SummarySpec(granularity=granularity, **summary)
    return JoinPlan(window=window, budget=Budget(fraction), spec=spec, **options)


def operator(plan: JoinPlan, joined: MultiwayJoinable, *, batch_rows: int = 65_536) -> MultiwayJoin:
    """The operator, before it runs."""
    given = joined.input(plan.costs, ranges=plan.output == "ranges", whole=buys_everything(plan))
    return MultiwayJoin(plan, given, batch_rows=batch_rows)


def run(plan: JoinPlan, joined: MultiwayJoinable, *, batch_rows: int = 65_536) -> tuple[Found, MultiwayJoin]:
    """The combinations, as ordinals, in the order they were found, range records expanded; and the operator."""
    join = operator(plan, joined, batch_rows=batch_rows)
    found: Found = []
    for part in list(join.run()):
        members = join.expand(part).members
        assert members is not None
        found += map(tuple, joined.ordinal[members].tolist())
    return found, join


def records(plan: JoinPlan, joined: MultiwayJoinable, *, batch_rows: int) -> list[tuple[Any, ...]]:
    """The outputs as they are, not expanded, in order."""
    join = operator(plan, joined, batch_rows=batch_rows)
    return [row for part in join.run() for row in rows_of(part)]


def rows_of(part: Combinations) -> list[tuple[Any, ...]]:
    """A batch's outputs as plain tuples."""
    columns = [part.weight, part.members, part.probing, part.low, part.high]
    return list(zip(*[map(str, column.tolist()) for column in columns if column is not None], strict=True))


def assert_honest(plan: JoinPlan, found: Found, join: MultiwayJoin, truth: set[tuple[int, ...]]) -> None:
    """Nothing twice, nothing false, nothing unpaid, every tuple accounted for."""
    figures = join.figures
    assert len(found) == len(set(found))
    assert set(found) <= truth
    assert figures.spent <= figures.granted * (1 + 1e-9)
    assert math.isclose(figures.spent, figures.spent_insert + figures.spent_hit, rel_tol=1e-9)
    assert figures.arrivals == figures.nulls + figures.admitted + sum(figures.shed) or plan.preference == "asc"
