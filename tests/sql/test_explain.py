"""EXPLAIN and EXPLAIN ANALYZE, word for word: what each node was expected to give, and what it gave."""

from __future__ import annotations

import json
import os
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


PAIRS = "SELECT a.k, a.v, b.v AS w FROM a, b WHERE a.k = b.k"


def shaped(n: int, keys: int, *, step: int = 1_000, far: int = 1) -> pa.Table:
    """Tuples a millisecond apart by default, of each key as many."""
    times = pa.array([at * step for at in range(n)], pa.timestamp("us"))
    return pa.table({"ts": times, "k": [at % keys * far for at in range(n)], "v": list(range(n))})


def joins(db: nile.Database, text: str, *, analyze: bool = True, **options: Any) -> list[dict[str, Any]]:
    """What programs are told of the joins of a query."""
    found: list[dict[str, Any]] = json.loads(db.sql(text, **options).explain(analyze=analyze, form="json"))["joins"]
    return found


def test_explain_tells_which_form_a_join_takes_by_the_tuples_of_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("form", "parts"):
        monkeypatch.setattr(f"nile.exact.join.{module}.cores", lambda: 2)
    db = nile.connect(threads=2)
    for name in "ab":
        db.register(name, shaped(270_000, 9_000), time="ts")
    (short,) = joins(db, PAIRS + " WINDOW 1")
    assert (short["name"], short["tuples"], short["pairs"], short["parts"]) == ("chains", 540_000, 270_000, 1)
    assert short["within"] == pytest.approx(2_000, rel=1e-3)
    assert "2,000 of 540,000 tuples lie in a window" in short["why"]
    assert short["forecast_ms"] > 0
    assert short["took_ms"] > 0
    (long,) = joins(db, PAIRS + " WINDOW 10")
    assert (long["name"], long["keys"], long["coded"]) == ("lists", 9_000, False)
    assert long["pairs"] == 270_000 + 2 * (270_000 - 9_000)
    assert "20,000 tuples lie in a window" in long["why"]
    told = db.sql(PAIRS + " WINDOW 10").explain(analyze=True)
    assert f"{long['pairs']:,} pairs, 1.47 a tuple" in " ".join(told.split())
    (before,) = joins(db, PAIRS + " WINDOW 10", analyze=False)
    assert (before["form"], before["tuples"], before["keys"], before["keys_by"]) == (None, 540_000, 27_000, "rule")
    monkeypatch.setattr("nile.exact.join.form.cores", lambda: 1)
    (alone,) = joins(db, PAIRS + " WINDOW 1")
    assert (alone["name"], alone["why"]) == ("lists", "there is no second core for parts")
    assert alone["pairs"] == short["pairs"]


def test_footers_and_summaries_tell_the_form_of_a_join_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nile.base.unchanged._FINE", -1.0)  # of files that have just been written
    for name in "ab":
        pq.write_table(shaped(2_000, 50), tmp_path / f"{name}.parquet")
        os.utime(tmp_path / f"{name}.parquet", ns=(1_500_000_000_500_000_000,) * 2)
    db = nile.connect()
    for name in "ab":
        db.register(name, str(tmp_path / f"{name}.parquet"), time="ts")
    (before,) = joins(db, PAIRS + " WINDOW 0.124", analyze=False)
    assert (before["form"], before["keys"], before["keys_by"]) == ("lists", 200, "rule")
    assert before["within"] == pytest.approx(248, rel=0.01)
    summary = db.summarize("a", on="k", granularity="1 min")
    (before,) = joins(db, PAIRS + " WINDOW 0.124", analyze=False)
    assert (before["keys"], before["keys_by"]) == (50, "summary")
    (after,) = joins(db, PAIRS + " WINDOW 0.124")
    assert after["name"] == "lists"
    assert before["matches"] == pytest.approx(after["pairs"] / 4_000, rel=0.05)
    assert before["forecast_ms"] == pytest.approx(after["forecast_ms"], rel=0.1)
    del summary


def test_explain_tells_of_keys_far_apart_counts_and_joins_that_have_one_form() -> None:
    db = nile.connect()
    for name in "abc":
        db.register(name, shaped(3_000, 100 if name == "c" else 1_000, far=10**12), time="ts")
    (far,) = joins(db, PAIRS + " WINDOW 10")
    assert (far["name"], far["coded"], far["keys"], far["pairs"]) == ("lists", True, 1_000, 9_000)
    few = PAIRS.replace(" b ", " c b ").replace("a, b", "a, c AS b")
    (shared,) = joins(db, few + " WINDOW 10")
    assert (shared["tuples"], shared["pairs"]) == (6_000, 9_000)
    assert 3_300 <= shared["listed"] < 4_000  # by a bit of a hash that each process draws
    (counted,) = joins(db, "SELECT a.k, count(*) AS n FROM a, b WHERE a.k = b.k GROUP BY a.k")
    assert (counted["name"], counted["pairs"], counted["forecast_ms"]) == ("counts", 9_000, None)
    (whole,) = joins(db, "SELECT a.k, count(*) AS n FROM a, b WHERE a.k = b.k GROUP BY a.k", analyze=False)
    assert whole["form"] == "counts"
    three = "SELECT a.k FROM a, b, c WHERE a.k = b.k AND b.k = c.k WINDOW 0.5"
    (before,) = joins(db, three, analyze=False)
    (after,) = joins(db, three)
    assert (before["form"], after["name"]) == ("chain", "chain")
    assert after["pairs"] == db.sql(three).to_arrow().num_rows
    (unkeyed,) = joins(db, "SELECT a.k FROM a, b WHERE a.v < b.v AND a.k = 0 AND b.k = 0 WINDOW 10")
    assert unkeyed["name"] == "few-nested"
    assert "no forecast: prices are of the pairs of two streams on a key" in db.sql(three).explain()


def test_a_join_whose_tuples_come_one_after_another_says_why_it_has_one_form(db: nile.Database) -> None:
    told = " ".join(db.sql(GROUPED).explain().split())
    assert "each tuple probes those of its key as it arrives (forward evaluation); of no other form" in told
    assert "joins" not in json.loads(db.sql(GROUPED).explain(form="json"))
    named = db.sql("SELECT a.item FROM sales a, returns b WHERE a.item = b.item WINDOW 10", algorithm="bew-hash")
    assert "window join bew-hash: as asked" in named.explain()
    assert "join taken: bew-hash: as asked; 1 thread" in named.explain(analyze=True)
