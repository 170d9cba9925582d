"""Statements WITH PREFERENCE, BUDGET and ERROR: the operators they reach, and what comes back."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest

import nile
from nile.execution.approximate.topped import within

HOUR = 3600.0


def sales(seed: int, n: int = 3_000) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "ts": np.sort(rng.uniform(0, 20 * HOUR, n)),
        "seq": np.arange(n),
        "item": [f"i{k}" for k in np.minimum(rng.zipf(1.4, n), 400)],
        "price": np.round(rng.uniform(0, 10, n), 2),
        "quantity": rng.integers(1, 9, n),
    }


@pytest.fixture(scope="module")
def db() -> nile.Database:
    made = nile.connect()
    for number in (1, 2, 3):
        made.register(f"s{number}", sales(number), time="ts")
    made.register("items", {"item": ["i1"], "kind": ["tea"]})
    return made


JOIN = "SELECT a.seq AS a, b.seq AS b, a.item, a.price FROM s1 a, s2 b WHERE a.item = b.item WINDOW '1 hour' "


def pairs(table: Any) -> Counter[tuple[int, int]]:
    return Counter(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True))


@pytest.mark.parametrize("kind", ["desc", "weighted"])
def test_the_whole_budget_gives_the_exact_join(db: nile.Database, kind: str) -> None:
    exact = db.sql(JOIN).to_arrow()
    found = db.sql(JOIN + f"WITH PREFERENCE {kind} a.item").to_arrow()
    assert pairs(found) == pairs(exact)
    assert set(found.column_names) == {"a", "b", "item", "price"} | ({"_weight"} if kind == "weighted" else set())


@pytest.mark.parametrize("kind", ["desc", "weighted", "asc"])
@pytest.mark.parametrize("method", ["nile", "paper"])
def test_a_budget_buys_pairs_of_the_exact_join_with_their_columns(db: nile.Database, kind: str, method: str) -> None:
    exact = {(row["a"], row["b"]): row for row in db.sql(JOIN).to_arrow().to_pylist()}
    result = db.sql(JOIN + f"WITH PREFERENCE {kind} a.item BUDGET 20 %", method=method)
    rows = result.to_arrow().to_pylist()
    assert rows
    for row in rows:
        row.pop("_weight", None)
        assert exact[row["a"], row["b"]] == row
    assert 0.0 < result.budget.spent <= 0.21
    for told in result.accounting.values():
        told.check()
    assert set(result.accounting) == {"a", "b"}
    assert result.answer.plan.method == method
    assert result.memory > 0
    assert "spent" in (result.worth() or "")


def test_sql_and_python_reach_the_same_answer(db: nile.Database) -> None:
    by_python = db.join("s1", "s2", on="item", window="1 hour").prefer("desc", fade=0.8).run(0.1)
    by_sql = db.sql(JOIN + "WITH PREFERENCE desc a.item FADE FACTOR 0.8 BUDGET 0.1")
    found = by_python.pairs()
    assert pairs(by_sql.to_arrow()) == Counter(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert by_sql.budget == by_python.budget


def test_a_budget_may_be_given_beside_the_statement(db: nile.Database) -> None:
    text = JOIN + "WITH PREFERENCE desc a.item"
    inside = db.sql(text + " BUDGET 0.1").to_arrow()
    assert db.sql(text, budget=0.1).to_arrow() == inside
    assert db.sql(text, budget=nile.Budget(fraction=0.1)).to_arrow() == inside
    assert db.sql(text, budget=nile.Budget(outputs=50)).to_arrow().num_rows <= 50


def test_weights_tell_how_many_there_are(db: nile.Database) -> None:
    exact = len(db.sql(JOIN))
    result = db.sql(JOIN + "WITH PREFERENCE weighted a.item BUDGET 30 %")
    total = sum(result.to_arrow()["_weight"].to_pylist())
    assert total == pytest.approx(result.estimate.value)
    assert abs(total - exact) < 0.3 * exact


def test_conditions_on_one_stream_and_on_the_pair_hold(db: nile.Database) -> None:
    text = (
        "SELECT a.seq AS a, b.seq AS b FROM s1 a, s2 b WHERE a.item = b.item AND a.price > 5 AND "
        "a.quantity < b.quantity WINDOW '1 hour' "
    )
    exact = pairs(db.sql(text).to_arrow())
    assert pairs(db.sql(text + "WITH PREFERENCE desc a.item").to_arrow()) == exact
    some = pairs(db.sql(text + "WITH PREFERENCE desc a.item BUDGET 0.3").to_arrow())
    assert some
    assert some <= exact


def test_three_streams_and_a_stream_with_itself(db: nile.Database) -> None:
    three = (
        "SELECT a.seq AS a, b.seq AS b, c.seq AS c FROM s1 a, s2 b, s3 c WHERE a.item = b.item AND b.item = c.item AND "
        "a.price > 8 WINDOW '10 min' "
    )
    exact = Counter(db.sql(three).fetchall())
    assert exact
    assert Counter(db.sql(three + "WITH PREFERENCE desc a.item").fetchall()) == exact
    itself = "SELECT a.seq AS a, b.seq AS b FROM s1 a, s1 b WHERE a.item = b.item WINDOW '10 min' "
    found = db.sql(itself + "WITH PREFERENCE weighted a.item BUDGET 0.5")
    assert pairs(found.to_arrow()) <= pairs(db.sql(itself).to_arrow())


def test_ranges_are_expanded_to_rows(db: nile.Database) -> None:
    text = JOIN + "WITH PREFERENCE desc a.item BUDGET 5 %"
    ranges = db.sql(text, output="ranges")
    assert pairs(ranges.to_arrow()) <= pairs(db.sql(JOIN).to_arrow())
    assert len(ranges) > 0


def test_order_and_limit_are_of_what_was_found(db: nile.Database) -> None:
    result = db.sql(JOIN.replace("WINDOW", "ORDER BY a.price DESC LIMIT 5 WINDOW") + "WITH PREFERENCE desc a.item")
    prices = result.to_arrow()["price"].to_pylist()
    assert prices == sorted(prices, reverse=True)
    assert len(prices) == 5


def test_a_selection_finds_the_best_regions_first(db: nile.Database) -> None:
    text = "SELECT seq, price FROM s1 WHERE price BETWEEN 2 AND 4 "
    exact = set(db.sql(text).fetchall())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nile.CostWarning)
        assert set(db.sql(text + "WITH PREFERENCE desc price").fetchall()) == exact
        some = db.sql(text + "WITH PREFERENCE desc price BUDGET 0.1")
        assert set(some.fetchall()) <= exact
    some.accounting["s1"].check()


def test_aggregates_to_an_error_come_with_an_interval(db: nile.Database) -> None:
    (exact,) = db.sql("SELECT sum(price * quantity) AS revenue FROM s1").fetchall()[0]
    result = db.sql("SELECT sum(price * quantity) AS revenue FROM s1 ERROR 0.1 CONFIDENCE 0.95 ELSE EXACT")
    (value,) = result.fetchall()[0]
    assert abs(value - exact) < 0.3 * exact
    estimate = result.estimate
    assert estimate.low <= value <= estimate.high
    assert result.answer.met == [True]


def test_aggregates_of_groups_and_having(db: nile.Database) -> None:
    text = "SELECT item, count(*) AS n, avg(price) AS p FROM s1 WHERE quantity > 2 GROUP BY item HAVING count(*) > 40 "
    exact = {row[0]: row for row in db.sql(text).fetchall()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nile.CostWarning)
        found = db.sql(text, budget=1.0).fetchall()
    assert {row[0]: row[1] for row in found} == {item: row[1] for item, row in exact.items()}
    for item, _, mean in found:
        assert mean == pytest.approx(exact[item][2])


def test_aggregates_over_a_preferred_join(db: nile.Database) -> None:
    text = "SELECT count(*) AS n, sum(a.price * b.quantity) AS v FROM s1 a, s2 b WHERE a.item = b.item WINDOW '1 hour' "
    exact = db.sql(text, emit="snapshot")
    assert len(exact) == 1
    whole = db.sql(JOIN.replace("a.item, a.price", "a.price, b.quantity")).to_arrow()
    result = db.sql(text + "WITH PREFERENCE weighted a.item BUDGET 0.4")
    ((n, _),) = result.fetchall()
    assert abs(n - whole.num_rows) < 0.3 * whole.num_rows
    value = result.answer.estimate("sum(a.price * b.quantity)")
    assert value.low < value.high


def test_a_summary_reaches_the_query() -> None:
    made = nile.connect()
    for number in (1, 2):
        made.register(f"s{number}", sales(number), time="ts")
        made.sql(
            f"CREATE SUMMARY m{number} ON s{number} (item) WITH GRANULARITY '10 min' AND COLLAPSE (2, 5) "
            "USING rows = 5, columns = 64, forgetting = true"
        )
    result = made.sql(JOIN + "WITH PREFERENCE desc a.item BUDGET 0.2", guide="countsketch")
    spec = result.answer.plan.spec
    assert (spec.granularity, spec.rate, spec.depth) == (600 * 10**9, 2, 5)
    assert (spec.rows, spec.columns, spec.forgetting) == (5, 64, True)
    assert "summary m1" in result.explain()
    made.sql("CREATE OR REPLACE SUMMARY m2 ON s2 (item) WITH GRANULARITY '20 min' AND COLLAPSE (2, 5)")
    unlike = made.sql(JOIN + "WITH PREFERENCE desc a.item BUDGET 0.2", guide="countsketch")
    assert unlike.to_arrow().num_rows > 0
    assert unlike.answer.plan.spec.depth == 2  # neither's: a grid with the settings that a join has by itself


def test_explain_tells_of_regions_cost_and_memory(db: nile.Database) -> None:
    text = JOIN + "WITH PREFERENCE desc a.item FADE FACTOR 0.8 BUDGET 0.1"
    told = db.sql("EXPLAIN " + text, guide="countsketch").message or ""
    assert "preference desc by count(a.item), fade 0.8" in told
    assert "guided by countsketch" in told
    assert "actual" not in told
    analyzed = db.sql("EXPLAIN ANALYZE " + text, guide="countsketch").message or ""
    for word in ("actual: arrivals 6,000", "regions", "pruned", "cost: spent", "memory", "coverage"):
        assert word in analyzed


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        (JOIN + "WITH PREFERENCE desc a.price BUDGET 0.1", {}, nile.NileError, "join key|key"),
        (JOIN + "WITH PREFERENCE desc a.item", {"emit": "append"}, nile.ConfigError, "needed an exact query"),
        (JOIN + "WITH PREFERENCE desc a.item", {"rose": 1}, nile.ConfigError, "query option"),
        (JOIN, {"budget": 0.1}, nile.BudgetError, "needed WITH PREFERENCE"),
        ("SELECT DISTINCT seq FROM s1 WITH PREFERENCE desc price", {}, nile.NotYet, "DISTINCT"),
        (
            "SELECT a.seq FROM s1 a RIGHT JOIN items i ON a.item = i.item WITH PREFERENCE desc a.item WINDOW 60",
            {}, nile.NotYet, "outer, semi or anti join",
        ),
        (
            "SELECT a.seq FROM s1 a, s2 b WHERE a.price < b.price WITH PREFERENCE desc a.item WINDOW 60",
            {}, nile.NotYet, "one key that is equal in all streams; got no equal columns; leave out",
        ),
        (
            "SELECT a.seq FROM s1 a, s2 b WHERE a.price = b.quantity WITH PREFERENCE desc a.price WINDOW 60",
            {}, nile.NotYet, "got a.price = b.quantity, of double and int64, which compare converted; register one",
        ),
        (
            "SELECT a.seq FROM s1 a [RANGE 5], s2 b WHERE a.item = b.item WITH PREFERENCE desc a.item WINDOW 60",
            {}, nile.NotYet, "one window of time",
        ),
        ("SELECT avg(price) AS p FROM s1 WITH PREFERENCE desc price BUDGET 0.1", {}, nile.NotYet, "random sample"),
    ],
)  # fmt: skip
def test_what_approximate_operators_cannot_do_is_said(
    db: nile.Database, text: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        db.sql(text, **options).to_arrow()


@pytest.mark.parametrize("kind", ["desc", "asc", "weighted"])
@pytest.mark.parametrize("asked", ["BUDGET 5 %", "BUDGET 7 OUTPUTS", "BUDGET 100 %", "LIMIT 9 BUDGET 5 %", "LIMIT 9"])
def test_the_estimate_of_a_selection_is_how_many_tuples_satisfy_it(db: nile.Database, kind: str, asked: str) -> None:
    text = "SELECT price FROM s1 WHERE price < 3 AND quantity > 2"
    exact = len(db.sql(text))
    told = db.sql(f"{text} WITH PREFERENCE {kind} price {asked}").estimate
    assert (told.low, told.high) == (told.value, told.value) == (min(exact, 9 if "LIMIT" in asked else exact),) * 2
    assert exact > 100


@pytest.mark.parametrize("budget", ["BUDGET 2 %", "BUDGET 30 %", "BUDGET 100 %", "LIMIT 5 BUDGET 2 %", ""])
@pytest.mark.parametrize("having", ["", "HAVING count(*) > 3", "HAVING count(*) > 2000"])
@pytest.mark.parametrize(
    ("of", "preference"),
    [
        ("s1 a", ""),
        ("s1 a, s2 b WHERE a.item = b.item", ""),
        ("s1 a, s2 b WHERE a.item = b.item", "WITH PREFERENCE desc a.item"),
        ("s1 a, s2 b WHERE a.item = b.item", "WITH PREFERENCE asc a.item"),
    ],
)
def test_groups_that_were_not_found_are_not_denied(
    db: nile.Database, of: str, preference: str, having: str, budget: str
) -> None:
    text = f"SELECT a.item, count(*) AS n FROM {of} GROUP BY a.item {having}"
    limit, share = ("LIMIT 5", budget.split("LIMIT 5 ")[1]) if "LIMIT" in budget else ("", budget)
    exact = len(db.sql(f"{text} {limit}"))
    result = db.sql(f"{text} {preference} {limit} {share}")
    told = result.estimate
    assert told.low <= exact <= told.high
    assert told.value == len(result)
    assert told.certified
    if budget == "BUDGET 2 %" and not having:
        assert len(result) < exact
    if budget in ("", "BUDGET 100 %") and "asc" not in preference:
        assert told.low == told.high == exact


@pytest.mark.parametrize("limit", ["BUDGET 1e-9 SECONDS", "BY DEADLINE '1 ns'"])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT price FROM s1 WHERE price < 3 WITH PREFERENCE {} price",
        "SELECT a.seq FROM s1 a, s2 b, s3 c WHERE a.item = b.item AND b.item = c.item WINDOW '1 hour' "
        "WITH PREFERENCE {} a.item",
        "SELECT a.seq FROM s1 a, s2 b WHERE a.item = b.item AND a.price < b.price WINDOW '1 hour' "
        "WITH PREFERENCE {} a.item",
    ],
)
@pytest.mark.parametrize("kind", ["desc", "weighted"])
def test_time_that_is_over_before_anything_began_says_what_would_do(
    db: nile.Database, text: str, limit: str, kind: str
) -> None:
    with pytest.raises(nile.NileError, match=r"budget: needed at least .* seconds to pass over .* and find"):
        db.sql(f"{text.format(kind)} {limit}").to_arrow()
    fair = db.sql(f"{text.format(kind)} BUDGET 60 SECONDS")
    assert not [warning for warning in fair.warnings if warning.startswith("budget: ")]
    assert len(fair) > 0


@pytest.mark.parametrize("budget", ["BUDGET 10 %", "ERROR 30 %", "BUDGET 100 %"])
def test_each_number_of_aggregates_has_its_interval_beside_the_row_it_is_shown_in(
    db: nile.Database, budget: str
) -> None:
    text = (
        "SELECT quantity, sum(price) AS revenue, count(*) AS n, 2 * avg(price) AS twice FROM s1 GROUP BY quantity "
        "HAVING count(*) > 350 ORDER BY revenue DESC LIMIT 4 OFFSET 1 "
    )
    result = db.sql(text + budget, costs="engine")
    rows = result.to_arrow()
    assert rows.num_rows > 1
    assert list(result.estimates) == ["revenue", "n"]
    for column, told in result.estimates.items():
        assert [each.value for each in told] == pytest.approx(rows[column].to_pylist(), abs=0.5)
        assert all(each.low <= each.value <= each.high for each in told)
        assert budget == "BUDGET 10 %" or all(each.low == each.high for each in told)
    told = [each.strip() for each in str(result.worth()).split(",")]
    shown = [each.partition(" within ") for each in told if " within " in each]
    if budget != "BUDGET 10 %":
        assert not shown
        return
    assert [name for name, _, _ in shown] == ["revenue", "n"]
    for name, _, off in shown:
        most = max(max(each.high - each.value, each.value - each.low) / each.value for each in result.estimates[name])
        assert float(off.removesuffix(" %")) == pytest.approx(100 * most, rel=0.05)


def test_numbers_over_a_join_have_intervals_and_rows_have_none(db: nile.Database) -> None:
    text = "SELECT count(*) AS n, sum(a.price) AS paid FROM s1 a, s2 b WHERE a.item = b.item WINDOW '1 hour' "
    exact = db.sql(text + "BUDGET 100 %", costs="engine")
    sampled = db.sql(text + "BUDGET 30 %", costs="engine")
    for column, (whole,) in exact.estimates.items():
        (told,) = sampled.estimates[column]
        assert whole.low == whole.value == whole.high
        assert told.low < told.value < told.high
        assert f"{column} within " in str(sampled.worth())
    assert db.sql(JOIN + "WITH PREFERENCE weighted a.item BUDGET 30 %").estimates == {}
    assert db.sql(text).estimates == {}


def test_a_number_that_is_null_or_unknown_is_said_to_be(db: nile.Database) -> None:
    nulls = db.sql("SELECT sum(price) AS s, count(*) AS n FROM s1 WHERE price < -1 BUDGET 10 %")
    assert nulls.fetchall() == [(None, 0)]
    assert np.isnan(nulls.estimates["s"][0].value)
    assert nulls.estimates["n"] == [nile.Estimate.exact(0.0)]


def test_how_far_off_a_column_may_be_is_said_of_the_number_that_is_least_certain() -> None:
    exact, wide, none = nile.Estimate.exact(3.0), nile.Estimate.between(10.0, 9.0, 12.0), nile.Estimate.between(0, 0, 5)
    unknown = nile.Estimate(math.nan, -math.inf, math.inf, 0.0, False)
    assert within([]) == within([exact]) == within([nile.Estimate.exact(math.nan)]) == ""
    assert within([exact, wide, nile.Estimate.between(100.0, 95.0, 101.0)]) == "within 20 %"
    assert within([wide, none, unknown]) == "within 20 % and within 5 of 0 and unknown in 1 of 3"
