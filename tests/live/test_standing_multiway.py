"""Standing joins of several streams, and beside them of two: exact at full budget, honest below it, by weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_standing import WEIGHT_TOLERANCE, database, pairs_of, streams_of
from thinning import rounds
from workload_join import SECOND
from workload_multiway import brute_force

import nile
from nile.operators.drive.standing import DISPATCH, StandingRun
from nile.operators.inputs.joining import Loaded
from nile.preferences.preference import PREFERENCES

Streams = dict[str, Loaded]


def several(
    db: nile.Database, preference: str = "desc", guide: str = "directory", output: str = "pairs"
) -> list[nile.JoinQuery]:
    """A x B, A x B x C, B x C x D, and A x C under a condition, each with its own window."""
    asked = [
        db.join("A", "B", on="k", window="60 s"),
        db.join("A", "B", "C", on="k", window="40 s"),
        db.join("D", "B", "C", on="k", window="30 s"),
        db.join("A", "C", on="k", window="50 s", where="A.n + C.n > 40"),
    ]
    made = [query.prefer(preference, outlier_cap=6).guided_by(guide) for query in asked]
    return [query.returning(output) if k in (1, 2) else query for k, query in enumerate(made)]


def opened(streams: Streams) -> nile.Database:
    """As `database`, with `n`: the ordinal modulo 41."""
    db = nile.connect()
    for name, it in streams.items():
        n = pa.array(np.arange(len(it)) % 41)
        db.register(name, pa.table({"t": it.ts.astype(float) / SECOND, "k": it.key, "n": n}), time="t")
    return db


def members_of(answer: Any) -> list[tuple[int, ...]]:
    if isinstance(answer, nile.JoinAnswer):
        return pairs_of(answer)
    found = answer.members()
    return list(
        zip(*(one.places(at).tolist() for one, at in zip(found.streams, found.ordinal, strict=True)), strict=True)
    )


def truth_of(streams: Streams, query: nile.JoinQuery) -> set[tuple[int, ...]]:
    found = brute_force(tuple(streams[name] for name in query.bound.streams), query.bound.window)
    if query.bound.condition is not None:
        return {(x, y) for x, y in found if x % 41 + y % 41 > 40}
    return found


def assert_honest(streams: Streams, queries: list[nile.JoinQuery], together: nile.StandingAnswer) -> None:
    for query, answer in zip(queries, together, strict=True):
        found = members_of(answer)
        assert len(found) == len(set(found))
        assert set(found) <= truth_of(streams, query)
        assert answer.figures.spent <= answer.figures.granted * (1 + 1e-9)
        for told in answer.accounting.values():
            told.check()
    for name, told in together.accounting.items():
        told.check()
        assert told.tuples_in == len(streams[name])
    run = together._engine.run
    assert run.spent == pytest.approx(run.upkeep + sum(answer.figures.spent for answer in together))
    assert run.spent <= run.granted * (1 + 1e-9)


@pytest.mark.parametrize("output", ["pairs", "ranges"])
@pytest.mark.parametrize("guide", ["countsketch", "directory"])
def test_at_full_budget_every_query_has_its_exact_answer(guide: str, output: str) -> None:
    streams = streams_of(3, "ABCD", n=500, keys=60)
    with opened(streams) as db:
        queries = several(db, "desc", guide, output)
        together = db.standing(queries, weights=[3, 1, 1, 2]).run(1.0)
        for query, answer in zip(queries, together, strict=True):
            assert set(members_of(answer)) == truth_of(streams, query)
        assert_honest(streams, queries, together)


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.integers(0, 500), min_size=4, max_size=4),
    keys=st.sampled_from((20, 60, 500)),
    budget=st.sampled_from((0.05, 0.2, 0.6, 1.0)),
    preference=st.sampled_from(PREFERENCES),
    guide=st.sampled_from(("countsketch", "directory")),
    output=st.sampled_from(("pairs", "ranges")),
    weights=st.lists(st.sampled_from((0.1, 1.0, 4.0)), min_size=4, max_size=4),
)
def test_whatever_the_streams_and_the_budget(
    seed: int, sizes: list[int], keys: int, budget: float, preference: str, guide: str, output: str,
    weights: list[float],
) -> None:  # fmt: skip
    whole = streams_of(seed, "ABCD", n=max(sizes), keys=keys)
    streams = {
        name: Loaded(name, it.ts[:n], it.key.slice(0, n), it.accounting, None, it.hasher)
        for n, (name, it) in zip(sizes, whole.items(), strict=True)
    }
    with opened(streams) as db:
        queries = several(db, preference, guide, output)
        assert_honest(streams, queries, db.standing(queries, weights=weights).run(budget))


@pytest.mark.parametrize("preference", PREFERENCES)
def test_at_no_dispatch_more_is_spent_than_granted_and_no_cut_changes_anything(preference: str) -> None:
    streams = streams_of(5, "ABCD", n=700, keys=80)
    told = []
    for step in (DISPATCH, 997, 10_000):
        with opened(streams) as db:
            together = db.standing(several(db, preference)).run(0.2)
            run = together._engine.run
            assert isinstance(run, StandingRun)
            found, end = [], 0
            while end < run.arrivals:
                end = min(end + step, run.arrivals)
                for parts in run.advance(end):
                    assert run.spent <= run.granted * (1 + 1e-9)
                    found.append([[row for part in mine for row in zip(*part.ordinals, strict=True)] for mine in parts])
            told.append((str(found), [join.figures for join in run.joins], run.spent))
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize("preference", ["desc", "weighted"])
def test_weights_of_3_to_1_spend_3_to_1_while_both_have_work(preference: str) -> None:
    streams = streams_of(7, "ABC", n=6_000, keys=300)
    with database(streams) as db:
        query = db.join("A", "B", "C", on="k", window="150 s").prefer(preference).guided_by("directory")
        together = db.standing([query, query], weights=[3, 1]).run(0.1)
        # Of few keys a sample may miss the heavy ones: then it has no use for all that it is granted.
        shares = [answer.figures.granted if preference == "weighted" else answer.figures.spent for answer in together]
        assert shares[0] / shares[1] == pytest.approx(3.0, rel=WEIGHT_TOLERANCE)


@pytest.mark.parametrize("budget", [0.05, 0.3])
@pytest.mark.parametrize("seeds", rounds(60))
def test_the_mean_total_of_weighted_queries_is_the_truth(budget: float, seeds: int) -> None:
    streams = streams_of(15, "ABC", n=1_000, keys=12, gap=1)
    with opened(streams) as db:
        three = db.join("A", "B", "C", on="k", window="60 s").prefer("weighted").guided_by("directory")
        two = db.join("A", "C", on="k", window="50 s", where="A.n + C.n > 40").prefer("weighted")
        busy = db.join("A", "B", on="k", window="60 s").prefer("desc")
        truth = np.array([len(truth_of(streams, query)) for query in (three, two)])
        totals = np.zeros((seeds, 2))
        for seed, row in enumerate(totals):
            together = db.standing([query.using(seed=seed) for query in (three, two, busy)]).run(budget)
            row[:] = [together[k].members().weight.sum() for k in (0, 1)] / truth
            assert together.budget.spent <= budget
    error = totals.std(axis=0, ddof=1) / np.sqrt(totals.shape[0])
    assert (np.abs(totals.mean(axis=0) - 1.0) <= 3.5 * error + 2e-3).all()


def test_what_one_cannot_use_goes_to_the_others() -> None:
    """Beside a join that finds nothing to do, a join of three spends almost what it would alone."""
    streams = streams_of(9, "ABC", n=3_000, keys=100)
    streams["D"] = streams_of(10, "D", n=30, keys=100)["D"]
    with database(streams) as db:
        busy = db.join("A", "B", "C", on="k", window="60 s").prefer("desc").guided_by("directory")
        idle = db.join("D", "D AS e", "D AS f", on="k", window="1 s").prefer("desc").guided_by("directory")
        together = db.standing([busy, idle]).run(0.2)
        assert together.budget.spent <= 0.2
        assert together[0].figures.spent >= 0.9 * 0.2 * together._engine.run.exact_cost


def test_each_stream_is_read_once_also_under_two_keys() -> None:
    rng = np.random.default_rng(1)
    tables = {
        name: pa.table({"t": np.arange(200.0), "k": rng.integers(0, 9, 200), "m": rng.integers(0, 9, 200)})
        for name in "ABC"
    }
    read: list[str] = []

    def once(name: str) -> pa.RecordBatchReader:
        read.append(name)
        return tables[name].to_reader()

    with nile.connect() as db:
        for name in tables:
            db.register(name, once(name), time="t")
        queries = [
            db.join("A", "B", on="k", window="9 s").prefer("desc"),
            db.join("A", "B", "C", on=("m", "m", "k"), window="9 s").prefer("desc"),
        ]
        near, three = db.standing(queries).run(1.0)
        rows = {name: table.to_pydict() for name, table in tables.items()}
        wanted = {
            (a, b, c)
            for a in range(200) for b in range(max(0, a - 9), min(200, a + 10))
            for c in range(max(0, a - 9, b - 9), min(200, a + 10, b + 10))
            if rows["A"]["m"][a] == rows["B"]["m"][b] == rows["C"]["k"][c]
        }  # fmt: skip
        assert set(members_of(three)) == wanted
        assert near.to_arrow().num_rows > 0
    assert read == ["A", "B", "C"]


def test_a_condition_of_one_stream_and_a_stream_at_two_places() -> None:
    streams = streams_of(13, "AB", n=400, keys=40)
    with opened(streams) as db:
        queries = [
            db.join("A", "A AS z", "B", on="k", window="30 s").prefer("desc"),
            db.join("A", "B", on="k", window="30 s", where="A.n > 20").prefer("desc"),
            db.join("A", "A", on="k", window="30 s").prefer("desc"),
            db.join("A", "B", on="k", window="30 s").prefer("desc"),
        ]
        together = db.standing(queries).run(1.0)
        twice = brute_force((streams["A"], streams["A"], streams["B"]), 30 * SECOND)
        assert set(members_of(together[0])) == twice
        pairs = {(x, y) for x, y in brute_force((streams["A"], streams["B"]), 30 * SECOND) if x % 41 > 20}
        assert set(members_of(together[1])) == pairs
        assert set(members_of(together[2])) == brute_force((streams["A"], streams["A"]), 30 * SECOND)
        assert together[1].excluded["left"] > 0
