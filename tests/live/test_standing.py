"""Standing joins that share streams and a budget: exact at full budget, honest below it, by weight, kept once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinning import rounds, thinned
from workload_join import SECOND, brute_force, random_stream

import nile
from nile.operators.drive.keeper import KeptStream
from nile.operators.inputs.joining import Joinable, Loaded
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.errors import BudgetError, ConfigError, KeyTypeError, UnknownStream
from nile.summaries.hashing import KeyTable

Pairs = set[tuple[int, int]]
WEIGHT_TOLERANCE = 0.1
"""Of a ratio of spends: what each query holds back (64 tuples' worth) and the last dispatch."""
IDLE_TOLERANCE = 0.1
"""Of the outputs of the others: that they find other pairs beside a query that finds none, at other prices."""


def database(streams: dict[str, Loaded]) -> nile.Database:
    db = nile.connect()
    for name, it in streams.items():
        db.register(name, pa.table({"t": it.ts.astype(float) / SECOND, "k": it.key, "other": it.key}), time="t")
    return db


def streams_of(seed: int, names: str = "ABC", *, n: int = 1_000, keys: int = 40, gap: int = 2) -> dict[str, Loaded]:
    rng = np.random.default_rng(seed)
    return {name: random_stream(name, rng, n, keys, gap=gap) for name in names}


def pairs_of(answer: nile.JoinAnswer) -> list[tuple[int, int]]:
    found = answer.pairs()
    return list(zip(found.left.tolist(), found.right.tolist(), strict=True))


def exact(streams: dict[str, Loaded], query: nile.JoinQuery) -> Pairs:
    return brute_force(Joinable(*(streams[name] for name in query.bound.streams), query.bound.window))


def three(db: nile.Database, preference: str = "desc", guide: str = "directory") -> list[nile.JoinQuery]:
    """A x B, A x C and B x C, each with its own window."""
    return [
        db.join(left, right, on="k", window=f"{seconds} s").prefer(preference).guided_by(guide)
        for left, right, seconds in (("A", "B", 120), ("A", "C", 40), ("B", "C", 70))
    ]


def assert_honest(streams: dict[str, Loaded], queries: Sequence[nile.JoinQuery], answer: nile.StandingAnswer) -> None:
    """Subsets without repeats, paid for, every tuple accounted for: of each stream, and of each query."""
    for query, one in zip(queries, answer, strict=True):
        found = pairs_of(one)
        assert len(found) == len(set(found))
        assert set(found) <= exact(streams, query)
        figures = one.figures
        if query.bound.preference != "asc":  # which looks at a tuple before it turns it away
            assert figures.admitted + figures.nulls + sum(figures.shed) == figures.arrivals
        assert figures.arrivals == sum(len(streams[name]) for name in query.bound.streams)
        assert figures.spent <= figures.granted * (1 + 1e-9)
        for accounting in one.accounting.values():
            accounting.check()
    for name, accounting in answer.accounting.items():
        accounting.check()
        assert accounting.tuples_in == len(streams[name])
    run = answer._engine.run
    assert run.spent == pytest.approx(run.upkeep + sum(one.figures.spent for one in answer))


# --- what everyone is promised -----------------------------------------------------------------------------


@pytest.mark.parametrize("guide", ["directory", "countsketch"])
def test_at_full_budget_every_query_has_its_exact_answer(guide: str) -> None:
    streams = streams_of(1)
    db = database(streams)
    queries = [
        *three(db, "desc", guide),
        *three(db, "weighted", guide),
        *[query.returning("ranges") for query in three(db, "desc", guide)],
        db.join("A", "B", on="k").prefer("weighted"),
    ]
    answer = db.standing(queries, weights=range(1, len(queries) + 1)).run(1.0)
    for query, one in zip(queries, answer, strict=True):
        found = pairs_of(one)
        assert len(found) == len(set(found))
        assert set(found) == exact(streams, query)
        assert one.estimate.certified
        assert np.all(one.pairs().weight == 1.0)
    assert_honest(streams, queries, answer)
    assert answer.budget.spent <= 1.0
    assert all(accounting.shed == 0 for accounting in answer.accounting.values())


def test_at_full_budget_asc_finds_the_outliers_that_it_finds_alone() -> None:
    streams = streams_of(2, keys=400)
    db = database(streams)
    queries = three(db, "asc")
    for query, one in zip(queries, db.standing(queries).run(), strict=True):
        alone = pairs_of(query.run())
        assert alone
        assert sorted(pairs_of(one)) == sorted(alone)


@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.4])
def test_under_a_budget_asc_finds_only_outliers(fraction: float) -> None:
    """What a stream sheds for all queries makes no key look rare."""
    db = database(streams_of(11, n=2_000, keys=100))
    queries = three(db, "asc")
    answer = db.standing(queries, weights=[3, 1, 1]).run(fraction)
    assert sum(accounting.shed for accounting in answer.accounting.values()) > 0
    for query, one in zip(queries, answer, strict=True):
        assert set(pairs_of(one)) <= set(pairs_of(query.run()))


