"""The runner of the atlas: the same figures on any number of processes, interrupted or not; the page and the CSV."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browser import browser, fitted, in_browser
from click.testing import CliRunner
from workload_atlas import GOOD, written

from nile.experiments.atlas.catalogue.shelf import CATALOGUE
from nile.experiments.atlas.edge import load_experiment
from nile.experiments.atlas.page import render
from nile.experiments.atlas.report import atlas_of, csv_of
from nile.experiments.atlas.runner import KEPT, Kept, run_points
from nile.experiments.atlas.verdicts import Spread
from nile.experiments.cli import main
from nile.experiments.run.progress import Progress
from nile.streams.synthetic import SyntheticRetail

SEVERAL = GOOD.replace("tuples = 300\n", 'tuples = 300\nwindow = 0.1\n\n[panels]\ncosts = ["engine", "memory"]\n')


def atlas(file: Path, out: Path, *, jobs: int = 1, resume: bool = False) -> dict[str, Any]:
    one = load_experiment(file)
    kept = Kept(out, resume=resume)
    points = run_points([one], None, kept, Progress(quiet=True), quick=True, jobs=jobs)
    kept.close()
    made = atlas_of(
        [one], points, kept.records, None, quick=True, command="nile experiment run mine", again=["--quick"]
    )
    del made["environment"]
    return made


@pytest.mark.slow
def test_figures_are_the_same_for_one_process_two_runs_and_two_processes(tmp_path: Path) -> None:
    file = written(tmp_path, SEVERAL)
    first = atlas(file, tmp_path / "1")
    assert atlas(file, tmp_path / "2") == first
    assert atlas(file, tmp_path / "3", jobs=2) == first
    panels = first["experiments"][0]["panels"]
    assert [panel["panel"] for panel in panels] == [{"costs": "engine"}, {"costs": "memory"}]
    recall = panels[0]["curves"]["recall"]
    assert [point["seeds"] for point in recall["nile"]] == [3, 3]
    assert recall["nile"][0]["middle"] < recall["nile"][1]["middle"] <= 1.0


def test_an_interrupted_run_goes_on_where_it_was_and_ends_alike(tmp_path: Path) -> None:
    file = written(tmp_path, SEVERAL)
    whole = atlas(file, tmp_path / "whole")
    lines = (tmp_path / "whole" / KEPT).read_text().splitlines(keepends=True)
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / KEPT).write_text("".join(lines[:5]) + lines[5][:20])
    assert atlas(file, tmp_path / "torn", resume=True) == whole
    again = (tmp_path / "torn" / KEPT).read_text().splitlines(keepends=True)
    assert again[:5] == lines[:5]
    assert sorted(again) == sorted(lines)


def test_without_resume_nothing_of_an_earlier_run_is_taken(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)
    (tmp_path / KEPT).write_text('{"key": "x", "record": {}}\n')
    atlas(file, tmp_path)
    assert '"x"' not in (tmp_path / KEPT).read_text()


def test_the_command_writes_the_page_the_data_and_the_csv(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)
    done = CliRunner().invoke(
        main, ["experiment", "run", str(file), "--quick", "--jobs", "1", "--out", str(tmp_path / "o")]
    )
    assert done.exit_code == 0, done.output
    assert "mine (paper):" in done.output
    told = json.loads((tmp_path / "o" / "atlas.json").read_text())
    assert told["experiments"][0]["panels"][0]["verdicts"][0]["verdict"] == "holds"
    page = (tmp_path / "o" / "atlas.html").read_text()
    assert page == render(told)
    assert "nile experiment run mine --quick --out atlas" in page
    events = [json.loads(line) for line in done.output.splitlines() if line.startswith("{")]
    steps = [event for event in events if event["event"] == "step"]
    assert len(steps) == 12
    assert steps[-1]["remaining"] == 0.0


def test_the_command_names_what_is_wrong(tmp_path: Path) -> None:
    told = CliRunner().invoke(main, ["experiment", "run", "promisin-9a", "--out", str(tmp_path)])
    assert told.exit_code == 2
    assert "did you mean 'promising-9a'" in told.output
    told = CliRunner().invoke(
        main, ["experiment", "run", "promising-9a", "--data", str(tmp_path / "none"), "--out", str(tmp_path)]
    )
    assert told.exit_code == 2
    assert "--data: needed an existing Parquet or CSV file" in told.output


def test_the_list_has_a_line_an_experiment_with_its_claim() -> None:
    lines = CliRunner().invoke(main, ["experiment", "list"]).output.splitlines()
    assert any(re.fullmatch(r"promising-9a +Insertion costs more .*", line) for line in lines)


def test_real_data_are_measured_where_they_are_named_and_missed_where_not(tmp_path: Path) -> None:
    sales = tmp_path / "sales.parquet"
    SyntheticRetail(seed=3, tuples=1_000, items=40, vstores=2).write_parquet(sales)
    both = GOOD.replace(
        "[options]", '[panels]\ndata = ["synthetic", "real"]\n\n[real]\nwindow = 3600.0\n\n[options]', 1
    )
    file = written(tmp_path, both)
    command = ["experiment", "run", str(file), "--quick", "--jobs", "1", "--out", str(tmp_path / "o")]
    named = ["--data", str(sales), "--left", "vstore = 0", "--right", "vstore = 1"]
    done = CliRunner().invoke(main, [*command, *named])
    assert done.exit_code == 0, done.output
    told = json.loads((tmp_path / "o" / "atlas.json").read_text())
    assert [panel["panel"]["data"] for panel in told["experiments"][0]["panels"]] == ["synthetic", "real"]
    assert told["data"]["name"] == "sales.parquet"
    assert "--data" in (tmp_path / "o" / "atlas.html").read_text()
    one = load_experiment(file)
    kept = Kept(tmp_path / "p", resume=False)
    points = run_points([one], None, kept, Progress(quiet=True), quick=True, jobs=1)
    kept.close()
    without = atlas_of([one], points, kept.records, None, quick=True, command="", again=[])
    assert without["experiments"][0]["missing"] == [{"data": "real"}]
    assert "Not measured, for want of data: real data" in render({**without, "environment": {}})


def test_of_seeds_the_mean_counts_and_of_runs_the_median() -> None:
    assert Spread.of([1.0, 2.0, 6.0], by_clock=False) == Spread(3.0, 1.0, 6.0, 3)
    assert Spread.of([1.0, 2.0, 6.0], by_clock=True) == Spread(2.0, 1.0, 6.0, 3)
    assert Spread.of([], by_clock=True) is None


def test_times_are_taken_as_often_in_a_quick_run(tmp_path: Path) -> None:
    feed = load_experiment(CATALOGUE / "nile-feed.toml")
    assert len(feed.seeds_of(True)) == len(feed.seeds_of(False)) >= 5
    quick = load_experiment(written(tmp_path, GOOD))
    assert (len(quick.seeds_of(True)), len(quick.seeds_of(False))) == (3, 10)


# --- the page ---------------------------------------------------------------------------------------------

HOSTILE = "<script>alert(1)</script>\"'&\x00\u202e" + "x" * 10_000


class Page(HTMLParser):
    """What a page holds: tags with attributes, and of each figure its tags and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.figures: list[list[str]] = []
        self._open = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "figure":
            self._open = True
            self.figures.append([])
        if self._open:
            self.figures[-1].append(f"{tag}.{dict(attrs).get('class')}")

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag != "figure"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("atlas")
    one = load_experiment(written(folder, SEVERAL))
    kept = Kept(folder, resume=False)
    points = run_points([one], None, kept, Progress(quiet=True), quick=True, jobs=1)
    kept.close()
    return atlas_of(
        [one], points, kept.records, None, quick=True, command="nile experiment run mine", again=["--quick"]
    )


