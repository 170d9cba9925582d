"""The accuracy report of a join: its figures are those of a plain recount, its page is whole and safe."""

from __future__ import annotations

import html
import json
import math
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.answers.join_answer import JoinAnswer
from nile.report.accuracy.report import AccuracyReport
from nile.report.truth import exact_pairs

SECOND = 1_000_000_000
WINDOW = 40 * SECOND
HOSTILE = '<script>alert("1")</script>'


def streams(n: int = 400, *, keys: int = 40, seed: int = 3) -> tuple[pa.Table, pa.Table]:
    """Two streams with a few heavy keys and many rare ones."""
    chance = np.random.Generator(np.random.PCG64(seed))
    made = []
    for _ in range(2):
        ts = np.cumsum(chance.integers(0, 4, n)).astype(np.float64)
        item = np.minimum(chance.zipf(1.6, n), keys)
        made.append(pa.table({"ts": ts, "item": [f"i{k:03d}" for k in item]}))
    return made[0], made[1]


def joined(preference: str, *, n: int = 400, cap: int = 4, **using: Any) -> nile.JoinQuery:
    left, right = streams(n)
    db = nile.connect()
    db.register("l", left, time="ts").register("r", right, time="ts")
    query = db.join("l", "r", on="item", window="40 s").prefer(preference, outlier_cap=cap)
    return query.guided_by("countsketch").using(**using)


def pairs_by_loops(left: pa.Table, right: pa.Table) -> list[dict[str, Any]]:
    """Every pair of the window join, and how many tuples its key had in the window when it was complete."""
    tuples = [
        (int(row["ts"] * SECOND), side, i, row["item"])
        for side, table in enumerate((left, right))
        for i, row in enumerate(table.to_pylist())
    ]
    found = []
    for one, two in product((t for t in tuples if t[1] == 0), (t for t in tuples if t[1] == 1)):
        if one[3] == two[3] and abs(one[0] - two[0]) <= WINDOW:
            last = max(one, two)
            inside = [t for t in tuples if t[3] == one[3] and t[:3] <= last[:3] and t[0] >= last[0] - WINDOW]
            found.append({"left": one[2], "right": two[2], "key": one[3], "age": abs(one[0] - two[0]),
                          "count": len(inside)})  # fmt: skip
    return found


@pytest.fixture(scope="module")
def truth() -> list[dict[str, Any]]:
    return pairs_by_loops(*streams())


@pytest.fixture(scope="module")
def answer() -> JoinAnswer:
    return joined("weighted").run(0.3)


@pytest.fixture(scope="module")
def report(answer: JoinAnswer) -> AccuracyReport:
    return answer.report(budgets=[0.1, 0.5], seeds=3)


def test_the_truth_is_that_of_loops_with_keys_ranked_by_value(answer: JoinAnswer, truth: list[dict[str, Any]]) -> None:
    exact = exact_pairs(answer.joined)
    keys = sorted({pair["key"] for pair in truth})
    frequency = {key: sum(table.column("item").to_pylist().count(key) for table in streams()) for key in keys}
    told = zip(exact.left, exact.right, exact.key_rank, exact.age, exact.window_count, exact.frequency, strict=True)
    expected = {(p["left"], p["right"], keys.index(p["key"]), p["age"], p["count"], frequency[p["key"]]) for p in truth}
    assert set(told) == expected
    assert len(exact) == len(truth)


def test_recall_and_outliers_are_those_of_a_recount(
    answer: JoinAnswer, report: AccuracyReport, truth: list[dict[str, Any]]
) -> None:
    got = {(row["left_ordinal"], row["right_ordinal"]) for row in answer.to_arrow().to_pylist()}
    assert report.exact == len(truth)
    assert report.recall == len(got) / len(truth)
    rare = [pair for pair in truth if pair["count"] <= 4]
    missed = [pair for pair in rare if (pair["left"], pair["right"]) not in got]
    found = report.outliers
    assert found is not None
    assert (found.total, found.missed) == (len(rare), len(missed))
    listed = {(pair.left, pair.right, pair.key, pair.count) for pair in found.missed_pairs}
    assert listed <= {(p["left"], p["right"], p["key"], p["count"]) for p in missed}
    assert len(listed) == min(50, len(missed))
    assert [pair.count for pair in found.missed_pairs] == sorted(pair.count for pair in found.missed_pairs)
    assert found.missed_pairs[-1].count == sorted(pair["count"] for pair in missed)[len(listed) - 1]