def kept_by(admissions: list[float], streams: dict[str, Loaded]) -> list[KeptStream]:
    """Each stream kept to its end, a half under each of two admissions, as far as credit for 1,500 tuples lasts."""
    table = KeyTable()
    encoded = [table.encode(it.key) for it in streams.values()]
    shed_at = np.full(table.known, -1, np.int64)
    prices = np.full(10, 100.0)
    kept = []
    for it, keys in zip(streams.values(), encoded, strict=True):
        spec = SummarySpec(granularity=SECOND)
        stream = KeptStream(it.ts, keys, table.known, spec, sketched=False, prices=prices, salt=5, shed_at=shed_at)
        credit = 150_000.0
        for number, admission in enumerate(admissions):
            credit -= stream.keep((number + 1) * len(it) // len(admissions), admission, credit)
        assert stream.spent == 150_000.0 - credit == 100.0 * stream.kept
        kept.append(stream)
    return kept


def test_a_stream_lets_keys_in_or_not_alike_in_both_streams_and_knows_when_it_shed_one_last() -> None:
    streams = streams_of(12, "AB", n=1_000, keys=60)
    wide, narrow = kept_by([0.7], streams), kept_by([0.3], streams)
    for kept in (wide, narrow):
        keyed = [stream.keys.codes >= 0 for stream in kept]
        let_in = [set(s.keys.codes[k & (s.admissions > 0.0)].tolist()) for s, k in zip(kept, keyed, strict=True)]
        shed = [set(s.keys.codes[k & (s.admissions == 0.0)].tolist()) for s, k in zip(kept, keyed, strict=True)]
        assert let_in[0] | let_in[1]
        assert not (let_in[0] | let_in[1]) & (shed[0] | shed[1])
        assert [s.kept + s.nulls + s.shed for s in kept] == [1_000, 1_000]
        last = {
            code: max(int(s.ts[(s.keys.codes == code)][-1]) for s in kept if (s.keys.codes == code).any())
            for code in shed[0] | shed[1]
        }
        assert all(kept[0].shed_at[code] == ts for code, ts in last.items())
    assert np.all((narrow[0].admissions > 0.0) <= (wide[0].admissions > 0.0))


def test_without_credit_a_stream_sheds_what_its_admission_would_let_in() -> None:
    streams = streams_of(13, "A", n=2_000, keys=60)
    stream = kept_by([1.0], streams)[0]
    assert stream.kept == 1_500
    assert stream.shed == 500 - stream.nulls


@pytest.mark.parametrize("guide", ["directory", "countsketch"])
@pytest.mark.parametrize("preference", ["desc", "weighted", "asc"])
@pytest.mark.parametrize("fraction", [0.05, 0.4])
def test_under_a_budget_answers_are_subsets_without_repeats_and_never_overspent(
    guide: str, preference: str, fraction: float
) -> None:
    streams = streams_of(3)
    db = database(streams)
    queries = [*three(db, preference, guide), *three(db, "desc", guide)[:1]]
    answer = db.standing(queries, weights=[1, 2, 3, 4]).run(fraction)
    run = answer._engine.run
    while answer._engine._go_on():
        assert run.spent <= run.granted * (1 + 1e-9)
    assert run.granted == pytest.approx(fraction * run.exact_cost)
    assert_honest(streams, queries, answer)
    assert sum(one.figures.outputs for one in answer) > 0


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32), n=st.integers(0, 40), keys=st.integers(1, 9), gap=st.integers(0, 3),
    asked=st.lists(
        st.tuples(
            st.sampled_from(["AB", "AC", "BC"]), st.integers(0, 40) | st.none(),
            st.sampled_from(["desc", "weighted", "asc"]), st.sampled_from(["directory", "countsketch"]),
            st.integers(1, 5),
        ),
        min_size=1, max_size=4,
    ),
    fraction=st.sampled_from([0.2, 0.7, 1.0]),
)  # fmt: skip
def test_any_few_queries_over_any_small_streams_are_honest(
    seed: int, n: int, keys: int, gap: int, asked: Any, fraction: float
) -> None:
    streams = streams_of(seed, n=n, keys=keys, gap=gap)
    db = database(streams)
    queries = [
        db.join(pair[0], pair[1], on="k", window=None if window is None else f"{window + 1} s")
        .prefer(preference)
        .guided_by(guide)
        for pair, window, preference, guide, _ in asked
    ]
    used = {name: streams[name] for query in queries for name in query.bound.streams}
    answer = db.standing(queries, weights=[weight for *_, weight in asked]).run(fraction)
    assert_honest(used, queries, answer)
    if fraction == 1.0:
        for query, one in zip(queries, answer, strict=True):
            if query.bound.preference != "asc":
                assert set(pairs_of(one)) == exact(streams, query)