def test_the_page_loads_nothing_and_every_chart_has_its_sentence_and_its_table(made: dict[str, Any]) -> None:
    text = render(made)
    page = Page(text)
    assert len(page.figures) == 4
    for figure in page.figures:
        assert "svg.None" in figure
        assert "table.None" in figure
        assert "p.reading" in figure
    links = [value for _, attrs in page.tags for name, value in attrs.items() if name in ("src", "href") and value]
    assert links == ["#mine"]
    assert not re.search(r"https?://|@import|url\(", text)
    charts = [attrs for tag, attrs in page.tags if tag == "svg" and attrs.get("role") == "img"]
    assert len(charts) == 4
    assert all(attrs["width"] == "100%" and attrs["aria-label"] for attrs in charts)


def test_what_cannot_fail_is_marked_with_its_reason_and_not_counted(made: dict[str, Any]) -> None:
    told = json.loads(json.dumps(made))
    assert "by construction" not in render(told).split("How to read this")[0]
    verdicts = [one for panel in told["experiments"][0]["panels"] for one in panel["verdicts"] if one["by"] == "paper"]
    assert verdicts
    for one in verdicts:
        one["by_construction"] = "It is priced so."
    text = render(told)
    assert f"{len(verdicts)} more are true by construction." in text
    assert "By construction, so it shows nothing: </b>It is priced so." in text
    assert text.count(", by construction<") + text.count(", by construction\n") == len(verdicts)
    overview = text.split("and how they came out")[1].split("</table>")[0]
    assert f"{len(verdicts)} by construction" in overview
    assert overview.count(" hold<") == 1  # ours alone