def test_recall_over_budget_is_the_mean_over_seeds_of_runs_made_by_hand(
    report: AccuracyReport, truth: list[dict[str, Any]]
) -> None:
    assert list(report.recalls) == [0.1, 0.3, 0.5]
    query = joined("weighted")
    for budget in (0.1, 0.5):
        found = [query.using(seed=seed).run(budget).to_arrow().num_rows / len(truth) for seed in range(3)]
        assert report.recalls[budget] == math.fsum(found) / 3
    opponents = {run["method"] for run in report.runs} - {"nile"}
    assert opponents == {"hash-drop", "shed-uniform", "hash-keys"}


def test_histograms_count_the_exact_pairs_and_the_weights_of_those_found(
    answer: JoinAnswer, report: AccuracyReport, truth: list[dict[str, Any]]
) -> None:
    keys = sorted({pair["key"] for pair in truth})
    of = {(pair["left"], pair["right"]): pair for pair in truth}
    exact_key, exact_age, got_key, got_age = ([0.0] * 100 for _ in range(4))
    key_bin = {key: rank * 100 // len(keys) for rank, key in enumerate(keys)}
    for pair in truth:
        exact_key[key_bin[pair["key"]]] += 1
        exact_age[min(99, pair["age"] * 100 // WINDOW)] += 1
    for row in answer.to_arrow().to_pylist():
        pair = of[row["left_ordinal"], row["right_ordinal"]]
        got_key[key_bin[pair["key"]]] += row["weight"]
        got_age[min(99, pair["age"] * 100 // WINDOW)] += row["weight"]
    by_key, by_age = (one.histogram for one in report.histograms)
    assert list(by_key.exact) == exact_key
    assert list(by_age.exact) == exact_age
    assert by_key.obtained == pytest.approx(got_key)
    assert by_age.obtained == pytest.approx(got_age)
    assert by_key.mse == report.looked_at["hist_mse_key"]
    named = {name for name in report.histograms[0].bins if name}
    assert named == set(keys)


def test_cells_tell_how_far_each_estimate_is_from_the_count(report: AccuracyReport) -> None:
    left = streams()[0].column("item").to_pylist()
    cells = report.cells[0]
    assert [one.stream for one in report.cells] == ["l", "r"]
    assert cells.tuples.sum() == len(left)
    assert [int(row.sum()) for row in cells.tuples] == [zone.summarised for zone in cells.zones]
    starts = {(zone.granularity, zone.first, zone.last): zone for zone in cells.zones}
    for wrong in cells.worst:
        zone = starts[wrong.granularity, wrong.first, wrong.last]
        assert left[zone.start : zone.end].count(wrong.key) == wrong.counted
        assert abs(wrong.estimated - wrong.counted) <= wrong.off
        assert wrong.estimated != wrong.counted


def test_a_summary_that_tells_every_key_apart_is_nowhere_wrong() -> None:
    report = joined("desc", rows=5, columns=1024).run(0.2).report(budgets=[0.2], seeds=1)
    assert [one.share for one in report.cells] == [0.0, 0.0]
    assert [one.worst for one in report.cells] == [(), ()]
    assert not any("sketch" in line for line in report.advice)


def test_intervals_hold_the_truth_and_certain_bounds_always_do(report: AccuracyReport) -> None:
    assert {one.truth for one in report.intervals} == {float(report.exact)}
    assert len(report.intervals) == 9
    for one in report.coverage:
        assert one.nominal == 0.95
        mine = [i for i in report.intervals if i.budget == one.budget]
        assert one.held == sum(i.low <= i.truth <= i.high for i in mine)
    certain = joined("desc").run(0.2).report(budgets=[0.1, 0.2], seeds=2)
    assert [(one.nominal, one.share) for one in certain.coverage] == [(1.0, 1.0), (1.0, 1.0)]


class Page(HTMLParser):
    """Tags, addresses and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.figures: list[list[str]] = []
        self.labels: list[str] = []
        self._depth = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "figure":
            self.figures.append([])
        if self.figures and self._depth >= 0:
            self.figures[-1].append(tag)
        for name, value in attrs:
            if name in ("src", "href", "action", "srcset", "xlink:href"):
                self.addresses.append(str(value))
            if name == "aria-label" and tag == "svg":
                self.labels.append(str(value))


def test_the_page_is_whole_and_every_chart_has_its_sentence_and_its_table(report: AccuracyReport) -> None:
    page = Page(report.html())
    assert page.addresses == []
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert page.tags.count("script") == 1  # the page's own, allowed by its hash
    assert len(page.figures) >= 10
    for figure in page.figures:
        assert {"figcaption", "h3", "p", "table"} <= set(figure)
    assert all(len(label) > 20 for label in page.labels)
    assert all(line in html.unescape(report.html()) for line in report.advice)


def test_the_json_beside_the_page_has_the_same_figures(report: AccuracyReport, tmp_path: Path) -> None:
    page, figures = report.save(tmp_path / "new" / "mine.html")
    assert page.read_text(encoding="utf-8") == report.html()
    assert figures == tmp_path / "new" / "mine.json"
    read = json.loads(figures.read_text(encoding="utf-8"))
    assert read == json.loads(json.dumps(report.record()))
    assert read["looked_at"]["recall"] == report.recall
    assert sorted(path.name for path in page.parent.iterdir()) == ["mine.html", "mine.json"]
    assert [path.name for path in report.save(tmp_path / "folder")] == ["report.html", "report.json"]


def test_a_report_of_the_same_answer_is_the_same(answer: JoinAnswer, report: AccuracyReport) -> None:
    assert answer.report(budgets=[0.1, 0.5], seeds=3).record() == report.record()


def test_hostile_keys_and_names_are_shown_and_do_nothing() -> None:
    keys = [HOSTILE, "\x00nul", "\u202eright to left", "x" * 10_000, "=1+1", '"&']
    table = pa.table({"ts": [float(i) for i in range(60)], HOSTILE: [keys[i % 6] for i in range(60)]})
    db = nile.connect()
    db.register("s", table, time="ts")
    query = db.join("s", "s", on=HOSTILE, window="12 s").prefer("desc", outlier_cap=20)
    report = query.guided_by("countsketch").using(columns=2, buckets=1).run(0.3).report(budgets=[0.3], seeds=1)
    text = report.html()
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text
    assert not any(mark in text for mark in ("\x00", "\u202e", "x" * 100))
    assert Page(text).tags.count("script") == 1


def test_an_exact_answer_has_nothing_to_report() -> None:
    with pytest.raises(nile.ConfigError, match="needed an answer under a budget"):
        joined("desc").run().report()


@pytest.mark.parametrize(
    ("asked", "error", "told"),
    [
        ({"budgets": [0.0]}, nile.BudgetError, "needed fractions of the exact work above 0; got 0.0"),
        ({"budgets": [float("nan")]}, nile.BudgetError, "got nan"),
        ({"budgets": []}, nile.BudgetError, "got none"),
        ({"seeds": 0}, nile.ConfigError, "needed a whole number, 1 to 1000; got 0"),
        ({"against": "hash-dorp"}, nile.ConfigError, "did you mean 'hash-drop'"),
        ({"against": ["exact", "nile"]}, nile.ConfigError, "got 'nile'"),
        ({"engine": "flink"}, nile.ConfigError, "needed one of local, spark; got 'flink'"),
    ],
)
def test_what_cannot_be_measured_is_named(
    answer: JoinAnswer, asked: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match="report") as raised:
        answer.report(**asked)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_place_that_cannot_be_written_is_named(report: AccuracyReport, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(nile.ConfigError, match="needed a file that can be written"):
        report.save(tmp_path / "file" / "x.html")


def test_an_empty_exact_answer_is_told_and_drawn() -> None:
    db = nile.connect()
    db.register("l", {"ts": [1.0, 2.0], "k": ["a", "b"]}, time="ts").register("r", {"ts": [1.0], "k": ["c"]}, time="ts")
    report = db.join("l", "r", on="k", window="1 s").prefer("desc").run(0.5).report(seeds=1)
    assert report.recall is None
    assert report.advice == (
        "The exact answer is empty, so there is nothing to find: check the window and the conditions.",
    )
    assert "The exact answer is empty" in report.html()
