"""Groups that only count the pairs of a join: what they tell when every pair is made, without making one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from thinning import thinned

import nile
from nile.exact.pipeline import build
from nile.exact.pipeline.join import Joining
from nile.exact.pipeline.sources.stream_join import StreamJoining

TEXTS = (
    "SELECT count(*) AS n FROM a, b WHERE a.k = b.k WINDOW '4 s'",
    "SELECT count(*) AS n FROM a, b WHERE a.k = b.k",
    "SELECT a.k, count(*) AS n FROM a, b WHERE a.k = b.k GROUP BY a.k WINDOW '3 s'",
    "SELECT b.k % 2 AS odd, count(*) AS n, count(*) + 1 AS m FROM a, b WHERE a.k = b.k GROUP BY b.k % 2 WINDOW '3 s'",
    "SELECT count(*) AS n FROM a [RANGE '2 s'], b [RANGE '5 s'] WHERE a.k = b.k AND a.x > 2",
    "SELECT count(*) AS n FROM a [ROWS 7], b [RANGE '5 s'] WHERE a.k = b.k",
    "SELECT p.k, count(*) AS n FROM a [RANGE '3 s'], p WHERE a.k = p.k GROUP BY p.k",
    "SELECT count(*) AS n FROM (SELECT k, max(x) FROM a [RANGE '3 s'] GROUP BY k) q, b [RANGE '2 s'] WHERE q.k = b.k",
    "SELECT count(*) AS n FROM a [RANGE '1 s'], b [RANGE '1 s']",
    "SELECT count(*) AS n FROM a, b, p WHERE a.k = b.k AND a.k = p.k WINDOW '3 s'",
    "SELECT n FROM (SELECT a.k, count(*) n FROM a [NOW], b [RANGE '3 s'] WHERE a.k = b.k GROUP BY a.k) q WHERE n > 4",
)
MADE = (
    "SELECT count(*) AS n FROM a, b WHERE a.k = b.k AND a.x + b.x > 7 WINDOW '4 s'",
    "SELECT a.x, count(*) AS n FROM a, b WHERE a.k = b.k GROUP BY a.x WINDOW '3 s'",
    "SELECT sum(a.x) AS n FROM a, b WHERE a.k = b.k WINDOW '3 s'",
    "SELECT a.f, count(*) AS n FROM a, b WHERE a.f = b.f GROUP BY a.f WINDOW '3 s'",
    "SELECT a.k, count(*) AS n FROM a, b WHERE a.k = b.f GROUP BY a.k WINDOW '3 s'",
)
"""Where pairs differ to the group."""


def _rows(rng: np.random.Generator, at: int) -> dict[str, Any]:
    keys = rng.integers(0, 4, 20)
    return {
        "t": at + np.sort(rng.integers(0, 20, 20)) / 10.0,
        "k": [None if k == 3 and rng.random() < 0.5 else int(k) for k in keys],
        "f": rng.choice([0.0, -0.0, 1.0, float("nan")], 20),
        "x": rng.integers(0, 8, 20),
    }


def _told(text: str, seed: int, path: Any = None) -> list[Any]:
    """All that a standing query tells; with a path its store is closed and opened again in the middle."""
    rng = np.random.default_rng(seed)
    columns = [("t", "float64"), ("k", "int64"), ("f", "float64"), ("x", "int64")]
    db, out = nile.connect(path), []
    for name in "ab":
        db.stream(name, columns, time="t")
    db.sql("CREATE RELATION p (k BIGINT)")
    db.sql("INSERT INTO p VALUES (0), (1), (1)")
    db.subscribe(text, emit="changes", name="q")
    for at in range(0, 12, 2):
        for name in "ab":
            db.push(name, _rows(rng, at))
        if at == 6:
            if "ROWS" not in text:  # which takes nothing back
                db.sql("DELETE FROM a WHERE k = 1 AND x < 5")
            if path is not None:
                db.close()
                db = nile.connect(path)
        if at == 8:
            db.sql("DELETE FROM p WHERE k = 1")
        out += [row for batch in db.subscription("q").poll() for row in batch.to_pylist()]
    db.advance(30.0)
    out += [row for batch in db.subscription("q").poll() for row in batch.to_pylist()]
    db.close()
    return out


@pytest.mark.parametrize("text", thinned(TEXTS + MADE, 2))
def test_counted_pairs_are_told_as_made_ones_are(text: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [_told(text, 1), _told(text, 2), _told(text, 1, tmp_path / "store")]
    with monkeypatch.context() as patch:
        patch.setattr(build, "counts_alone", lambda _: False)
        wanted = [_told(text, 1), _told(text, 2)]
    assert repr(found) == repr([*wanted, wanted[0]])
    assert len(wanted[0]) > 3


@pytest.mark.parametrize("text", TEXTS + MADE)
def test_pairs_are_made_where_they_differ_to_the_group_alone(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    joins: list[Any] = []
    for kind in (Joining, StreamJoining):
        begin = kind.__init__

        def begun(self: Any, *args: Any, begin: Any = begin, **options: Any) -> None:
            begin(self, *args, **options)
            joins.append(self)

        monkeypatch.setattr(kind, "__init__", begun)
    _told(text, 1)
    assert any(each.once for each in joins) is (text in TEXTS)


def test_many_equal_keys_cost_a_row_each() -> None:
    n = 5_000
    db = nile.connect()
    for name in "ab":
        db.stream(name, [("t", "float64"), ("k", "int64")], time="t")
    standing = db.subscribe("SELECT count(*) AS n FROM a, b WHERE a.k = b.k WINDOW '10000 s'", emit="changes")
    for name in "ab":
        db.push(name, {"t": np.arange(n) * 1.0, "k": np.zeros(n, np.int64)})
    db.advance(n + 0.0)
    last = [row for batch in standing.poll() for row in batch.to_pylist()][-1]
    assert last["n"] == n * n
    assert standing.memory < 4 << 20