# --- the shared budget -------------------------------------------------------------------------------------


@pytest.mark.parametrize("preference", ["desc", "weighted"])
def test_weights_of_3_to_1_spend_3_to_1_while_both_have_work(preference: str) -> None:
    streams = streams_of(5, "AB", n=3_000, keys=400)
    db = database(streams)
    query = db.join("A", "B", on="k", window="200 s").prefer(preference).guided_by("directory")
    answer = db.standing([query, query], weights=[3, 1]).run(0.4)
    spent = [one.figures.spent for one in answer]
    assert spent[0] / spent[1] == pytest.approx(3.0, rel=WEIGHT_TOLERANCE)


def with_nothing_to_find(seed: int) -> tuple[nile.Database, nile.JoinQuery, nile.JoinQuery]:
    """A query with many matches, and one over a stream of other keys."""
    streams = streams_of(seed, "AB", n=3_000)
    streams["D"] = Loaded("D", streams["B"].ts, pa.chunked_array([pa.array([-1] * 3_000)]), streams["B"].accounting)
    db = database(streams)
    busy, idle = (db.join("A", r, on="k", window="200 s").prefer("desc").guided_by("directory") for r in "BD")
    return db, busy, idle


def test_what_one_query_cannot_use_goes_to_the_others_in_proportion() -> None:
    """Nine tenths of the weight belong to a query without a match; two others, 2 to 1, get what it leaves."""
    db, busy, idle = with_nothing_to_find(6)
    answer = db.standing([busy, busy, idle], weights=[2, 1, 27]).run(0.3)
    run = answer._engine.run
    answer._engine.finish()
    assert run.spent >= 0.97 * run.granted
    first, second, third = (one.figures.spent for one in answer)
    assert first / second == pytest.approx(2.0, rel=WEIGHT_TOLERANCE)
    assert third <= 0.3 * (first + second)


