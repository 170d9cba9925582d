"""The notebooks of docs run, and show what they keep; answers and plots as notebooks show them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from notebooks import NOTEBOOKS, code_cells, outputs_of, shown_in

import nile
from nile.report.pages.notebook import worded
from nile.summaries.estimate import Estimate


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_keeps(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NILE_COSTS", raising=False)  # as whoever reads it runs it
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert [shown_in(cell) for cell in code_cells(notebook)] == outputs_of(notebook)


def test_there_are_two_notebooks() -> None:
    assert len(NOTEBOOKS) >= 2


@pytest.fixture
def db() -> nile.Database:
    random = np.random.default_rng(5)
    made = nile.connect()
    for name in ("here", "there"):
        ts = np.sort(random.uniform(0, 3_000, 4_000))
        item = random.zipf(1.4, 4_000) % 300
        made.register(name, pa.table({"ts": ts, "item": item, "<b>": random.normal(size=4_000)}), time="ts")
    return made


def joined(db: nile.Database) -> nile.JoinQuery:
    return db.join("here", "there", on="item").within("5 min")


def test_every_answer_shows_its_first_rows_and_what_it_is_worth_and_runs_nothing_for_it(db: nile.Database) -> None:
    answers = [
        joined(db).prefer("weighted").run(nile.Budget(fraction=0.2)),
        db.sql("SELECT item FROM here WHERE item < 5 WITH PREFERENCE desc item", budget=nile.Budget(0.5)),
        db.sql("SELECT A.item FROM here A, there B WHERE A.item = B.item WITH PREFERENCE desc A.item BUDGET 10 %"),
    ]
    for answer in answers:
        before = answer._repr_html_()
        assert "<tbody></tbody>" in before
        assert "coverage" not in before
        answer.to_arrow()
        told = answer._repr_html_()
        assert 1 <= told.count("<tr><td>") <= 10
        assert "<b>coverage: </b>" in told
        assert "<b>spent: </b>" in told
        assert "<b>the exact answer: </b>" in told


def test_aggregates_show_their_numbers_and_plot_them_with_their_intervals(db: nile.Database) -> None:
    answer = joined(db).prefer("weighted").run(nile.Budget(fraction=0.2)).aggregate({"n": "count(*)"}, by="here.item")
    assert "<th>n_low" in answer._repr_html_()
    plot = answer.plot("n")
    bars = {bar.name: bar for bar in plot.bars}
    for (item,) in answer.groups():
        told = answer.estimate("n", group=item)
        assert (bars[str(item)].low, bars[str(item)].high) == (told.low, told.high)
    with pytest.raises(nile.UnknownColumn, match="plot: needed one of n; got 'm'"):
        answer.plot("m")


def test_a_plot_of_a_sample_is_unbiased_and_its_intervals_hold_the_truth(db: nile.Database) -> None:
    exact = joined(db).run()
    truth = {bar.name: bar.value for bar in exact.plot("item", bins=500).bars}
    assert sum(truth.values()) == exact.estimate.value
    assert all(bar.low == bar.value == bar.high for bar in exact.plot("item").bars)
    sums: dict[str, float] = dict.fromkeys(truth, 0.0)
    held = bars = 0
    first = joined(db).prefer("weighted").run(nile.Budget(fraction=0.4))
    for seed in range(30):
        sample = first.again(seed=seed)
        for bar in sample.plot("item", bins=500).bars:
            sums[bar.name] += bar.value / 30
            if math.isfinite(bar.high):
                held += bar.low <= truth[bar.name] <= bar.high
                bars += 1
            assert bar.high > 0.0
    assert sum(sums.values()) == pytest.approx(sum(truth.values()), rel=0.05)
    assert bars >= 30
    assert held >= 0.85 * bars


def test_a_plot_by_age_and_by_time_counts_every_pair_once(db: nile.Database) -> None:
    exact = joined(db).run()
    table = exact.to_arrow()
    age = np.abs(np.asarray(table["left_ts"].cast(pa.int64())) - np.asarray(table["right_ts"].cast(pa.int64()))) / 1e9
    wanted, _ = np.histogram(age, 20)
    assert [bar.value for bar in exact.plot("age").bars] == wanted.tolist()
    times = exact.plot("left_ts", bins=7).bars
    assert len(times) == 7
    assert sum(bar.value for bar in times) == len(table)
    assert times[0].name.startswith("1970-01-01 00:0")


def test_columns_of_any_kind_are_plotted_and_text_cannot_break_the_page() -> None:
    many = ["<script>"] * 3 + [None] + [f"t{i}" for i in range(40)]
    rows = {
        "text": many,
        "number": [math.nan, math.inf, None, *range(41)],
        "whole": [1, 1, None, *([3] * 41)],
        "flag": [True] * 44,
        "list": [[1]] * 44,
        "none": [None] * 44,
    }
    answer = nile.connect().register("s", rows).sql("SELECT * FROM s")
    for name in rows:
        plot = answer.plot(name, bins=10)
        assert sum(bar.value for bar in plot.bars) == 44, name
        assert "<script>&lt;" not in plot.html()
    assert [bar.name for bar in answer.plot("text", bins=3).bars] == ["<script>", "t0", "39 others", "null"]
    assert [(bar.name, bar.value) for bar in answer.plot("whole").bars] == [("1", 2), ("2", 0), ("3", 41), ("null", 1)]
    assert "&amp;lt;script&amp;gt;" in answer.plot("text")._repr_html_()
    with pytest.raises(nile.ConfigError, match="needed a whole number of bins, 1 to 500; got 0"):
        answer.plot("text", bins=0)
    with pytest.raises(nile.UnknownColumn, match="got 'colour'; name one"):
        answer.plot("colour")


def test_a_plot_is_a_page_that_loads_nothing_and_says_where_it_cannot_be_written(
    db: nile.Database, tmp_path: Path
) -> None:
    plot = joined(db).prefer("desc").run(nile.Budget(fraction=0.1)).plot()
    page = plot.save(tmp_path / "plot.html").read_text(encoding="utf-8")
    assert not re.findall(r"(?:src|href)=", page)
    assert "picked by preference" in page
    (tmp_path / "file").write_text("")
    with pytest.raises(nile.ConfigError, match="needed a file that can be written"):
        plot.save(tmp_path / "file" / "plot.html")


def test_partials_show_what_is_known(db: nile.Database) -> None:
    for partial in db.sql("SELECT item FROM here WHERE item < 5 WITH PREFERENCE desc item").progress(every=0):
        told = partial._repr_html_()
        assert "<b>the full answer: </b>" in told
        assert told.count("<tr><td>") == min(10, len(partial))


def test_an_estimate_is_worded_with_what_it_claims() -> None:
    assert worded(Estimate.exact(3.0)) == "3, exactly"
    assert worded(Estimate(1234.0, 1100.0, 1350.0, 0.95, False)) == "1,234, from 1,100 to 1,350 (95 %, not certified)"
    assert worded(Estimate(5.0, 5.0, math.inf, 1.0, True)) == "at least 5 (100 %, certified)"
    assert worded(Estimate(5.0, 4.0, math.inf, 0.95, False)) == "about 5, at least 4 (95 %, not certified)"
    assert worded(Estimate.guess(2.0)) == "2; nothing is claimed"
