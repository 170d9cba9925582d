"""Window graphs: forms, bounds that follow, how long a tuple may still join, and what is no window graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from nile.exact.join.window_graph import FORMS, UNBOUNDED, WindowGraph
from nile.summaries.errors import ConfigError

NAMES = ("a", "b", "c", "d")
FOUR = {(0, 1): 3, (1, 2): 4, (2, 3): 5, (1, 3): 2}


@pytest.mark.parametrize(
    ("graph", "form", "path"),
    [
        (WindowGraph.uniform(2, 5), "binary", (0, 1)),
        (WindowGraph.uniform(4, 5), "uniform clique", None),
        (WindowGraph.of(3, {(0, 1): 5, (1, 2): 5, (2, 0): 6}), "clique", None),
        (WindowGraph.of(4, {(2, 0): 5, (0, 3): 6, (3, 1): 7}), "path", (1, 3, 0, 2)),
        (WindowGraph.of(4, FOUR), "graph", None),
        (WindowGraph.of(4, {(0, 1): 5, (0, 2): 5, (0, 3): 5}), "graph", None),
        (WindowGraph.directed(4, [(1, 3, 5), (2, 0, 6), (0, 1, 7)]), "directed path", (2, 0, 1, 3)),
    ],
)
def test_the_form_of_a_graph_is_told_by_its_windows(
    graph: WindowGraph, form: str, path: tuple[int, ...] | None
) -> None:
    assert graph.form == form
    assert form in FORMS
    assert graph.path == path


def test_a_missing_window_is_the_shortest_path_as_in_figure_11() -> None:
    """a and d: the lesser of w1 + w2 + w3 and w1 + w4."""
    graph = WindowGraph.of(4, FOUR)
    assert graph.completed[0, 3] == min(3 + 4 + 5, 3 + 2)
    assert graph.completed[0, 2] == 3 + 4
    assert not graph.was_given[0, 3]
    assert graph.was_given[1, 3]
    assert graph.given[0, 3] == UNBOUNDED


def test_a_given_window_that_others_undercut_becomes_as_tight_as_they_are() -> None:
    graph = WindowGraph.of(3, {(0, 1): 2, (1, 2): 3, (0, 2): 10})
    assert graph.completed[0, 2] == 5
    assert graph.given[0, 2] == 10


def test_keeping_the_completed_windows_is_the_same_as_keeping_the_given_ones() -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        n = int(rng.integers(2, 6))
        windows = {(int(rng.integers(0, i)), i): int(rng.integers(1, 9)) for i in range(1, n)}
        graph = WindowGraph.of(n, windows)
        for ts in rng.integers(0, 20, (20, n)).tolist():
            given = all(abs(ts[i] - ts[j]) <= w for (i, j), w in windows.items())
            completed = all(abs(ts[i] - ts[j]) <= graph.completed[i, j] for i, j in itertools.combinations(range(n), 2))
            assert given == completed


def test_a_tuple_may_join_as_long_as_its_widest_bound() -> None:
    graph = WindowGraph.of(4, FOUR)
    assert [graph.lookback(i) for i in range(4)] == [7, 4, 7, 5]
    assert graph.widest == 7


def test_a_directed_path_bounds_differences_in_its_direction_or_in_the_reverse() -> None:
    graph = WindowGraph.directed(3, [(0, 1, 5), (1, 2, 7)])
    forward, reverse = graph.differences(complete=True)
    assert forward.tolist() == [[0, 5, 12], [0, 0, 7], [0, 0, 0]]
    assert reverse.tolist() == forward.T.tolist()


def test_an_order_from_a_stream_never_reaches_one_that_nothing_before_it_is_tied_to() -> None:
    graph = WindowGraph.of(4, {(0, 2): 1, (2, 1): 1, (1, 3): 1})
    assert graph.order_from(0) == (2, 1, 3)
    assert graph.order_from(1) == (2, 3, 0)


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "negative window": (
        lambda: WindowGraph.uniform(2, -5, ("a", "b")),
        r"window graph, WINDOW \('a', 'b'\): needed a window of whole nanoseconds, 0 or more; got -5",
    ),
    "window of seconds": (lambda: WindowGraph.uniform(3, 1.5), "whole nanoseconds, 0 or more; got 1.5"),  # type: ignore[arg-type]
    "window that is true": (lambda: WindowGraph.uniform(3, True), "whole nanoseconds, 0 or more; got True"),
    "window of centuries": (lambda: WindowGraph.uniform(3, 1 << 62), r"below 2\*\*62 ns"),
    "unconnected": (
        lambda: WindowGraph.of(4, {(0, 1): 5, (2, 3): 5}, NAMES),
        r"got none between 'a', 'b' and 'c', 'd'; add a WINDOW",
    ),
    "no window at all": (lambda: WindowGraph.of(2, {}, ("a", "b")), "got none between 'a' and 'b'"),
    "cycle": (
        lambda: WindowGraph.directed(3, [(0, 1, 5), (1, 2, 5), (2, 0, 5)], NAMES[:3]),
        r"without a cycle; got 'a' -> 'b' -> 'c' -> 'a'",
    ),
    "DWINDOW both ways": (
        lambda: WindowGraph.directed(2, [(0, 1, 5), (1, 0, 5)], ("a", "b")),
        r"needed one DWINDOW between two streams; got \('b', 'a'\) both ways",
    ),
    "DWINDOW twice": (
        lambda: WindowGraph.directed(2, [(0, 1, 5), (0, 1, 6)], ("a", "b")),
        r"got \('a', 'b'\) twice",
    ),
    "fork": (
        lambda: WindowGraph.directed(3, [(0, 1, 5), (0, 2, 5)], NAMES[:3]),
        "got two of which each leaves 'a'; write a query for each path",
    ),
    "meeting": (
        lambda: WindowGraph.directed(3, [(0, 1, 5), (2, 1, 5)], NAMES[:3]),
        "got two of which each enters 'b'",
    ),
    "directed path in two parts": (
        lambda: WindowGraph.directed(4, [(0, 1, 5), (2, 3, 5)], NAMES),
        "got none between 'a', 'b' and 'c', 'd'",
    ),
    "pair twice": (lambda: WindowGraph.of(2, {(0, 1): 5, (1, 0): 5}, ("a", "b")), "needed one WINDOW.*twice"),
    "one stream": (lambda: WindowGraph.uniform(1, 5), "needed 2 to 16 streams; got 1"),
    "too many streams": (lambda: WindowGraph.uniform(17, 5), "needed 2 to 16 streams; got 17"),
    "stream with itself": (lambda: WindowGraph.of(2, {(0, 0): 5}, ("a", "b")), "got 'a' twice; register"),
    "unknown stream": (lambda: WindowGraph.of(2, {(0, 2): 5}), "needed streams 0 to 1; got 2"),
    "names that do not fit": (lambda: WindowGraph.uniform(3, 5, ("a", "b")), "needed 3 different names"),
    "the same name": (lambda: WindowGraph.uniform(2, 5, ("a", "a")), "needed 2 different names"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_no_window_graph_is_told_at_plan_time_in_one_sentence(mistake: str) -> None:
    make, message = MISTAKES[mistake]
    with pytest.raises(ConfigError, match=message) as told:
        make()
    assert "\n" not in str(told.value)
