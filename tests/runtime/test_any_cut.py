"""However rows are cut into pushes, standing queries tell the same and hold the same."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import nile

SCHEMA = [("t", pa.float64()), ("k", pa.int64()), ("v", pa.int64())]
QUERIES = {
    "the first of equal rows": "SELECT k, v FROM a ORDER BY v DESC LIMIT 3 WINDOW 2",
    "the first after some": "SELECT k, v FROM a ORDER BY k LIMIT 3 OFFSET 1 WINDOW 2",
    "the first of two streams": (
        "SELECT k, v FROM (SELECT k, v FROM a UNION ALL SELECT k, v FROM b) AS u ORDER BY v LIMIT 2 WINDOW 2"
    ),
    "the first of groups": (
        "SELECT k, n FROM (SELECT k, count(*) AS n FROM a GROUP BY k) AS g ORDER BY n DESC LIMIT 2 WINDOW 2"
    ),
    "partitions": "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM a WINDOW 2",
    "sums over partitions": "SELECT k, sum(v) OVER (PARTITION BY k) AS s FROM a WINDOW 1",
    "groups": "SELECT k, first(v ORDER BY v) AS f, list(v ORDER BY v) AS l, median(v) AS m FROM a GROUP BY k WINDOW 2",
    "rows without a partner": "SELECT a.k, a.v, b.v AS w FROM a FULL JOIN b ON a.k = b.k AND a.v = b.v WINDOW 2",
    "sets": "SELECT k, v FROM a EXCEPT SELECT k, v FROM b WINDOW 2",
}


def _told(text: str, how: dict[str, Any], keys: int, cuts: int | None) -> tuple[list[Any], str]:
    """(what a query tells, what its operators hold at the end).  cuts: seed of the pushes' sizes, None: all at once."""
    draw, cut = random.Random(4), random.Random(cuts)
    rows, at = [], 0.0
    for _ in range(700):
        at += draw.choice([0, 0, 0.05, 0.1])
        rows.append((draw.choice("ab"), at, draw.randint(0, keys), draw.randint(0, 2)))
    with nile.connect() as db:
        for name in "ab":
            db.stream(name, SCHEMA, time="t")
        query = db.subscribe(text, **how)
        while rows:
            size = len(rows) if cuts is None else cut.choice([1, 3, 20, 60])
            for name in "ab" if cut.random() < 0.5 else "ba":
                if mine := [row[1:] for row in rows[:size] if row[0] == name]:
                    db.push(name, dict(zip("tkv", zip(*mine, strict=True), strict=True)))
            del rows[:size]
        db.advance(at)
        told = [row for batch in query.poll() for row in batch.to_pylist()]
        return told, repr(query.plan.pipeline.capture())  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", [{"emit": "changes"}, {"emit": "snapshot"}, {"emit": "changes", "scheduling": "tpa"}])
@pytest.mark.parametrize("text", QUERIES.values(), ids=QUERIES)
def test_outputs_and_states_do_not_depend_on_cuts(text: str, how: dict[str, Any]) -> None:
    for keys in (2, 60):
        whole = _told(text, how, keys, None)
        assert whole[0]
        assert _told(text, how, keys, cuts=keys) == whole
