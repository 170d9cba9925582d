"""Joins of two streams by the machine's prices are answered as they are without summaries."""

from __future__ import annotations

import numpy as np
import pytest

import nile

JOIN = "SELECT a.k, a.at, b.at AS other FROM a, b WHERE a.k = b.k WINDOW '10 s' WITH PREFERENCE {} a.k {}"


@pytest.mark.parametrize("preference", ["desc", "weighted", "asc"])
@pytest.mark.parametrize("budget", ["BUDGET 60 SECONDS", "BY DEADLINE '60 s'", "BUDGET 20 %"])
def test_a_summary_is_not_asked_by_the_machines_prices(preference: str, budget: str) -> None:
    random = np.random.default_rng(1)
    told, found = [], []
    with nile.connect() as db:
        for name in "ab":
            db.register(
                name, {"at": np.sort(1000 * random.random(4000)), "k": random.integers(0, 700, 4000)}, time="at"
            )
        for _ in range(2):
            asked = JOIN.format(preference, budget)
            told.append(db.sql("EXPLAIN " + asked, costs="machine").fetchall()[0][0])
            found.append(sorted(db.sql(asked, costs="machine").fetchall()))
            for name in "ab":
                db.sql(f"CREATE OR REPLACE SUMMARY s{name} ON {name} (k) WITH GRANULARITY '1 min' AND COLLAPSE (4, 3)")
        assert found[0]
        assert found[0] == found[1]
        assert told[0] == told[1]
        assert "strategy auto" in told[1]
        for named in ({"costs": "engine"}, {"costs": "machine", "strategy": "promise"}):
            if preference != "weighted":  # by the directory they count a sample of the keys themselves
                named["guide"] = "countsketch"
            shared = db.sql("EXPLAIN " + JOIN.format(preference, "BUDGET 10 %"), **named).fetchall()[0][0]
            assert "whose key summary" in shared