@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.8])
def test_an_idle_query_costs_at_most_a_visit_an_arrival_and_the_others_lose_no_more_than_that(fraction: float) -> None:
    """Beside it others have what it and its own stream cost less; they make the rest into outputs as before."""
    db, busy, idle = with_nothing_to_find(7)
    alone = db.standing([busy]).run(fraction)
    beside = db.standing([busy, idle]).run(fraction)
    idly, before, now = beside[1].figures, alone[0].figures, beside[0].figures
    costs = idle.plan(fraction).costs
    assert idly.outputs == 0
    assert idly.spent <= costs.lookup * idly.arrivals
    loss = idly.spent + (beside.upkeep - alone.upkeep)
    assert loss <= costs.lookup * idly.arrivals + costs.insert * 3_000 * 1.5
    assert now.outputs >= (1.0 - IDLE_TOLERANCE) * before.outputs - loss / costs.emit


def test_a_shared_stream_is_inserted_kept_and_charged_once() -> None:
    streams = streams_of(8)
    db = database(streams)
    queries = [*three(db), *three(db)]
    answer = db.standing(queries).run(1.0)
    keyed = sum(len(it) - it.key.null_count for it in streams.values())
    assert answer.upkeep == queries[0].plan().costs.insert * keyed
    assert answer[0].memory.tuples == answer[3].memory.tuples
    stores = {id(store) for join in answer._engine.run.joins for store in join.stores}
    assert len(stores) == 3


@pytest.mark.parametrize("budget", thinned([0.05, 0.02, 0.3], 3))
@pytest.mark.parametrize("output", ["pairs", "ranges"])
@pytest.mark.parametrize("guide", ["directory", "countsketch"])
@pytest.mark.parametrize("seeds", rounds(60))
def test_the_mean_total_of_weighted_queries_is_the_truth(guide: str, output: str, budget: float, seeds: int) -> None:
    """Beside one whose leftovers depend on what it finds, with a smaller weight."""
    streams = streams_of(9, "ABC", n=1_500, keys=30, gap=1)
    db = database(streams)
    queries = [query.returning(output) for query in three(db, "weighted", guide)[:2]]
    truth = np.array([len(exact(streams, query)) for query in queries])
    totals = np.zeros((seeds, 2))
    for seed, row in enumerate(totals):
        asked = [query.using(seed=seed) for query in [*queries, *three(db, "desc", guide)[2:]]]
        answer = db.standing(asked, weights=[1, 3, 2]).run(budget)
        row[:] = [one.pairs().weight.sum() for one in answer[:2]] / truth
        assert answer.budget.spent <= budget
    error = totals.std(axis=0, ddof=1) / math.sqrt(totals.shape[0])
    assert (np.abs(totals.mean(axis=0) - 1.0) <= 3.5 * error + 2e-3).all()


# --- method="paper" ----------------------------------------------------------------------------------------


def test_the_papers_method_takes_turns_over_the_same_two_streams() -> None:
    streams = streams_of(10, "AB")
    db = database(streams)
    queries = [
        db.join("A", "B", on="k", window=window).prefer(preference, fade=0.8).using(method="paper")
        for window, preference in (("100 s", "desc"), ("30 s", "asc"), ("60 s", "weighted"))
    ]
    poor = db.standing(queries).run(1.0)
    rich = db.standing(queries).run(200.0)
    for query, few, all_of_them in zip(queries, poor, rich, strict=True):
        assert 0 < few.figures.outputs < all_of_them.figures.outputs
        assert set(pairs_of(few)) < set(pairs_of(all_of_them)) == exact(streams, query)
        assert few.budget.fraction == pytest.approx(few.figures.spent / few.figures.exact_cost)
    assert poor.budget.spent <= 1.0
    for name, accounting in poor.accounting.items():
        accounting.check()
        assert accounting.tuples_in == len(streams[name])


# --- what cannot be shared ---------------------------------------------------------------------------------


def assert_refused(
    match: str, make: Callable[[nile.Database], object], *, error: type[Exception] = ConfigError
) -> None:
    with pytest.raises(error, match=match):
        make(database(streams_of(0, n=20)))


