"""What people write and read: budgets as text, queries that print as they would be written, near names of commands."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from sql_catalog import CATALOG, connect_catalog

import nile
from nile.base.budgets import GivenBudget, read_budget
from nile.experiments.cli import main
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text

SOLD = {"t": [1.0, 2.0, 3.0], "k": ["a", "b", "a"], "x": [1, 2, 3]}


@pytest.fixture
def db() -> nile.Database:
    return nile.connect().register("a", SOLD, time="t").register("b", SOLD, time="t")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (0.1, nile.Budget(0.1)),
        ("10%", nile.Budget(0.1)),
        (" 2.5 % ", nile.Budget(0.025)),
        (".5%", nile.Budget(0.005)),
        ("2 s", nile.Budget(seconds=2.0)),
        ("200 ms", nile.Budget(seconds=0.2)),
        (nile.Budget(outputs=10), nile.Budget(outputs=10)),
    ],
)
def test_a_budget_may_be_written_as_people_write_it(given: GivenBudget, meant: nile.Budget) -> None:
    assert read_budget(given) == meant


@pytest.mark.parametrize("given", ["", "ten", "0 %", "0 s", "-1 %", "10 outputs"])
def test_other_text_is_no_budget(given: str) -> None:
    with pytest.raises(nile.BudgetError, match="budget: needed"):
        read_budget(given)


def test_every_kind_of_query_takes_a_budget_as_text(db: nile.Database) -> None:
    join = db.join("a", "b", on="k", window="1 h").prefer("desc")
    assert join.run("50 %").plan.budget == nile.Budget(0.5)
    assert join.explain("50 %") == join.explain(0.5)
    assert db.select("a", on="x", predicates={"p": "x > 1"}).plan("50 %").budget == nile.Budget(0.5)
    assert db.aggregate("a", {"n": "sum(x)"}).plan("50 %").budget == 0.5
    assert db.standing([join, join]).run("50 %")[0].plan.budget == nile.Budget(0.5)
    built = db.query("a").join("b", on="k").window("1 h").prefer("desc").budget("50 %")
    assert built.run().budget.asked == 0.5
    assert (
        db.sql("SELECT * FROM a, b WHERE a.k = b.k WINDOW '1 h' WITH PREFERENCE desc", budget="50 %").budget.asked
        == 0.5
    )
    assert db.aggregate("a", {"n": "sum(x)"}).run("2 s").budget.unit == "seconds"


def test_queries_print_as_one_would_write_them(db: nile.Database) -> None:
    join = db.join("a", "b", on="k", window="1 hour")
    assert repr(join) == "<JoinQuery: SELECT * FROM a, b WHERE a.k = b.k WINDOW '1 h'>"
    assert repr(join.prefer("asc", fade=0.5)).endswith("WINDOW '1 h' WITH PREFERENCE asc FADE FACTOR 0.5>")
    counted = join.aggregate({"n": "count(*)"})
    assert repr(counted) == "<JoinAggregateQuery: SELECT count(*) AS n FROM a, b WHERE a.k = b.k WINDOW '1 h'>"
    assert repr(db.aggregate("a", {"n": "sum(x)"}, by="k")) == "<AggregateQuery: SELECT sum(x) AS n FROM a GROUP BY k>"
    selected = db.select("a", on="x", predicates={"p": "x > 1"})
    assert repr(selected) == "<SelectionQuery: SELECT * FROM a WHERE x > 1 WITH PREFERENCE desc>"
    assert repr(db.query("a").where("x > 1")) == "<QueryBuilder: SELECT * FROM a WHERE x > 1>"
    assert "<StandingQueries: SELECT * FROM a, b" in repr(db.standing([join]))
    assert repr(join.run()).startswith("<JoinAnswer of a, b: ")


def test_a_join_that_prints_can_be_asked_in_those_words(db: nile.Database) -> None:
    join = db.join("a", "b", on="k", window="1 hour")
    written = repr(join).removeprefix("<JoinQuery: ").removesuffix(">")
    assert len(db.sql(written)) == len(join.run().to_arrow()) > 0


def test_a_preference_that_is_none_is_refused_where_it_is_written(db: nile.Database) -> None:
    for prefer in (
        db.join("a", "b", on="k", window="1 h").prefer,
        db.select("a", on="x", predicates={"p": "x > 1"}).prefer,
        db.query("a").prefer,
    ):
        with pytest.raises(nile.ConfigError, match="needed one of desc, weighted, asc; got 'best'"):
            prefer("best")  # type: ignore[operator]


def test_the_name_of_a_stream_is_no_statement_but_we_know_what_is_meant(db: nile.Database) -> None:
    with pytest.raises(nile.SqlError, match=r"write SELECT \* FROM a"):
        db.sql("a")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["sq"], "did you mean 'sql'?"),
        (["nosuch"], "there are bench, build"),
        (["run", "nope.toml"], "nope.toml, which is not a file"),
        (["store", "check", "nope"], "check the path; nile.connect(path) makes one"),
    ],
)
def test_a_command_that_cannot_be_says_what_could(arguments: list[str], told: str) -> None:
    run = CliRunner().invoke(main, arguments)
    assert run.exit_code == 2
    assert told in run.output


def test_statements_may_come_after_c() -> None:
    run = CliRunner().invoke(main, ["sql", "-c", "SHOW STREAMS", "-c", "SHOW RELATIONS"])
    assert run.exit_code == 0, run.output


def test_the_help_of_groups_is_not_cut_off() -> None:
    commands = CliRunner().invoke(main, ["store", "--help"]).output.partition("Commands:")[2]
    assert commands
    assert "..." not in commands


OLDER = [
    (
        "SELECT TUMBLE_START(ts, INTERVAL '1' HOUR) AS s, TUMBLE_END(ts, INTERVAL '1' HOUR) AS e, item_id, count(*) "
        "AS n FROM store1 GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), item_id",
        "SELECT window_start AS s, window_end AS e, item_id, count(*) AS n FROM TUMBLE (store1, ts, '1 hour') "
        "GROUP BY window_start, window_end, item_id",
    ),
    (
        "SELECT HOP_END(ts, INTERVAL '10' MINUTE, INTERVAL '1' HOUR) AS e, sum(price) AS n FROM store1 AS a "
        "WHERE a.price > 1 GROUP BY HOP(ts, INTERVAL '10' MINUTE, INTERVAL '1' HOUR) HAVING count(*) > 1",
        "SELECT window_end AS e, sum(price) AS n FROM HOP (store1, ts, '10 min', '1 hour') AS a "
        "WHERE a.price > 1 GROUP BY window_start, window_end HAVING count(*) > 1",
    ),
    (
        "SELECT SESSION_START(ts, INTERVAL '9' MINUTE) AS s, item_id, count(*) AS n FROM store1 "
        "GROUP BY SESSION(ts, INTERVAL '9' MINUTE), item_id",
        "SELECT window_start AS s, item_id, count(*) AS n FROM SESSION (store1 PARTITION BY item_id, ts, '9 min') "
        "GROUP BY window_start, window_end, item_id",
    ),
    ("VALUES (1, 'a'), (2, NULL)", "SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS valueslist"),
]


@pytest.mark.parametrize(("older", "newer"), OLDER)
def test_another_spelling_is_the_same_query(older: str, newer: str) -> None:
    assert read_statement(older, CATALOG) == read_statement(newer, CATALOG)
    assert read_statement(statement_text(read_statement(older, CATALOG)), CATALOG) == read_statement(older, CATALOG)


def test_a_query_is_described_and_summarized() -> None:
    db = connect_catalog()
    told = db.sql("DESCRIBE SELECT room, [floor] AS l FROM rooms").to_arrow().to_pydict()
    assert told["column"] == ["room", "l"]
    values = "(VALUES (1, 'b'), (2, 'a'), (2, NULL), (4, 'b')) AS v(x, t)"
    rows = db.sql(f"SUMMARIZE SELECT * FROM {values}").to_arrow().to_pylist()
    assert {name: rows[0][name] for name in ("min", "max", "unique", "avg", "q50", "count")} == {
        "min": "1", "max": "4", "unique": 3, "avg": 2.25, "q50": 2.0, "count": 4,
    }  # fmt: skip
    assert (rows[1]["min"], rows[1]["max"], rows[1]["unique"], rows[1]["null_percentage"]) == ("a", "b", 2, 25.0)
    assert rows[1]["avg"] is None
    assert db.sql("SUMMARIZE rooms").to_arrow().num_rows == db.sql("DESCRIBE rooms").to_arrow().num_rows
    assert db.sql("SUMMARIZE SELECT room FROM rooms WHERE floor > 99").to_arrow().to_pylist()[0]["count"] == 0
    for text in ("SUMMARIZE SELECT room FROM rooms", "DESCRIBE SELECT room FROM rooms"):
        statement = read_statement(text, CATALOG)
        assert read_statement(statement_text(statement), CATALOG) == statement
