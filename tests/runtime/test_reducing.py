"""Static approximation: queries rewritten to take less, and refused where less input could make more output."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.summaries.errors import ConfigError


@pytest.fixture
def db() -> nile.Database:
    made = nile.connect()
    for name in "ab":
        made.stream(name, [("t", pa.float64()), ("k", pa.int64()), ("v", pa.float64())], time="t")
    return made


@pytest.mark.parametrize(
    ("text", "how", "made"),
    [
        ("SELECT k FROM a WHERE v > 3", {"window": 10}, "SELECT a.k AS k FROM a WHERE a.v > 3.0 WINDOW '10 s'"),
        ("SELECT k FROM a WHERE v > 3", {"sample": 0.1}, "SELECT a.k AS k FROM a SAMPLE (10) WHERE a.v > 3.0"),
        ("SELECT k FROM a SAMPLE (50)", {"sample": 0.1}, "SELECT a.k AS k FROM a SAMPLE (10)"),
        (
            "SELECT k FROM a SAMPLE (5) WINDOW 20",
            {"sample": 0.1, "window": 10},
            "SELECT a.k AS k FROM a SAMPLE (5) WINDOW '10 s'",
        ),
        (
            "SELECT a.k FROM a, b WHERE a.k = b.k WINDOW 60",
            {"window": 10},
            "SELECT a.k AS k FROM a, b WHERE a.k = b.k WINDOW '10 s'",
        ),
        (
            "SELECT a.k FROM a [RANGE 60 SECONDS], b [RANGE 5 SECONDS] WHERE a.k = b.k",
            {"window": 10},
            "SELECT a.k AS k FROM a [RANGE '10 s'], b [RANGE '5 s'] WHERE a.k = b.k",
        ),
        (
            "SELECT k FROM a [RANGE 60 SECONDS] EXCEPT ALL SELECT k FROM b [RANGE 5 SECONDS]",
            {"window": 10},
            "(SELECT a.k AS k FROM a [RANGE '10 s']) EXCEPT ALL (SELECT b.k AS k FROM b [RANGE '5 s'])",
        ),
    ],
)
def test_a_reduced_query_can_be_read(db: nile.Database, text: str, how: dict[str, float], made: str) -> None:
    assert db.reduced(text, **how) == made
    assert db.sql("EXPLAIN " + made).fetchall()
    if "window" in how:
        with pytest.raises(ConfigError, match="takes no more than that"):
            db.reduced(made, window="1 h")


@pytest.mark.parametrize("how", [{"window": 10}, {"sample": 0.5}])
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("SELECT DISTINCT k FROM a WINDOW 60", "DISTINCT"),
        ("SELECT k FROM a UNION SELECT k FROM b WINDOW 60", "UNION without ALL"),
        ("SELECT k FROM a EXCEPT ALL SELECT k FROM b WINDOW 60", "the right side of EXCEPT"),
        ("SELECT k FROM a EXCEPT SELECT k FROM b WINDOW 60", "EXCEPT"),
        ("SELECT k FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k) WINDOW 60", "NOT EXISTS"),
        ("SELECT a.k FROM a LEFT JOIN b ON a.k = b.k WINDOW 60", "an outer join"),
        ("SELECT k FROM a ORDER BY v LIMIT 3 WINDOW 60", "LIMIT"),
        ("SELECT k FROM a GROUP BY k HAVING count(*) < 3 WINDOW 60", "HAVING"),
        ("SELECT k FROM a GROUP BY k HAVING max(v) > 3 AND NOT count(*) > 9 WINDOW 60", "HAVING"),
        ("SELECT k FROM a GROUP BY k HAVING sum(v) > 3 WINDOW 60", "HAVING"),
        ("SELECT k FROM (SELECT k, count(*) + 1 AS n FROM a GROUP BY k) AS g WHERE n > 3 WINDOW 60", "HAVING"),
        ("SELECT max(n) AS m FROM (SELECT count(*) AS n FROM a GROUP BY k) AS g HAVING max(n) > 3 WINDOW 60", "HAVING"),
        ("SELECT k FROM a QUALIFY row_number() OVER (ORDER BY v) < 3 WINDOW 60", "OVER"),
        ("SELECT k FROM a WHERE v > (SELECT avg(v) FROM b) WINDOW 60", "a subquery that is compared"),
        ("SELECT k FROM a WHERE v > (SELECT max(v) FROM b) WINDOW 60", "a subquery that is compared"),
        ("SELECT b.k FROM (SELECT count(*) AS n FROM a GROUP BY k) AS g, b WHERE b.k = g.n WINDOW 60", "compared"),
        ("SELECT n, count(*) AS m FROM (SELECT count(*) AS n FROM a GROUP BY k) AS g GROUP BY n WINDOW 60", "make"),
        (
            "SELECT count(*) AS n FROM a GROUP BY k EXCEPT ALL SELECT k FROM b [RANGE 5 SECONDS] WINDOW 60",
            "(rows make|right side)",
        ),
    ],
)
def test_what_could_tell_more_is_refused(db: nile.Database, text: str, what: str, how: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=what):
        db.reduced(text, **how)


LESS = [
    "SELECT k, count(*) AS n FROM a GROUP BY k HAVING count(*) > 3 AND (k > 1 OR 2 <= count(v)) WINDOW 60",
    "SELECT k FROM (SELECT k, min(v) AS low FROM a GROUP BY k) AS g WHERE low < 3 WINDOW 60",
    "SELECT k FROM a WHERE v < (SELECT max(v) FROM b) WINDOW 60",
    "SELECT a.k FROM a, (SELECT k, max(v) AS top FROM b GROUP BY k) AS g WHERE a.k = g.k AND g.top >= a.v WINDOW 60",
]


@pytest.mark.parametrize("text", LESS)
def test_conditions_that_a_subset_cannot_satisfy_alone_may_be_reduced(db: nile.Database, text: str) -> None:
    """At every instant the groups and rows are among those of the whole query."""
    random = np.random.default_rng(5)
    whole, less = (db.subscribe(each, emit="snapshot") for each in (text, db.reduced(text, window=7)))
    fewer = 0
    for at in range(100):
        for name in "ab":
            db.push(name, {"t": [at + 0.5], "k": random.integers(0, 5, 1), "v": random.integers(0, 6, 1) * 1.0})
        db.advance(at + 0.5)
        there, here = (
            Counter(row["k"] for batch in each.poll() for row in batch.to_pylist()) for each in (whole, less)
        )
        assert here <= there
        fewer += here != there
    assert fewer > 20


def test_samples_leave_greatest_and_least_values_and_scale_counts(db: nile.Database) -> None:
    assert "SAMPLE (50)" in db.reduced("SELECT k FROM a GROUP BY k HAVING max(v) > 3 WINDOW 60", sample=0.5)
    with pytest.raises(ConfigError, match="HAVING"):
        db.reduced("SELECT k FROM a GROUP BY k HAVING count(*) > 3 WINDOW 60", sample=0.5)


def test_what_is_compared_may_stay_whole_while_another_stream_is_reduced(db: nile.Database) -> None:
    text = "SELECT a.k FROM a [RANGE 60 SECONDS] WHERE a.v > (SELECT avg(v) FROM b [RANGE 5 SECONDS])"
    assert "a [RANGE '10 s']" in db.reduced(text, window=10)


@pytest.mark.parametrize("how", [{}, {"sample": 0}, {"sample": 1.5}])
def test_there_has_to_be_something_to_reduce(db: nile.Database, how: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="reduced"):
        db.reduced("SELECT k FROM a", **how)


def test_shrinking_the_window_of_distinct_does_tell_more_and_that_of_a_join_less(db: nile.Database) -> None:
    """Why the one is refused and the other is not."""
    random = np.random.default_rng(3)
    texts = {
        "distinct": ["SELECT DISTINCT k FROM a WINDOW 60", "SELECT DISTINCT k FROM a WINDOW 2"],
        "join": ["SELECT a.k FROM a, b WHERE a.k = b.k WINDOW 60"],
    }
    texts["join"].append(db.reduced(texts["join"][0], window=2))
    asked = {name: [db.subscribe(each, emit="append") for each in both] for name, both in texts.items()}
    for at in range(40):
        for name in "ab":
            db.push(name, {"t": [at + 0.1, at + 0.9], "k": random.integers(0, 9, 2), "v": [0.0, 0.0]})
    db.advance(1_000.0)
    told = {
        name: [Counter(row["k"] for batch in each for row in batch.to_pylist()) for each in both]
        for name, both in asked.items()
    }
    assert told["distinct"][1].total() > told["distinct"][0].total()
    assert told["join"][1] < told["join"][0]


def test_a_sample_scales_counts_up_to_the_whole(db: nile.Database) -> None:
    made = db.reduced("SELECT count(*) AS n FROM a", sample=0.25)
    counts = db.subscribe(made, emit="snapshot")
    db.push("a", {"t": np.arange(8_000) / 10, "k": np.zeros(8_000, int), "v": np.zeros(8_000)})
    db.advance(10_000.0)
    (row,) = [row for batch in counts.poll() for row in batch.to_pylist()]
    assert abs(row["n"] - 8_000) < 5 * (8_000 * 3) ** 0.5  # five standard deviations of n / share
