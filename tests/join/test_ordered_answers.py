"""A preference without a budget orders the whole answer by it; LIMIT then takes the first of that order."""

from collections import Counter, defaultdict
from itertools import product

import numpy as np
import pytest

import nile

WINDOW = 2_000
TUPLES = 120


def _stream(seed):
    random = np.random.default_rng(seed)
    return {
        "ts": np.sort(random.integers(0, 8_000, TUPLES)),
        "k": np.minimum(random.zipf(1.5, TUPLES), 60),
        "v": random.integers(0, 100, TUPLES),
        "row": np.arange(TUPLES),
    }


STREAMS = {name: _stream(seed) for seed, name in enumerate("abc")}


@pytest.fixture(scope="module")
def db():
    db = nile.connect()
    for name, columns in STREAMS.items():
        db.register(name, columns, time="ts")
    return db


def _completed(names, condition):
    """By brute force, of each arrival in total order: (the combinations it completes, tuples of its key standing)."""
    ordered = sorted((int(STREAMS[x]["ts"][i]), p, i) for p, x in enumerate(names) for i in range(TUPLES))
    told = []
    for n, (ts, place, row) in enumerate(ordered):
        held = defaultdict(list)
        for at, p, i in ordered[: n + 1]:
            if ts - at <= WINDOW and STREAMS[names[p]]["k"][i] == STREAMS[names[place]]["k"][row]:
                held[p].append(i)
        standing = sum(map(len, held.values()))
        held[place] = [row]
        told.append(({c for c in product(*(held[p] for p in range(len(names)))) if condition(c)}, standing))
    return told


def _rising(names):
    def rises(rows):
        return STREAMS[names[0]]["v"][rows[0]] < STREAMS[names[-1]]["v"][rows[-1]]

    return f" AND {names[0]}.v < {names[-1]}.v", rises


@pytest.mark.parametrize("preference", ["desc", "asc"])
@pytest.mark.parametrize("names", ["ab", "abc"])
@pytest.mark.parametrize("conditional", [False, True])
def test_outputs_come_by_the_tuple_that_completes_them(db, names, conditional, preference):
    text, condition = _rising(names) if conditional else ("", lambda _: True)
    cap = 2 * len(names)
    told = [each for each in _completed(names, condition) if each[0] and (preference == "desc" or each[1] <= cap)]
    told.sort(key=lambda each: -len(each[0]) if preference == "desc" else each[1])  # stable: of equals the earlier one
    equal = " AND ".join(f"a.k = {name}.k" for name in names[1:])
    columns = ", ".join(f"{name}.row AS {name}_row" for name in names)
    sql = (
        f"SELECT {columns} FROM {', '.join(names)} WHERE {equal}{text} WINDOW {WINDOW} WITH PREFERENCE {preference} a.k"
    )
    whole = sum(len(each[0]) for each in told)
    assert whole > 1
    for first in (None, 1, whole // 2, whole + 5):
        result = db.sql(sql if first is None else f"{sql} LIMIT {first}", outlier_cap=cap)
        rows, at = [tuple(row) for row in result.fetchall()], 0
        assert len(rows) == len(set(rows)) == (whole if first is None else min(first, whole))
        for combinations, _ in told:
            part = rows[at : at + len(combinations)]
            assert set(part) <= combinations
            at += len(part)
        assert result.warnings == ()
    assert f"{'fewest' if preference == 'asc' else 'most'}" in db.sql(f"EXPLAIN {sql}").fetchall()[0][0]


@pytest.mark.parametrize("streams", [("a", "b"), ("a", "b", "c")])
def test_python_orders_as_sql_does_and_a_budget_of_everything_as_they_become_true(db, streams):
    query = db.join(*streams, on="k", window=WINDOW).prefer("desc")
    ordered, told = query.run().to_arrow(), query.run(1.0).to_arrow()
    assert ordered.num_rows == told.num_rows

    def completed(table):
        times = [np.asarray(table[name].cast("int64")) for name in table.column_names if name.endswith("_ts")]
        return np.max(times, axis=0)

    assert (np.diff(completed(told)) >= 0).all()
    assert (np.diff(completed(ordered)) < 0).any()
    first = query.limit(5).run()
    assert first.to_arrow().equals(ordered.slice(0, 5).combine_chunks())
    assert first.estimate.value == ordered.num_rows


def test_outliers_of_a_budget_of_everything_come_as_they_complete(db):
    query = db.join("a", "b", on="k", window=WINDOW).prefer("asc")
    ordered, told = (answer.to_arrow().to_pylist() for answer in (query.run(), query.run(1.0)))
    assert sorted(map(str, ordered)) == sorted(map(str, told))
    completed = [max(row["left_ts"], row["right_ts"]) for row in told]
    assert completed == sorted(completed) != [max(row["left_ts"], row["right_ts"]) for row in ordered]
    assert "outliers' pairs made" in db.join("a", "b", on="k").prefer("asc").explain(1.0)


def test_the_first_of_many_streams_under_a_budget_say_that_they_are_not_certain(db):
    query = db.join("a", "b", "c", on="k", window=WINDOW).prefer("desc")
    some = query.limit(5).run(0.5)
    assert some.to_arrow().num_rows == 5
    assert any("most promising" in told for told in some.warnings)
    sure = query.run(nile.Budget(outputs=5))
    assert sure.to_arrow().equals(query.limit(5).run().to_arrow())
    assert sure.budget.spent == 5.0
    assert sure.warnings == ()


@pytest.mark.parametrize("preference", ["desc", "asc"])
def test_selections_come_by_how_many_tuples_their_value_has(db, preference):
    sql = f"SELECT k, row FROM a WHERE v > 20 WITH PREFERENCE {preference} k"
    rows = db.sql(sql).fetchall()
    count = Counter(k for k, _ in rows)
    sign = -1 if preference == "desc" else 1
    assert rows == sorted(rows, key=lambda row: (sign * count[row[0]], row[1]))
    assert len(rows) == int((STREAMS["a"]["v"] > 20).sum())
    assert db.sql(f"{sql} LIMIT 3").fetchall() == rows[:3]


def test_groups_come_by_how_many_outputs_they_have(db):
    sql = f"FROM a, b WHERE a.k = b.k WINDOW {WINDOW} WITH PREFERENCE desc a.k GROUP BY a.v"
    counts = [n for _, n in db.sql(f"SELECT a.v, count(*) AS n {sql}").fetchall()]
    assert counts == sorted(counts, reverse=True)
    means = db.sql(f"SELECT a.v, avg(b.v) AS m {sql}")
    assert means.to_arrow().column_names == ["v", "m"]
    assert means.to_arrow()["v"].to_pylist() == [v for v, _ in db.sql(f"SELECT a.v, count(*) AS n {sql}").fetchall()]
