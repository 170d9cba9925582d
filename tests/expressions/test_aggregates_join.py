"""Aggregates over joins: exact ones against DuckDB, weighted ones unbiased, picked ones not dressed up."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from judge import fresh_duckdb

import nile
from nile.aggregates.asked import Aggregate
from nile.operators.aggregate.input import Measure
from nile.operators.aggregate.weighted import WeightedOutputs, weighted_numbers
from nile.preferences.key_sample import KeySample

STANDARD_ERRORS = 3.5
LEFT_UNDONE = 0.002  # share of the pairs whose entries still wait when the input ends
SEEDS = 30


def streams(seed: int, n: int = 1_500) -> tuple[pa.Table, pa.Table]:
    chance = np.random.Generator(np.random.PCG64(seed))
    made = []
    for _ in range(2):
        key = (40 * chance.random(n) ** 3).astype(np.int64)
        made.append(
            pa.table(
                {
                    "t": np.sort(chance.integers(0, 3_000, n)),
                    "k": key,
                    "price": np.round(chance.random(n) * 10.0, 2),
                    "shop": pa.array([f"s{x}" for x in chance.integers(0, 3, n)]),
                }
            )
        )
    return made[0], made[1]


LEFT, RIGHT = streams(1)
ASKED = {
    "n": "count(*)",
    "value": "sum(a.price * b.price)",
    "mean": "avg(a.price - b.price)",
    "dev": "stddev_samp(a.price)",
    "most": "max(b.price)",
    "least": "min(a.price + b.price)",
    "middle": "median(a.price)",
    "keys": "count(distinct a.k)",
}


def query() -> nile.JoinQuery:
    db = nile.connect().register("a", LEFT, time="t").register("b", RIGHT, time="t")
    return db.join("a", "b", on="k", window="40 s").using(granularity="20 s")


def truth(by: str | None = None) -> list[dict[str, object]]:
    connection = fresh_duckdb()
    connection.register("left_input", LEFT)
    connection.register("right_input", RIGHT)
    chosen = ", ".join(f"{text} AS {name}" for name, text in ASKED.items())
    group = f'{by} AS "{by}", ' if by else ""
    made = connection.execute(
        f"SELECT {group}{chosen} FROM left_input a JOIN right_input b ON a.k = b.k AND abs(a.t - b.t) <= 40"
        + (f" GROUP BY {by} ORDER BY {by}" if by else "")
    )
    names = [column[0] for column in made.description]
    return [dict(zip(names, row, strict=True)) for row in made.fetchall()]


def test_over_an_exact_join_every_aggregate_is_duckdbs() -> None:
    answer = query().aggregate(ASKED).run()
    for name, value in truth()[0].items():
        assert answer.value(name) == pytest.approx(value, rel=1e-9)
        assert answer.estimate(name).certified
    ranged = query().returning("ranges").aggregate(ASKED).run()
    assert ranged.to_arrow().equals(answer.to_arrow()) or ranged.value("n") == answer.value("n")


def test_groups_may_come_from_either_side() -> None:
    answer = query().aggregate(ASKED, by="b.shop").run()
    told = sorted(answer.to_arrow().to_pylist(), key=lambda row: str(row["b.shop"]))
    for mine, theirs in zip(told, truth("b.shop"), strict=True):
        for name, value in theirs.items():
            assert mine[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value)


def test_weighted_joins_estimate_without_bias_and_claim_nothing_certain() -> None:
    wide = query().within("400 s").guided_by("directory").using(granularity="100 s")
    right = wide.aggregate(ASKED).run()
    told: dict[str, list[float]] = {"n": [], "value": []}
    for seed in range(SEEDS):
        answer = wide.prefer("weighted").using(seed=seed).aggregate(ASKED).run(0.6)
        for name, values in told.items():
            estimate = answer.estimate(name)
            assert not estimate.certified
            values.append(float(estimate.value))
        assert answer.estimate("most").low <= right.value("most") <= answer.estimate("most").high
    for name, values in told.items():
        error = np.std(values, ddof=1) / math.sqrt(SEEDS)
        assert abs(np.mean(values) - right.value(name)) <= STANDARD_ERRORS * error + LEFT_UNDONE * right.value(name)


def test_totals_of_keys_and_outputs_drawn_with_known_chances_are_unbiased_and_covered() -> None:
    """Keys drawn with chance 1/2, then outputs with 1/3: the weights are 6, and whole keys come or go."""
    chance = np.random.Generator(np.random.PCG64(5))
    key = chance.integers(0, 60, 3_000)
    amount = chance.random(3_000) * 10.0
    measure = Measure("x", np.ones(3_000, bool), amount)
    told, covered = [], 0
    for _ in range(400):
        kept = (chance.random(60) < 0.5)[key] & (chance.random(3_000) < 1.0 / 3.0)
        n = int(kept.sum())
        sample = KeySample(np.full(n, 6.0), np.full(n, 0.5), key[kept])
        outputs = WeightedOutputs(sample, np.zeros(n, np.int64), 1, random=True)
        sampled = Measure("x", measure.valid[kept], measure.values[kept])
        estimate = weighted_numbers(Aggregate("v", "sum(x)", "sum", None), sampled, outputs, 0.95, None)[0].estimate
        assert estimate is not None
        told.append(float(estimate.value))
        covered += bool(estimate.covers(amount.sum()))
    assert abs(np.mean(told) - amount.sum()) <= STANDARD_ERRORS * np.std(told, ddof=1) / 20.0
    assert covered >= 0.92 * 400


@pytest.mark.parametrize("preference", ["desc", "asc"])
def test_outputs_picked_by_preference_are_no_sample(preference: str) -> None:
    answer = query().prefer(preference).aggregate(ASKED).run(0.2)
    assert any("not a random sample" in note for note in answer.notes)
    for name in ("value", "mean", "dev", "middle"):
        estimate = answer.estimate(name)
        assert (estimate.certified, estimate.confidence) == (False, 0.0)
    count = answer.estimate("n")
    assert count.certified
    assert count.low == count.value
    assert math.isinf(count.high)
    assert count.covers(float(truth()[0]["n"]))  # type: ignore[arg-type]


def test_an_answer_aggregates_what_it_carried_and_names_what_it_did_not() -> None:
    plain = query().run()
    assert plain.aggregate({"n": "count(*)"}).value("n") == truth()[0]["n"]
    with pytest.raises(nile.UnknownColumn, match="price"):
        plain.aggregate({"v": "sum(a.price)"})
    carried = query().run(carry=(("price",), ()))
    assert carried.aggregate({"v": "sum(a.price)"}).value("v") > 0.0


@pytest.mark.parametrize(
    ("aggregates", "by", "error", "message"),
    [
        ({"v": "sum(price)"}, None, nile.ExpressionError, "a.price or b.price"),
        ({"v": "sum(c.price)"}, None, nile.UnknownStream, "no stream 'c'"),
        ({"v": "sum(a.prize)"}, None, nile.UnknownColumn, "price"),
        ({"v": "sum(a.shop)"}, None, nile.KeyTypeError, "needs a number"),
        ({"v": "count(*)"}, "a.shob", nile.UnknownColumn, "shop"),
        ({"v": "count(*)"}, ["a.k", "a.k"], nile.ConfigError, "different name"),
    ],
)
def test_names_of_joined_columns_are_checked(
    aggregates: dict[str, str], by: str | list[str] | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        query().aggregate(aggregates, by=by)


def test_a_stream_joined_with_itself_is_left_and_right() -> None:
    db = nile.connect().register("a", LEFT, time="t")
    answer = db.join("a", "a", on="k", window="1 s").aggregate({"n": "sum(left.price - right.price)"}).run()
    assert answer.value("n") == pytest.approx(0.0, abs=1e-6)


def test_a_join_without_a_pair_is_empty() -> None:
    db = nile.connect().register("a", LEFT, time="t").register("c", pa.table({"t": [0], "k": [-5]}), time="t")
    answer = db.join("a", "c", on="k", window="1 s").aggregate({"n": "count(*)", "v": "avg(a.price)"}).run()
    assert (answer.value("n"), answer.value("v")) == (0, None)
