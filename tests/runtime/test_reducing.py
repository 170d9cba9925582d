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
    ],
)
def test_what_could_tell_more_is_refused(db: nile.Database, text: str, what: str, how: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=what):
        db.reduced(text, **how)


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