def test_each_figure_states_its_capacity(made: dict[str, Any]) -> None:
    told = json.loads(json.dumps(made))
    each = told["experiments"][0]
    assert each["machine"] == {"capacity": [], "speed": []}
    assert "Capacity: </b>none, since the budget is given." in render(told)
    each["machine"] = {"capacity": [0.3, 4.0], "speed": []}
    assert "Capacity: </b>0.3 and 4 times the exact work, done while tuples arrive every 100 ms." in render(told)
    each["machine"] = {"capacity": [], "speed": [1e6]}
    assert "operations a second." in render(told)


def test_names_from_outside_are_shown_escaped_and_a_spreadsheet_sees_no_formula(made: dict[str, Any]) -> None:
    told = json.loads(json.dumps(made))
    each = told["experiments"][0]
    each["title"] = HOSTILE
    each["methods"][HOSTILE] = each["methods"]["nile"]
    for panel in each["panels"]:
        panel["curves"]["recall"]["=HYPERLINK(1)"] = panel["curves"]["recall"]["nile"]
        panel["curves"]["recall"][HOSTILE] = panel["curves"]["recall"].pop("nile")
        for verdict in panel["verdicts"]:
            verdict["says"] = verdict["subject"] = HOSTILE
    each["methods"]["=HYPERLINK(1)"] = each["methods"][HOSTILE]
    text = render(told)
    assert text.count("<script") == 1
    assert "\x00" not in text
    rows = list(csv.reader(io.StringIO(csv_of(told))))
    assert any(row[3] == "'=HYPERLINK(1)" for row in rows)
    assert not any(cell.startswith(("=", "+", "-", "@", "\t")) for row in rows for cell in row)


@browser
def test_a_browser_finds_nothing_on_the_page_that_the_policy_forbids(made: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "atlas.html"
    page.write_text(render(made), encoding="utf-8")
    told = in_browser(page, tmp_path / "home").stderr
    assert not re.search(r"Refused|Content Security Policy|violates|Uncaught", told), told


@browser
@pytest.mark.parametrize(("width", "scheme"), [(390, 0), (390, 1), (1280, 0), (1280, 1)])
def test_the_page_fits_its_window(made: dict[str, Any], tmp_path: Path, width: int, scheme: int) -> None:
    measured = fitted(render(made), tmp_path, width, scheme)
    assert measured["wide"] <= measured["room"]
    assert measured["least"] >= 12
    assert measured["cut"] == []


def test_nothing_on_the_page_is_wider_than_a_narrow_window(made: dict[str, Any]) -> None:
    """Drawings take the width they are given, and tables scroll in a box of their own."""
    page = Page(render(made))
    widths = {attrs.get("width") for tag, attrs in page.tags if tag == "svg"}
    assert widths == {"100%", "34", None}  # charts, pieces of line in a legend, marks at a place of a chart
    text = render(made)
    assert text.count("<table") == len(re.findall(r'<div class="scroll"><table', text))