def test_two_key_columns_of_one_stream_are_named() -> None:
    assert_refused(
        "one key column of stream 'A', whose tuples are kept once; got 'k' and 'other'",
        lambda db: db.standing([db.join("A", "B", on="k"), db.join("A", "C", on=("other", "k"))]).run(),
    )


def test_streams_in_two_orders_are_named() -> None:
    assert_refused(
        "needed streams in one order, left before right; got '[AB]' before '[AB]' before '[AB]'",
        lambda db: db.standing([db.join("A", "B", on="k"), db.join("B", "A", on="k")]).run(),
    )


def test_a_stream_with_itself_and_several_streams_by_the_papers_method_are_refused() -> None:
    own = "two different streams without a condition with method 'paper'"
    for streams, where in (("AB", "A.other > 0"), ("AA", None)):
        assert_refused(
            own, lambda db, s=streams, w=where: db.standing([db.join(*s, on="k", where=w).using(method="paper")])
        )


@pytest.mark.parametrize("weights", [[1], [1, 0], [1, -1], [1, float("nan")], [1, True], [1, "2"]])
def test_weights_are_one_positive_number_a_query(weights: Any) -> None:
    assert_refused(
        "weights: needed 2 finite numbers above 0",
        lambda db: db.standing([db.join("A", "B", on="k"), db.join("A", "C", on="k")], weights=weights),
    )


def test_queries_must_agree_on_what_they_share() -> None:
    def both(db: nile.Database, **options: Any) -> list[nile.JoinQuery]:
        query = db.join("A", "B", on="k", window="20 s").prefer("desc")
        return [query, query.using(**options)]

    assert_refused("needed at least one; got none", lambda db: db.standing([]))
    assert_refused("needed the seed of query 0, 0; got 1", lambda db: db.standing(both(db, seed=1)).run(0.5))
    assert_refused("needed the same summary options", lambda db: db.standing(both(db, rate=8)).run(0.5))
    assert_refused(
        "'nile' for all, or 'paper' for all; got nile, paper", lambda db: db.standing(both(db, method="paper"))
    )
    assert_refused(
        "needed method 'nile' for all, or 'paper' for all; got hash-drop",
        lambda db: db.standing(both(db, method="hash-drop")[1:]),
    )
    assert_refused(
        "needed a preference in each under a budget",
        lambda db: db.standing([*both(db), db.join("A", "C", on="k")]).run(0.5),
    )
    assert_refused(
        "needed output 'pairs' with preference 'weighted' and forgetting",
        lambda db: db.standing([q.returning("ranges").using(forgetting=True) for q in three(db, "weighted")]).run(0.5),
    )
    assert_refused(
        "a budget that is a fraction",
        lambda db: db.standing(both(db)).run(nile.Budget(outputs=10)),
    )
    assert_refused("budget: needed a fraction above 0", lambda db: db.standing(both(db)).run(0.0), error=BudgetError)
    assert_refused(
        "the same two streams in all with method 'paper'",
        lambda db: db.standing([db.join("A", r, on="k").using(method="paper") for r in "BC"]),
    )
    assert_refused(
        "needed no weights with method 'paper'",
        lambda db: db.standing([db.join("A", "B", on="k").using(method="paper")], weights=[1]),
    )
    assert_refused("'Z' is not registered", lambda db: db.standing([db.join("A", "Z", on="k")]), error=UnknownStream)


def test_keys_that_never_compare_are_refused_and_unrelated_streams_may_differ() -> None:
    streams = streams_of(0, "AB", n=20)
    db = database(streams)
    text = pa.table({"t": [0.0, 1.0], "k": ["a", "b"]})
    db.register("S", text, time="t").register("T", text, time="t")
    apart = [db.join("A", "B", on="k", window="5 s"), db.join("S", "T", on="k", window="5 s")]
    answer = db.standing(apart).run()
    assert set(pairs_of(answer[1])) == {(0, 0), (1, 1)}
    assert set(pairs_of(answer[0])) == exact(streams, apart[0])
    with pytest.raises(KeyTypeError):
        db.standing([*apart, db.join("B", "S", on="k")]).run()
