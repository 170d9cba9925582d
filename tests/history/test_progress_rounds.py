"""Progress of joins of several streams, under windows, and of aggregates over joins: by rounds, exact at the end."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.summaries.errors import ConfigError, NotYet

THREE = "SELECT a.k, b.v, c.v AS w FROM s1 AS a, s2 AS b, s3 AS c WHERE a.k = b.k AND b.k = c.k"
TWO = "SELECT a.k, a.v, b.v AS w FROM s1 AS a, s2 AS b WHERE a.k = b.k"
ROWS = {
    "three": THREE,
    "graph": f"{THREE} WINDOW (a, b) = 40 AND (b, c) = 20",
    "path": f"{THREE} DWINDOW (a, b) = 40 AND (b, c) = 40",
    "window": f"{TWO} AND a.v < b.v WINDOW 30",
}
NUMBERS = {
    "count": "SELECT count(*) AS n, sum(b.v) AS total FROM s1 AS a, s2 AS b WHERE a.k = b.k",
    "by key": "SELECT a.k, count(*) AS n FROM s1 a, s2 b WHERE a.k = b.k GROUP BY a.k HAVING count(*) > 3 ORDER BY a.k",
    "three": f"SELECT avg(a.v) AS middle FROM {THREE.split(' FROM ')[1]}",
}


def database(n: int = 250, seed: int = 0, *, live: bool = True) -> nile.Database:
    draw = np.random.default_rng(seed)
    db = nile.connect()
    for name in ("s1", "s2", "s3"):
        key = np.floor(25 * draw.random(n) ** 2).astype(np.int64)
        table = pa.table({"ts": np.sort(draw.integers(0, 500, n)) * 1.0, "k": key, "v": draw.integers(0, 90, n) / 8})
        if live:
            db.stream(name, table.schema, time="ts")
            db.push(name, table)
        else:
            db.register(name, table, time="ts")
    if live:
        db.advance(600.0)
    return db


def told(table: pa.Table) -> Counter[Any]:
    kept = table.select([name for name in table.column_names if name != "_weight"])
    return Counter(tuple(row.values()) for row in kept.to_pylist())


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("preference", ["", " WITH PREFERENCE desc", " WITH PREFERENCE weighted"])
@pytest.mark.parametrize("name", ROWS)
def test_rows_are_true_and_all_there_at_the_end(name: str, preference: str, live: bool) -> None:
    db = database(live=live)
    exact = told(db.sql(ROWS[name]).to_arrow())
    partials = list(db.sql(ROWS[name] + preference).progress(every=0))
    found = [told(partial.to_arrow()) for partial in partials]
    assert len(found) > 2
    assert found[-1] == exact
    assert all(each <= exact for each in found)
    assert found[0] < exact
    if "weighted" not in preference:  # what was told stays
        assert found[0]
        assert all(before <= after for before, after in pairwise(found))
        assert told(pa.Table.from_batches([batch for each in partials for batch in each.rows])) == exact
    covered = [partial.coverage for partial in partials]
    assert covered == sorted(covered)
    assert (covered[-1], partials[-1].done, partials[-1].estimate.value) == (1.0, True, exact.total())
    assert all(partial.estimate.low <= exact.total() <= partial.estimate.high for partial in partials if not preference)


def test_outliers_of_three_streams_are_those_of_the_whole_answer() -> None:
    db = database()
    text = f"{THREE} WITH PREFERENCE asc"
    partials = list(db.sql(text, outlier_cap=9).progress(every=0))
    assert told(partials[-1].to_arrow()) == told(db.sql(f"{text} BUDGET 1", outlier_cap=9).to_arrow())
    assert len(partials[-1])


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_settle_on_the_exact_ones(name: str) -> None:
    db = database()
    exact = db.sql(NUMBERS[name]).to_arrow()
    partials = list(db.sql(NUMBERS[name]).progress(every=0))
    assert len(partials) > 2
    last = partials[-1].to_arrow()
    assert all(last[name].to_pylist() == pytest.approx(exact[name].to_pylist()) for name in exact.column_names)
    for partial in partials:
        for column, estimates in partial.estimates.items():
            assert [each.value for each in estimates] == pytest.approx(partial.to_arrow()[column].to_pylist(), abs=1)
    assert all(each.low == each.high for own in partials[-1].estimates.values() for each in own)


def test_a_random_sample_weighs_what_it_stands_for() -> None:
    db = database(400)
    exact = db.sql(THREE).to_arrow().num_rows
    sums = []
    for seed in range(40):
        growing = iter(db.sql(f"{THREE} WITH PREFERENCE weighted", seed=seed).progress(every=0))
        sums.append(sum(next(growing).to_arrow()["_weight"].to_pylist()))
    error = np.std(sums, ddof=1) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - exact) < 3 * error


def test_a_limit_ends_it_and_explain_tells_the_rounds() -> None:
    db = database()
    growing = db.sql(f"{ROWS['graph']} WITH PREFERENCE desc LIMIT 7").progress(every=0)
    (last,) = [partial for partial in growing if partial.done]
    assert len(last) == 7
    assert told(last.to_arrow()) <= told(db.sql(ROWS["graph"]).to_arrow())
    assert "by rounds of 0.0156, 0.0625, 0.25, 1 of the exact work" in growing.explain()


def test_what_no_round_can_tell_is_refused() -> None:
    db = database(10)
    with pytest.raises(NotYet, match="aggregates of a random sample"):
        db.sql(f"{NUMBERS['count']} WITH PREFERENCE desc").progress()
    with pytest.raises(ConfigError, match="needed rows in any order"):
        db.sql(f"{THREE} WITH PREFERENCE desc ORDER BY k").progress()
    with pytest.raises(NotYet, match="got a WINDOW, whose rows are the latest alone"):
        db.sql("SELECT k FROM s1 WINDOW 9").progress()


@pytest.mark.parametrize(
    "preference", ["", " WITH PREFERENCE desc", " WITH PREFERENCE asc", " WITH PREFERENCE weighted"]
)
@pytest.mark.parametrize("empty", ["s1", "s2"])
@pytest.mark.parametrize("name", ["three", "window"])
def test_a_stream_without_a_tuple_finds_no_row(name: str, empty: str, preference: str) -> None:
    with nile.connect() as db:
        for stream in ("s1", "s2", "s3"):
            table = database(live=False).sql(f"SELECT ts, k, v FROM {stream}").to_arrow()
            db.register(stream, table.slice(0, 0) if stream == empty else table, time="ts")
        *_, last = db.sql(ROWS[name] + preference).progress(every=0)
        assert last.to_arrow().num_rows == 0
        assert last.estimate.value == 0
