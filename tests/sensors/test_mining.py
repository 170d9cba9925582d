"""Table functions over streams: the same however batches are cut, the same standing, and what others find."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.signal import find_peaks

import nile
from nile.execution.statement.builder import read_query
from nile.mining.peaks import PeakFinder
from nile.mining.periods import PeriodFinder
from nile.mining.profile import Profiler
from nile.sql.text import query_text

Finder = Callable[[], Any]
LIBRARY = {"name": ["low", "high"], "pattern": [[3.0, 1.0, 1.0], [1.0, 1.0, 4.0]]}


def series(kind: str, n: int = 900, seed: int = 1) -> np.ndarray[Any, Any]:
    draw, t = np.random.default_rng(seed), np.arange(n)
    return {
        "noise": draw.normal(size=n),
        "flat": np.full(n, 0.3),
        "saturated": np.clip(3 * np.sin(t / 9) + draw.normal(size=n) * 0.1, -1, 1),
        "steps": draw.integers(0, 3, n).astype(float),
        "drifting": t * 0.05 + np.sin(t / 5) + draw.normal(size=n) * 0.1,
        "plateaus": np.repeat(draw.integers(0, 4, -(-n // 7)), 7)[:n].astype(float),
    }[kind]


KINDS = ("noise", "flat", "saturated", "steps", "drifting", "plateaus")
FINDERS: dict[str, Finder] = {
    "peaks": lambda: PeakFinder(0.5, 41, 0.0),
    "smooth peaks": lambda: PeakFinder(0.2, 30, 2.5),
    "periods": lambda: PeriodFinder(128, 0.3),
    "profile": lambda: Profiler(12, 100),
}


def found(make: Finder, values: np.ndarray[Any, Any], cuts: list[int]) -> list[Any]:
    finder, told = make(), []
    at = np.arange(len(values))
    for part in np.split(at, cuts):
        if len(part):
            told += finder.push(part, part * 10**9, values[part])
    return [*told, *finder.finish()]


@pytest.mark.parametrize("name", FINDERS)
def test_gaps_in_time_change_nothing_of_how_values_may_be_cut(name: str) -> None:
    """Readings are missing now and then, and once for as long as all the others took."""
    draw = np.random.default_rng(5)
    times = (np.sort(draw.choice(1_200, 900, replace=False)) + np.where(np.arange(900) > 450, 1_200, 0)) * 10**9
    values, ordinals = series("drifting"), np.arange(900)
    told = []
    for cuts in ([], [1, 2, 449, 450, 452], sorted(draw.choice(900, 40, replace=False).tolist())):
        finder, rows = FINDERS[name](), []
        for part in np.split(ordinals, cuts):
            if len(part):
                rows += finder.push(part, times[part], values[part])
        told.append([*rows, *finder.finish()])
    assert told[0] == told[1] == told[2] != []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FINDERS)
def test_what_is_found_does_not_depend_on_how_values_are_cut(name: str, kind: str) -> None:
    values, draw = series(kind), random.Random(3)
    whole = found(FINDERS[name], values, [])
    for cuts in (list(range(1, len(values))), sorted(draw.sample(range(len(values)), 40)), [0, 1, 2, 899]):
        assert found(FINDERS[name], values, cuts) == whole
    assert [each[0] for each in whole] == sorted(each[0] for each in whole)


def peaks_by_definition(values: np.ndarray[Any, Any], prominence: float, span: int) -> list[tuple[int, float]]:
    """Of every plateau that is higher than both sides of it: its middle, and how far it stands out."""
    told, half = [], span // 2
    for begin in range(1, len(values) - 1):
        end = begin
        while end + 1 < len(values) and values[end + 1] == values[begin]:
            end += 1
        if end + 1 == len(values) or not values[begin - 1] < values[begin] > values[end + 1]:
            continue
        middle = (begin + end) // 2
        lows = []
        for step in (-1, 1):
            at, low = middle, values[middle]
            while 0 <= at < len(values) and abs(at - middle) <= half and values[at] <= values[middle]:
                low = min(low, values[at])
                at += step
            lows.append(low)
        if values[middle] - max(lows) >= prominence:
            told.append((middle, float(values[middle] - max(lows))))
    return told


@pytest.mark.filterwarnings("ignore:some peaks have a prominence of 0")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("prominence", "span"), [(0.0, 3), (0.5, 41), (1.0, 500), (0.1, 10_000)])
def test_peaks_are_those_of_the_definition_and_of_scipy(kind: str, prominence: float, span: int) -> None:
    values = series(kind)
    got = [(row[0] // 10**9, row[2]) for _, _, row in found(lambda: PeakFinder(prominence, span, 0.0), values, [100])]
    assert got == peaks_by_definition(values, prominence, span)
    places, said = find_peaks(values, prominence=prominence, wlen=span)
    assert got == list(zip(places.tolist(), said["prominences"].tolist(), strict=True))


def test_planted_peaks_of_three_deviations_are_found_with_few_false_ones() -> None:
    planted = missed = false = 0
    for seed in range(20):
        draw = np.random.default_rng(seed)
        places = np.arange(100, 19_900, 100) + draw.integers(-20, 21, 198)
        values = draw.normal(size=20_000)
        for place in places:
            near = np.arange(place - 25, place + 26)
            values[near] += 3 * np.exp(-0.5 * ((near - place) / 5) ** 2)
        got = np.array([row[0] // 10**9 for _, _, row in found(lambda: PeakFinder(1.1, 81, 5.0), values, [])])
        apart = np.abs(got[None, :] - places[:, None])
        planted += len(places)
        missed += int((apart.min(axis=1) > 5).sum())
        false += len(got) - int((apart.min(axis=0) <= 5).sum())
    assert missed <= 0.01 * planted
    assert false <= 0.02 * planted


@pytest.mark.parametrize("form", ["sine", "pulses", "saw", "sine with drift and gaps"])
def test_periods_are_told_within_one_percent(form: str) -> None:
    worst, draw = 0.0, np.random.default_rng(7)
    least = 6 if "sine" in form else 12
    for period in [*np.linspace(least, 120, 25), *draw.uniform(least, 120, 25)]:
        t = np.arange(1024)
        if "gaps" in form:
            t = np.sort(draw.choice(1030, 1024, replace=False))
        phase = t / period + draw.random()
        values = {
            "pulses": (phase % 1 < 0.25).astype(float),
            "saw": phase % 1,
        }.get(form, np.sin(2 * np.pi * phase))
        values = values + draw.normal(size=1024) * 0.3 * values.std() + (0.01 * t if "drift" in form else 0)
        ((_, _, row),) = found(lambda: PeriodFinder(1024, 0.3), values, [])
        worst = max(worst, abs(row[1] / period - 1))
    assert worst < 0.01


@pytest.mark.parametrize("seed", range(20))
def test_noise_and_what_is_constant_have_no_period(seed: int) -> None:
    for kind in ("noise", "flat"):
        assert found(lambda: PeriodFinder(512, 0.3), series(kind, 1024, seed), []) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_profile_is_that_of_the_definition(kind: str) -> None:
    length, span, values = 12, 100, series(kind, 400)

    def normal(begin: int) -> np.ndarray[Any, Any]:
        part = values[begin : begin + length]
        return np.zeros(length) if (part == part[0]).all() else (part - part.mean()) / part.std()

    got = {row[0] // 10**9: row[1] for _, _, row in found(lambda: Profiler(length, span), values, [50])}
    for begin in range(len(values) - length + 1):
        others = range(max(begin - span, 0), begin - length // 4 + 1)
        least = min((math.dist(normal(begin), normal(other)) for other in others), default=None)
        assert (least is None) == (begin not in got)
        if least is not None:
            assert got[begin] == pytest.approx(least, abs=1e-4)


def test_something_new_has_the_largest_distance() -> None:
    values = np.sin(np.arange(2000) / 8) + np.random.default_rng(1).normal(size=2000) * 0.05
    values[1500:1530] = values[1500:1530][::-1] * 0.3
    told = found(lambda: Profiler(40, 1000), values, [])
    since = max((row for _, _, row in told if row[0] > 200 * 10**9), key=lambda row: row[1])[0] // 10**9
    assert 1460 <= since <= 1530


QUERIES = [
    "SELECT * FROM PEAKS (d, v, k, prominence => 0.5, span => 31) AS p",
    "SELECT * FROM PEAKS (d, v, prominence => 1) AS p WHERE height > 1",
    "SELECT k, period, strength FROM PERIODS (d, v, k, span => 64) AS p",
    "SELECT * FROM PROFILE (d, v, k, length => 8, span => 50) AS p",
    "SELECT k, match, distance FROM MATCHES (d, l, k, library => 'lib', within => 0.2) AS m",
    "SELECT k, match FROM MATCHES (d, l, k, library => 'lib', measure => 'chi-square') AS m WHERE match <> 'low'",
    "SELECT match, distance FROM MATCHES (d, l, library => 'lib', measure => 'euclidean', within => 2) AS m",
    "SELECT p.k, q.height FROM PEAKS (d, v, k, prominence => 1) AS p, PEAKS (d, v, k, prominence => 2) AS q "
    "WHERE p.k = q.k WINDOW 5",
    "SELECT p.height, d.v FROM PEAKS (d, v, k, prominence => 2) AS p, d WHERE p.k = d.k AND d.v > 1 WINDOW 3",
]


def rows(n: int = 600) -> dict[str, Any]:
    draw = np.random.default_rng(5)
    values = np.sin(np.arange(n) / 6) * 2 + draw.normal(size=n) * 0.5
    lists = [None if k % 50 == 7 else draw.integers(0, 5, 2 if k % 40 == 3 else 3).astype(float).tolist()
             for k in range(n)]  # fmt: skip
    held = [None if k % 30 == 4 else math.nan if k % 30 == 5 else float(values[k]) for k in range(n)]
    return {
        "ts": [k / 4 for k in range(n)],
        "k": [("a", "b", None)[k * k % 3] for k in range(n)],
        "v": held,
        "l": lists,
    }


def schema() -> list[tuple[str, Any]]:
    import pyarrow as pa

    return [("ts", "double"), ("k", "string"), ("v", "double"), ("l", pa.list_(pa.float64()))]


@pytest.mark.parametrize("text", QUERIES)
def test_a_standing_query_finds_the_same(text: str) -> None:
    data = rows()
    asked, live = nile.connect(), nile.connect()
    asked.register("d", data, time="ts")
    live.stream("d", schema(), time="ts")
    for db in (asked, live):
        db.register("lib", LIBRARY)
    expected = [tuple(row.values()) for row in asked.sql(text).to_arrow().to_pylist()]
    standing = live.subscribe(text, emit="append")
    draw, at = random.Random(2), 0
    while at < len(data["ts"]):
        to = at + draw.randrange(1, 60)
        live.push("d", {name: column[at:to] for name, column in data.items()})
        at = to
    live.close()
    got = [tuple(row.values()) for batch in standing.poll() for row in batch.to_pylist()]
    assert sorted(map(repr, got)) == sorted(map(repr, expected))
    assert expected


def test_peaks_of_sensors_are_found_while_they_stream() -> None:
    class Waves(nile.Sensor):
        def init(self, address: Any, _: Any) -> None:
            self.step, self.at = float(address), 0

        def read(self) -> Any:
            self.at += 1
            if self.at > 400:
                return nile.END
            return nile.NEW_VALUE, math.sin(self.at * self.step), self.at / 10

    db = nile.connect()
    db.sql("CREATE SENSORS waves (id INT, value STREAM(v DOUBLE) USING 'Waves') LATENESS '1 day'")
    db.sensors("waves").add([{"id": k, "value": str(0.1 * k)} for k in (1, 2, 3)])
    text = "SELECT id, at, prominence FROM PEAKS (waves, v, id, prominence => 1) AS p"
    standing = db.subscribe(text)
    got = [tuple(row.values()) for batch in standing.follow(20) for row in batch.to_pylist()]
    assert standing.closed
    assert sorted(got) == sorted(db.sql(text).fetchall())
    assert {key: [row[0] for row in got].count(key) for key in (1, 2, 3)} == {1: 5, 2: 12, 3: 18}


def test_a_full_query_over_a_function_stops_pushes_and_its_stream_stays() -> None:
    db = nile.connect()
    db.stream("d", [("ts", "double"), ("v", "double")], time="ts")
    standing = db.subscribe("SELECT * FROM PEAKS (d, v, prominence => 1, span => 3) AS p", unread=5, when_full="refuse",
                            name="mine")  # fmt: skip
    db.push("d", {"ts": [float(k) for k in range(100)], "v": [float(k % 2 * 5) for k in range(100)]})
    with pytest.raises(nile.Overloaded):
        db.push("d", {"ts": [200.0], "v": [1.0]})
    with pytest.raises(nile.ConfigError, match="mine"):
        db.sql("DROP STREAM d")
    with pytest.raises(nile.ConfigError, match="table function"):
        db.sql("DELETE FROM d WHERE v = 0")
    assert sum(batch.num_rows for batch in standing.poll()) == 49
    standing.close()
    db.push("d", {"ts": [200.0], "v": [1.0]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PEAKS (d, v, prominence => 1)", "needed a name for PEAKS"),
        ("PEAKS (d, v) p", "needed prominence"),
        ("PEAKS (d, k, prominence => 1) p", "needed numbers in 'k'; got string"),
        ("PEAKS (d, v, prominence => 1, span => 2) p", "span from 3"),
        ("PEAKS (lib, pattern, prominence => 1) p", "needed a stream in PEAKS; got relation 'lib'"),
        ("PEAKS (d, v, prominence => 'x') p", "needed a number; got 'x'"),
        ("PEAKS (d, v, prominence => 1, wide => 2) p", "among prominence, span, smooth; got wide"),
        ("PEAKS (d, v + 1, prominence => 1) p", "with names of columns"),
        ("PROFILE (d, v, length => 4.5) p", "needed a whole number"),
        ("PROFILE (d, v, length => 50, span => 9) p", "needed length from 4 to span"),
        ("PERIODS (d, x) p", "needed a column of 'd'"),
        ("PERIODS (d, v, least => 2) p", "least above 0"),
        ("MATCHES (d, l, library => 'd') p", "needed a stored relation \\(lib\\) as library"),
        ("MATCHES (d, v, library => 'lib') p", "needed lists of numbers"),
    ],
)
def test_bad_calls_say_what_is_needed(text: str, message: str) -> None:
    db = nile.connect()
    db.register("d", rows(10), time="ts")
    db.register("lib", LIBRARY)
    with pytest.raises(nile.SqlError, match=message):
        db.sql(f"SELECT * FROM {text}")


@pytest.mark.parametrize("text", QUERIES)
def test_a_call_written_out_reads_the_same(text: str) -> None:
    db = nile.connect()
    db.register("d", rows(10), time="ts")
    db.register("lib", LIBRARY)
    query = read_query(text, db._names)
    assert read_query(query_text(query), db._names) == query
