"""Histograms and intervals as drawings: what is drawn is what was counted."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest

from nile.report.histograms import Histogram
from nile.report.pages.bars import Compared, Told, histogram_figure, intervals_chart
from nile.report.pages.svg import HEIGHT, linear_axis


def test_an_axis_has_few_steps_however_far_beyond_the_whole_it_goes() -> None:
    for greatest in (0.3, 1.0, 1.1, 4.0, 170.0):
        ticks = linear_axis([greatest], "share").ticks
        assert 3 <= len(ticks) <= 7
        assert ticks[0][0] == 0.0
        assert ticks[-1][0] >= greatest


def test_bars_are_as_high_as_the_shares() -> None:
    compared = Compared("By <key>", "key", ("a", "b"), Histogram((1, 3), (4.0, 4.0)))
    assert compared.shares() == ((0.25, 0.75), (0.5, 0.5))
    figure = ET.fromstring(str(histogram_figure(compared)))
    place = linear_axis([0.75], "share").place
    heights = {
        kind: [float(bar.attrib["height"]) for bar in figure.iter("rect") if bar.attrib["class"] == kind][1:]
        for kind in ("was", "got")
    }  # the first of each is its swatch in the legend
    assert heights["was"] == pytest.approx([HEIGHT - place(share) for share in (0.25, 0.75)], abs=0.06)
    assert heights["got"] == pytest.approx([HEIGHT - place(0.5)] * 2, abs=0.06)
    assert "differ most at a: 50" in compared.reading()


def test_an_empty_histogram_says_that_there_is_nothing() -> None:
    assert Histogram((0, 0), (0.0, 0.0)).mse is None
    assert "Nothing to compare" in Compared("t", "x", ("a", "b"), Histogram((2, 0), (0.0, 0.0))).reading()


def test_an_interval_that_missed_the_truth_is_a_cross_and_an_open_one_goes_to_the_top() -> None:
    told = [Told("5 %", 0.5, 0.6, math.inf, True, "held"), Told("5 %", 0.2, 0.3, 0.4, False, "missed")]
    drawn = ET.fromstring(str(intervals_chart(told, ["5 %"], label="intervals")))
    lines = [line for line in drawn.iter("line") if line.attrib["class"].startswith("told")]
    assert [line.attrib["class"] for line in lines] == ["told s0", "told miss"]
    assert float(lines[0].attrib["y2"]) == pytest.approx(0.0, abs=0.1)
    assert float(lines[1].attrib["y2"]) > 0.0
    assert [title.text for title in drawn.iter("title")] == ["held", "missed"]
