"""Aggregates of a lake to an ERROR: partitions are drawn until the interval is that narrow, or all are read."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spark_stand_in import StandIn
from workload_lake import SECOND, write_lake

import nile
import nile.spark.scan.scan as scan_module
from nile.summaries.errors import BudgetError, NotYet

QUERIES = {
    "count": "SELECT count(*) AS n FROM s1 WHERE price > 3",
    "sum": "SELECT sum(price) AS n FROM s1",
    "pairs": "SELECT count(*) AS n FROM s1 AS a, s2 AS b WHERE a.item = b.item WINDOW 20",
    "worth": "SELECT sum(a.price) AS n FROM s1 AS a, s2 AS b WHERE a.item = b.item AND a.price < 9 WINDOW 20",
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    for number in (1, 2):
        draw = np.random.default_rng(number)
        n = 1_500
        columns = {"item": np.floor(60 * draw.random(n) ** 2).astype(np.int64), "price": draw.integers(1, 90, n) / 8}
        write_lake(root, f"s{number}", np.sort(draw.integers(0, 1_000, n)) * SECOND, columns, range_s=10, group_rows=20)
    return root


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = StandIn(random.Random(0))
    monkeypatch.setattr(scan_module, "spark_session", lambda: stand_in)


def database(lake: Path) -> nile.Database:
    db = nile.connect()
    for name in ("s1", "s2"):
        db.register(name, lake / name)
    return db


def answer(db: nile.Database, text: str, seed: int) -> tuple[float, Any]:
    result = db.sql(text, engine="spark", seed=seed)
    ((value,),) = result.fetchall()
    return float(value), result.answer


@pytest.mark.parametrize("name", QUERIES)
def test_the_error_holds_as_often_as_it_says_and_not_all_is_read(name: str, lake: Path) -> None:
    db = database(lake)
    text = f"{QUERIES[name]} WITH PREFERENCE weighted"
    whole, _ = answer(db, text, 0)
    shares, near = [], 0
    for seed in range(5):
        value, run = answer(db, f"{text} ERROR 30 % CONFIDENCE 0.9", seed)
        near += abs(value - whole) <= 0.3 * whole
        shares.append(run.budget.fraction)
        (estimates,) = run.estimates.values()
        assert all(each.relative_error <= 0.3 for each in estimates)
    assert near >= 4
    assert min(shares) < 0.95


def test_the_closer_the_more_is_read_and_in_the_end_it_is_exact(lake: Path) -> None:
    db = database(lake)
    text = QUERIES["sum"]
    whole, _ = answer(db, text, 0)
    shares = [answer(db, f"{text} ERROR {error}", 3)[1].budget.fraction for error in (0.4, 0.1, 0.02)]
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]
    exact, run = answer(db, f"{text} ERROR 0.000001", 3)
    assert exact == pytest.approx(whole)
    assert run.whole
    assert "until every number is within 0.1 of it at confidence 0.95" in "\n".join(
        db.sql(f"{text} ERROR 0.1", engine="spark").explain().splitlines()
    )


def test_what_no_sample_bounds_is_refused(lake: Path) -> None:
    db = database(lake)
    with pytest.raises(NotYet, match="needed WITH PREFERENCE weighted"):
        db.sql(f"{QUERIES['sum']} WITH PREFERENCE desc ERROR 0.1", engine="spark")
    with pytest.raises(NotYet, match="which unread partitions may change by any amount"):
        db.sql("SELECT max(price) AS n FROM s1 ERROR 0.1", engine="spark")
    dearest = QUERIES["pairs"].replace("count(*) AS n", "a.price") + " WITH PREFERENCE desc COUNT(a.item) * a.price"
    with pytest.raises(NotYet, match="of which the sketches of a lake know nothing"):
        db.sql(dearest, engine="spark")
    with pytest.raises(BudgetError, match="needed no BUDGET beside it"):
        db.sql(f"{QUERIES['sum']} BUDGET 0.5 ERROR 0.1", engine="spark")
