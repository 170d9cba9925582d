"""What a user gets wrong, one by one: each is told in one sentence: where, what was needed, what came, what to do."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import nile
from nile.experiments.cli import main

N = 3_000
NAN = float("nan")


@pytest.fixture(scope="module")
def db() -> nile.Database:
    table = pa.table({"ts": range(N), "key": [i % 7 for i in range(N)], "price": [float(i % 50) for i in range(N)]})
    return nile.connect().register("a", table, time="ts").register("b", table, time="ts")


def query(db: nile.Database) -> nile.JoinQuery:
    return db.join("a", "b", on="key", window=10).prefer("desc")


MISTAKES: dict[str, tuple[Callable[[nile.Database], object], type[Exception], str, str]] = {
    "unknown attribute of a join": (
        lambda db: db.join("a", "b", on="keyy"), nile.UnknownColumn, "stream 'a'", "did you mean 'key'",
    ),
    "unknown attribute of a pair condition": (
        lambda db: db.join("a", "b", on="key", where="a.prise > b.price"), nile.UnknownColumn, "join, where",
        "did you mean 'price'",
    ),
    "unknown attribute of a selection": (
        lambda db: db.select("a", on="keyy", predicates={"x": "key = 1"}), nile.UnknownColumn, "stream 'a'",
        "did you mean 'key'",
    ),
    "unknown attribute of a predicate": (
        lambda db: db.select("a", on="key", predicates={"x": "prise = 1"}), nile.UnknownColumn, "'x'",
        "did you mean 'price'",
    ),
    "unknown attribute of an aggregate": (
        lambda db: db.aggregate("a", {"s": "sum(prise)"}), nile.UnknownColumn, "'s'", "did you mean 'price'",
    ),
    "unknown attribute to group by": (
        lambda db: db.aggregate("a", {"s": "sum(price)"}, by="keyy"), nile.UnknownColumn, "by", "did you mean 'key'",
    ),
    "a preference that does not exist": (
        lambda db: query(db).prefer("dsc").run(0.5), nile.ConfigError, "preference", "name one of these",
    ),
    "a preference over a column without a summary": (
        lambda db: query(db).guided_by("countsketch").using(structure="T1").run(0.5), nile.ConfigError, "guide",
        "choose structure 'T4', or guide 'directory'",
    ),
    **{
        f"fade {fade!r}": (
            lambda db, fade=fade: query(db).prefer("desc", fade=fade), nile.ConfigError, "fade", "1 never fades",
        )
        for fade in (0, -0.5, 1.5, NAN, True, "0.8")
    },
    **{
        f"budget {budget!r} of {name}": (
            lambda db, budget=budget, make=make: make(db).run(budget), nile.BudgetError, "budget", "use 1 for",
        )
        for budget in (0, -1.0, NAN, float("inf"))
        for name, make in {
            "a join": query,
            "a selection": lambda db: db.select("a", on="key", predicates={"x": "key = 1"}),
            "an aggregate": lambda db: db.aggregate("a", {"s": "sum(price)"}),
            "standing joins": lambda db: db.standing([query(db)]),
        }.items()
    },
    **{
        f"window {window!r}": (
            lambda db, window=window: query(db).within(window), nile.ConfigError, "window", "text like '6 hours'",
        )
        for window in (-1e-9, -5, NAN, "soon")
    },
    "granularity 0": (
        lambda db: query(db).using(granularity=0), nile.ConfigError, "granularity", "text like '6 hours'",
    ),
    **{
        f"{name} {value!r}": (
            lambda db, name=name, value=value: query(db).using(**{name: value}).run(0.5), nile.ConfigError,
            f"summary {name}", mend,
        )
        for name, value, mend in (
            ("rate", 1, "so many times as long"),
            ("depth", 0, "so many granularities"),
            ("threshold", 1.5, "0.02 is the default"),
            ("threshold", -0.1, "0.02 is the default"),
            ("threshold", NAN, "0.02 is the default"),
        )
    },
    "more zones than memory allows": (
        lambda db: query(db).using(max_zones=4096, columns=1 << 16).run(0.5), nile.MemoryRefused, "max_zones 4096",
        "would fit",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_one_sentence_with_its_place_and_its_mend(db: nile.Database, mistake: str) -> None:
    make, error, place, mend = MISTAKES[mistake]
    with pytest.raises(error) as told:
        make(db)
    message = str(told.value)
    assert isinstance(told.value, nile.NileError)
    assert place in message
    assert mend in message
    assert "\n" not in message
    assert re.search(r"needed|cannot|there is no", message)


NO_NAMES: dict[str, tuple[Callable[[nile.Database], object], str]] = {
    "a stream": (lambda db: db.schema([]), "stream: needed a name as text; got []"),
    "a stream to push to": (lambda db: db.push({}, {"ts": [1]}), "stream: needed a name as text"),
    "a stream to make": (lambda db: db.stream([], [("ts", "int64")], time="ts"), "stream: needed a name as text"),
    "a time column": (lambda db: db.register("c", {"ts": [1]}, time=1), "stream 'c', columns: needed a name as text"),
    "a time column of a stream": (lambda db: db.stream("c", [("ts", "int64")], time=None), "needed"),
    "a key": (lambda db: db.join("a", "b", on=1), "join on: needed a name as text; got 1"),
    "groups": (lambda db: db.aggregate("a", {"n": "count(*)"}, by=3), "by: needed a name as text; got 3"),
    "an alias": (lambda db: db.query("a", alias=1), "query, alias: needed a name as text"),
    "a query": (lambda db: db.subscription({}), "standing query: needed a name as text"),
    "a summary": (lambda db: db.summary([]), "summary: needed a name as text"),
    "sensors": (lambda db: db.sensors([]), "sensors: needed a name as text"),
    "a statement": (lambda db: db.sql(None), "needed a statement as text; got NoneType"),
    "a statement in bytes": (lambda db: db.sql(b"SELECT 1"), "needed a statement as text; got bytes"),
    "standing joins": (lambda db: db.standing("SELECT 1"), "needed joins that db.join(...) makes; got str"),
    "one standing join": (lambda db: db.standing(None), "needed joins that db.join(...) makes; got NoneType"),
    "a store": (lambda db: nile.connect(3), "connect: needed the path of a store"),
    "a file": (lambda db: db.sql("SELECT key FROM a").write_csv(3), "write: needed the path of a file; got int"),
    "a report": (lambda db: query(db).run(0.5).report(3), "report: needed the path of a file; got int"),
    "steps of a report": (lambda db: query(db).run(0.5).report(on_progress=3), "needed something to call; got int"),
    "budgets of a report": (lambda db: query(db).run(0.5).report(budgets=True), "report budgets: needed fractions"),
    "columns to carry": (lambda db: query(db).run(0.5, carry=1), "carry: needed columns for each of 2 streams"),
    "a column to carry": (lambda db: query(db).run(0.5, carry=[(1,), ()]), "join, carry: needed a name as text"),
    "rows to fetch": (lambda db: db.sql("SELECT key FROM a").fetchmany("x"), "fetchmany: needed a number of rows"),
    "a connection": (lambda db: db.sql("SELECT key FROM a").to_duckdb(1), "to_duckdb: needed a connection"),
    "a session": (lambda db: db.sql("SELECT key FROM a").to_spark(1), "to_spark: needed a Spark session"),
    "a limit": (lambda db: db.query("a").limit(-1), "limit: needed a number of rows; got -1"),
    "an offset": (lambda db: db.query("a").limit(1, "x"), "limit, offset: needed a number of rows; got 'x'"),
    "another query": (lambda db: db.query("a").union("b"), "union: needed another query of db.query(...); got str"),
    "a way to emit": (lambda db: db.query("a").emit(3), "emit: needed a name as text; got 3"),
    "a factor": (lambda db: db.query("a").fade("x"), "fade: needed a factor in (0, 1]; got 'x'"),
}


@pytest.mark.parametrize("mistake", NO_NAMES)
def test_what_is_no_text_is_told_like_every_other_mistake(db: nile.Database, mistake: str) -> None:
    make, told = NO_NAMES[mistake]
    with pytest.raises(nile.NileError, match=re.escape(told)):
        make(db)


def test_more_rows_may_be_fetched_than_there_are(db: nile.Database) -> None:
    answer = db.sql("SELECT key FROM a LIMIT 3")
    assert answer.fetchmany(1 << 70) == [(0,), (1,), (2,)]
    assert answer.fetchmany(1 << 40) == []


def test_a_window_longer_than_kept_history_is_answered_with_a_coverage_below_one(db: nile.Database) -> None:
    kept = (
        db.join("a", "b", on="key", window=2_000)
        .prefer("desc")
        .guided_by("countsketch")
        .using(granularity=50, rate=2, depth=1)
    )
    answer = kept.using(forgetting=True).run(0.9)
    assert answer.to_arrow().num_rows > 0
    assert 0.0 < answer.coverage < 1.0
    whole = kept.run(0.9)
    assert whole.to_arrow().num_rows > 0
    assert whole.coverage == 1.0


def test_a_condition_that_contradicts_itself_is_told_where_it_stands(db: nile.Database) -> None:
    table = pa.table({"ts": [1, 2], "key": [1, 2]})
    told = r"stream 'c', where: needed a condition that some tuple can satisfy; got .* contradict .*; check its bounds"
    with pytest.warns(UserWarning, match=told):
        nile.connect().register("c", table, time="ts", where="key > 5 AND key < 2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nile.connect().register("c", table, time="ts", where="key > 1 AND key < 5")
    answer = db.select("a", on="key", predicates={"none": "key > 5 AND key < 2"}).run(0.5)
    assert "'none': needed a condition that some value of 'key' can satisfy" in answer.warnings[0]


CONFIG = """
budgets = [0.1]
[left]
source = "synthetic"
time = "ts"
key = "item_id"
[right]
source = "synthetic"
time = "ts"
key = "item_id"
"""


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("fade = 1.5" + CONFIG, "fade"),
        ("fade = 0" + CONFIG, "fade"),
        (CONFIG.replace("[0.1]", "[0]"), "budgets[0]"),
        (CONFIG.replace("[0.1]", "[nan]"), "budgets[0]"),
        (CONFIG.replace("[0.1]", "[-1]"), "budgets[0]"),
        (CONFIG + "[summary]\ngranularity = 0", "summary.granularity"),
        (CONFIG + "[summary]\nrate = 1", "summary.rate"),
        (CONFIG + "[summary]\ndepth = 0", "summary.depth"),
        (CONFIG + "[summary]\nthreshold = 1.5", "summary.threshold"),
        ('preferences = ["dsc"]' + CONFIG, "preferences[0]"),
    ],
)
def test_the_command_line_tells_a_mistake_with_file_and_key_and_leaves_nothing(
    tmp_path: Path, text: str, place: str
) -> None:
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert place in result.output
    assert not (tmp_path / "out" / "report.json").exists()


def test_a_column_of_a_dataframe_that_arrow_does_not_know_is_named() -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    with pytest.raises(nile.SourceError, match=r"c: Arrow cannot read column 'v' of this DataFrame: .*leave it out"):
        nile.connect().register("c", pd.DataFrame({"ts": [1, 2], "v": [1, "a"]}), time="ts")
    wide = pl.DataFrame({"ts": [1, 2], "w": pl.Series([1, 2], dtype=pl.Int128)})
    with pytest.raises(nile.SourceError, match=r"c: Arrow cannot read column 'w' of this DataFrame: .*leave it out"):
        nile.connect().register("c", wide, time="ts")
