"""EXPLAIN and EXPLAIN ANALYZE, word for word: what each node was expected to give, and what it gave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nile

SALES = {"ts": [0.0, 1.0, 2.0, 3.0, 20.0], "item": [1, 2, 1, 3, 1], "price": [2.0, 3.0, 4.0, 5.0, 6.0]}
RETURNS = {"ts": [0.5, 2.5, 21.0], "item": [1, 1, 2], "price": [1.0, 2.0, 3.0]}

SELECTED = "SELECT item FROM sales WHERE price > 2 WINDOW 10"
GROUPED = """
    SELECT a.item, count(*) AS n, sum(b.price) AS total FROM sales a, returns b
    WHERE a.item = b.item GROUP BY a.item WINDOW 10
"""
COMBINED = "SELECT item FROM sales EXCEPT ALL SELECT item FROM returns WINDOW 10"


@pytest.fixture
def db() -> nile.Database:
    made = nile.connect()
    made.register("sales", pa.table(SALES), time="ts")
    made.register("returns", pa.table(RETURNS), time="ts")
    return made


def tree(db: nile.Database, text: str, **options: Any) -> str:
    """The nodes of EXPLAIN ANALYZE: what stands above how it ran."""
    return db.sql(text, **options).explain(analyze=True).split("\nexact, way")[0]


def test_a_selection_of_a_stream_is_explained_word_for_word(db: nile.Database) -> None:
    assert db.sql(SELECTED, emit="changes").explain() == "\n".join(
        [
            "project sales.item  [about 1.7 by rule]",
            "  stream sales by ts, window 10 s, where sales.price > 2.0  [about 1.7 by rule]",
            "exact, way pipeline, emit changes, scheduling nta",
            "  emit changes: as asked",
            "  scheduling nta: one window, for which the paper finds tpa enough; ours takes negative tuples in",
            "      batches, and was measured as fast as tpa over one stream and faster over joins",
        ]
    )
    assert db.sql(SELECTED, emit="changes", scheduling="nta").explain(analyze=True) == "\n".join(
        [
            "project sales.item  [about 1.7 by rule; actual 4 in, +4 -3; 17 bytes]",
            "  stream sales by ts, window 10 s, where sales.price > 2.0  [about 1.7 by rule; actual 5 in, +4 -0]",
            "exact, way pipeline, emit changes, scheduling nta",
            "  emit changes: as asked",
            "  scheduling nta: as asked",
            "memory: 17 bytes of state, 0 of input held",
            "cost: tuples 5, changes 7, steps 2, negative 3, pairs 0",
            "sales: 5 in = 5 applied + 0 late + 0 shed + 0 rejected",
        ]
    )
    assert tree(db, SELECTED, emit="changes", scheduling="tpa") == "\n".join(
        [
            "project sales.item  [about 1.7 by rule; actual 4 in, +4 -0]",
            "  stream sales by ts, window 10 s, where sales.price > 2.0  [about 1.7 by rule; actual 5 in, +4 -0]",
            "window of the output  [actual 4 in, +4 -3; 17 bytes]",
        ]
    )


def test_groups_of_a_join_are_explained_word_for_word(db: nile.Database) -> None:
    assert tree(db, GROUPED) == "\n".join(
        [
            "project a.item, count(*) as n, sum(b.price) as total  [about 1.5 by rule; actual 10 in, +5 -5]",
            "  group by a.item: count(*), sum(b.price)  [about 1.5 by rule; actual 8 in, +5 -5; 12,800 bytes]",
            "    join of 2: a.item = b.item  [about 15 by rule; actual 14 in, +4 -4; 11,776 bytes]",
            "      stream sales as a by ts, window 10 s  [5 by its source; actual 5 in, +5 -4]",
            "      stream returns as b by ts, window 10 s  [3 by its source; actual 3 in, +3 -2]",
        ]
    )
    assert tree(db, GROUPED, scheduling="tpa") == "\n".join(
        [
            "project a.item, count(*) as n, sum(b.price) as total  [about 1.5 by rule; actual 10 in, +5 -5]",
            "  group by a.item: count(*), sum(b.price)  [about 1.5 by rule; actual 4 in, +5 -5; 12,800 bytes]",
            "    join of 2: a.item = b.item  [about 15 by rule; actual 8 in, +4 -0; 20,026 bytes]",
            "      stream sales as a by ts, window 10 s  [5 by its source; actual 5 in, +5 -0]",
            "      stream returns as b by ts, window 10 s  [3 by its source; actual 3 in, +3 -0]",
            "window of the output  [actual 10 in, +5 -5]",
        ]
    )


def test_a_set_operation_is_explained_word_for_word(db: nile.Database) -> None:
    assert tree(db, COMBINED) == "\n".join(
        [
            "except all  [about 5 by rule; actual 14 in, +5 -4; 5,696 bytes]",
            "  project sales.item  [5 by its source; actual 5 in, +5 -4; 17 bytes]",
            "    stream sales by ts, window 10 s  [5 by its source; actual 5 in, +5 -0]",
            "  project returns.item  [3 by its source; actual 3 in, +3 -2; 17 bytes]",
            "    stream returns by ts, window 10 s  [3 by its source; actual 3 in, +3 -0]",
        ]
    )
    assert tree(db, COMBINED, scheduling="tpa") == "\n".join(
        [
            "except all  [about 5 by rule; actual 8 in, +5 -4; 5,730 bytes]",
            "  project sales.item  [5 by its source; actual 5 in, +5 -0]",
            "    stream sales by ts, window 10 s  [5 by its source; actual 5 in, +5 -0]",
            "  project returns.item  [3 by its source; actual 3 in, +3 -0]",
            "    stream returns by ts, window 10 s  [3 by its source; actual 3 in, +3 -0]",
            "window of the output  [actual 9 in, +5 -4]",
        ]
    )


def test_a_state_at_the_end_tells_the_rows_it_held(db: nile.Database) -> None:
    told = tree(db, COMBINED, emit="snapshot", scheduling="nta").split("\n")
    assert told[0] == "except all  [about 5 by rule; actual 14 in, 1 held; 5,696 bytes]"


def test_bytes_of_the_nodes_add_up_to_the_memory_of_the_run(db: nile.Database) -> None:
    for text in (SELECTED, GROUPED, COMBINED):
        for scheduling in ("nta", "tpa", "ita"):
            result = db.sql(text, emit="changes", scheduling=scheduling)
            told = [int(part.split()[0].replace(",", "")) for part in _bytes(result.explain(analyze=True))]
            assert sum(told) == result.memory, (text, scheduling)


def _bytes(text: str) -> list[str]:
    return [part.split("; ")[-1] for part in text.split("\nexact, way")[0].split("\n") if part.endswith(" bytes]")]


def test_a_summary_that_was_built_says_how_many_tuples_have_a_value(db: nile.Database) -> None:
    text = "SELECT price FROM sales WHERE item = 1"
    leaf = "  stream sales by ts, all that is kept, where sales.item = 1  "
    assert db.sql(text).explain().split("\n")[1] == leaf + "[about 0.5 by rule]"
    summary = db.summarize("sales", on="item", granularity="1 min")
    assert db.sql(text).explain().split("\n")[1] == leaf + "[about 3 by summary]"
    both = db.sql(text + " AND price > 1").explain().split("\n")
    assert both[2] == "      [about 1 by rule]"
    assert summary.store.tuples == 5
    del summary
    assert db.sql(text).explain().split("\n")[1] == leaf + "[about 0.5 by rule]"


def test_a_summary_says_how_many_tuples_a_stream_has_whose_source_does_not() -> None:
    db = nile.connect()
    db.register("s", lambda: iter([pa.record_batch({"ts": [0.0, 1.0, 2.0], "x": ["a", "b", "a"]})]), time="ts")
    assert db.sql("SELECT x FROM s").explain().split("\n")[1] == "  stream s by ts, all that is kept"
    summary = db.summarize("s", on="x", granularity=60)
    found = db.sql("SELECT ts FROM s WHERE x = 'a'").explain().split("\n")
    assert found[1] == "  stream s by ts, all that is kept, where s.x = 'a'  [about 2 by summary]"
    assert summary.store.tuples == 3
    db.sql("DROP STREAM s")
    db.register("s", lambda: iter([pa.record_batch({"ts": [0.0], "x": ["a"]})]), time="ts")
    assert db.sql("SELECT x FROM s").explain().split("\n")[1] == "  stream s by ts, all that is kept"


def test_the_condition_a_stream_was_registered_with_counts(tmp_path: Path) -> None:
    pq.write_table(pa.table(SALES), tmp_path / "sales.parquet")
    db = nile.connect()
    db.register("whole", str(tmp_path / "sales.parquet"), time="ts")
    db.register("part", str(tmp_path / "sales.parquet"), time="ts", where="item <> 3")
    assert db.sql("SELECT ts FROM whole").explain().split("\n")[1].endswith("[5 by its source]")
    assert db.sql("SELECT ts FROM part").explain().split("\n")[1].endswith("[about 4.5 by rule]")


def test_no_line_is_longer_than_a_hundred_columns(db: nile.Database) -> None:
    long = " OR ".join(f"(a.price > {k} AND b.price < {k + 1} AND a.item <> {k})" for k in range(12))
    text = f"SELECT a.item FROM sales a, returns b WHERE a.item = b.item AND ({long}) WINDOW 10"
    told = db.sql(text, emit="changes").explain(analyze=True)
    assert max(map(len, told.split("\n"))) <= 100
    assert "by rule; actual" in " ".join(told.split())
    literal = "x" * 300
    told = db.sql(f"SELECT item FROM sales WHERE '{literal}' = '{literal}' || '' WINDOW 10").explain()
    assert max(map(len, told.split("\n"))) <= 100


def test_explain_tells_programs_the_same(db: nile.Database) -> None:
    told = json.loads(db.sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {GROUPED}").fetchall()[0][0])
    assert json.loads(db.sql(GROUPED).explain(analyze=True, form="json")).keys() == told.keys()
    assert (told["way"], told["emit"], told["scheduling"]) == ("pipeline", "changes", "nta")
    (group,) = told["plan"]["inputs"]
    assert group["node"].startswith("group by a.item")
    assert group["actual"].keys() == {"tuples", "positive", "negative", "held", "memory"}
    leaves = [each for join in group["inputs"] for each in join["inputs"]]
    assert [each["expected"] for each in leaves] == [{"rows": 5.0, "by": "source"}, {"rows": 3.0, "by": "source"}]
    assert told["accounting"]["b"]["tuples_in"] == 3
    preferred = "SELECT a.item FROM sales a, returns b WHERE a.item = b.item WITH PREFERENCE desc a.item WINDOW 10"
    told = json.loads(db.sql(f"EXPLAIN ANALYZE (FORMAT JSON) {preferred}", budget=0.9).fetchall()[0][0])
    assert told["way"] == "approximate"
    assert told["spent"]["asked"] == 0.9
    assert told["figures"]["outputs"] >= 0
    assert "actual" not in json.loads(db.sql(f"EXPLAIN (FORMAT JSON) {GROUPED}").fetchall()[0][0])["plan"]


def test_analyze_tells_what_each_strategy_was_expected_to_cost_and_find() -> None:
    times, keys = [float(i) for i in range(6_000)], [i % 40 for i in range(6_000)]
    with nile.connect() as db:
        for name in "ab":
            db.register(name, {"t": times, "k": keys}, time="t")
        pairs = "FROM a, b WHERE a.k = b.k WINDOW 600"
        for text in (
            f"SELECT a.k {pairs} WITH PREFERENCE desc a.k BUDGET 20 %",
            f"SELECT a.k {pairs} WITH PREFERENCE weighted a.k BUDGET 20 %",
            f"SELECT count(*) AS n {pairs} BUDGET 20 %",
        ):
            asked = db.sql(text, costs="machine")
            assert "strategies" not in asked.explain()
            told = json.loads(asked.explain(analyze=True, form="json"))["strategies"]
            named = [line.strip("* ").split(":")[0] for line in told]
            assert {"exact", "counts", "keys", "summary", "promise"} <= set(named)
            (ran,) = [line for line in told if line.startswith("  * ")]
            assert "% of exact), about" in ran
            assert "quality" in ran
            lines = asked.explain(analyze=True).splitlines()
            assert "strategies, by forecast; * ran:" in lines
            assert any(line.startswith(ran.split(",")[0]) for line in lines)
        exact = db.sql(f"SELECT a.k {pairs} WITH PREFERENCE desc a.k BUDGET 20 %", costs="engine")
        assert "strategies" not in exact.explain(analyze=True)
