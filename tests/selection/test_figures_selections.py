"""Figures 15 and 16: what is measured, on small streams; the orders that hold by a wide margin."""

from __future__ import annotations

import math

import pytest
from click.testing import CliRunner

from nile.experiments.figures.selections import CONTESTANTS, Measured, Setting, figure, main, table
from nile.summaries.errors import ConfigError

SMALL = Setting(tuples=8_000, seeds=1, costs="memory", budgets=(0.3, 0.6), counts=(20, 100))


def by_method(points: list[Measured]) -> dict[str, list[Measured]]:
    return {name: [point for point in points if point.method == name] for name in CONTESTANTS}


def test_figure_15a_summaries_beat_feeding_each_query_and_the_index_beats_both() -> None:
    found = by_method(list(figure("15a", SMALL)))
    for mine, ranges, paper, naive, index in zip(*found.values(), strict=True):
        assert naive.y < paper.y <= index.y == mine.y == ranges.y == 1.0
        assert ranges.spent < mine.spent == pytest.approx(index.spent, rel=0.01)
        assert naive.y == pytest.approx(naive.x, abs=0.02)
        assert paper.spent <= paper.x + 1e-9


def test_figure_15b_naive_answers_all_of_few_queries_and_its_share_falls_with_their_number() -> None:
    found = by_method(list(figure("15b", SMALL)))
    few, many = found["naive"]
    assert (few.x, many.x) == (20, 100)
    assert few.y == 1.0
    assert many.y == pytest.approx(SMALL.grant, abs=0.02)


def test_figure_16b_a_budget_for_everything_leaves_no_error() -> None:
    points = list(figure("16b", Setting(tuples=4_000, seeds=1, costs="memory", budgets=(0.1, 1.0))))
    for short, full in by_method(points).values():
        assert full.y == 0.0 == full.relative
        assert short.method not in ("paper", "naive") or short.y > 0.0
        assert short.unanswered == 0.0


def test_figure_16a_tells_which_queries_have_no_average() -> None:
    paper = list(figure("16a", Setting(tuples=2_000, seeds=1, budgets=(0.01,))))[2]
    assert math.isnan(paper.y)
    assert paper.unanswered == 1.0
    assert "unanswered" in table([paper])


def test_over_the_structures_fewer_borders_mean_more_tuples_looked_at_in_vain() -> None:
    """T3's value buckets pay for themselves where a scan costs more than a look-up; T4 pays for a detector besides."""
    points = list(figure("structures", Setting(tuples=8_000, seeds=1, costs="memory", budgets=(0.2,))))
    found = {point.method: point.y for point in points}
    assert max(found["T1"], found["T2"]) < found["T4"] <= found["T3"]


def test_the_command_prints_the_figures_asked_for() -> None:
    result = CliRunner().invoke(main, ["--figure", "15b", "--tuples", "1000", "--seeds", "1", "--costs", "memory"])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "Figure 15b: share of output against the number of queries (memory costs)"
    assert [line.split()[0] for line in lines[2:7]] == ["nile", "nile", "paper", "naive", "predicate-index"]


def test_an_unknown_figure_and_a_stream_too_small_are_refused() -> None:
    with pytest.raises(ConfigError, match="needed one of 15a, 15b, 16a, 16b, structures; got '17'"):
        list(figure("17", SMALL))
    with pytest.raises(ConfigError, match=r"needed 1,000 tuples and 1 seed or more; got 10 and 0"):
        Setting(tuples=10, seeds=0)
