"""What is measured of streams is what brute force finds, however they are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nile.exact.state.held import Held
from nile.runtime import kept_constraints
from nile.runtime.delays import Delays
from nile.runtime.kept_constraints import Disorder, Doubles, Gaps, Punctuated
from nile.runtime.seen import Seen


def gaps_of(kind: type, values: list[int]) -> list[int]:
    """Of each tuple what k it needs."""
    if kind is Disorder:
        return [max((j - i for i in range(j) if values[i] > values[j]), default=0) for j in range(len(values))]
    return [next((j - i - 1 for i in range(j - 1, -1, -1) if values[i] == values[j]), 0) for j in range(len(values))]


def cuts(rng: np.random.Generator, values: Any) -> list[Any]:
    return np.split(values, np.sort(rng.integers(0, len(values) + 1, 4)))


@pytest.mark.parametrize("kind", [Disorder, Gaps])
def test_the_least_k_and_what_is_against_it_are_those_of_brute_force(kind: type) -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 120))
        values = np.arange(n) // int(rng.integers(1, 5)) + rng.integers(-3, 4, n)
        within = int(rng.integers(0, 9))
        made = kind()
        for part in cuts(rng, values):
            made.push(part, within)
            again = kind()
            again.restore(Held(made.capture(), "measure"))
            made = again
        needed = gaps_of(kind, values.tolist())
        assert (made.tuples, made.measured) == (n, max(needed))
        assert made.violations == sum(k > within for k in needed)


@pytest.mark.parametrize("kind", [Disorder, Gaps])
def test_beyond_the_horizon_k_is_unknown_and_nothing_goes_uncounted(kind: type, monkeypatch: Any) -> None:
    monkeypatch.setattr(kept_constraints, "_HORIZON", 8)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        values = np.arange(100) + rng.integers(-20, 21, 100) * (rng.random(100) < 0.1)
        if kind is Gaps:
            values = values % int(rng.integers(20, 200))
        made = kind()
        for part in cuts(rng, values):
            made.push(part, 3)
        needed = gaps_of(kind, values.tolist())
        assert made.violations == sum(k > 3 for k in needed)
        assert made.measured in (None, max(needed))
        if max(needed) <= 3:
            assert made.measured == max(needed)


def test_keys_that_were_there_are_known_and_take_little_where_they_are_numbered() -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        seen, known = Seen(), set()
        for _ in range(20):
            part = rng.integers(-30, 60, 10)
            assert seen.has(part).tolist() == [int(each) in known for each in part]
            seen.add(part)
            known |= set(part.tolist())
        again = Seen()
        again.restore(Held({"runs": seen.capture()}, "seen"), "runs")
        assert again.has(np.arange(-40, 70)).tolist() == [each in known for each in range(-40, 70)]
    ends = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max])
    seen.add(ends)
    assert seen.has(ends).all()
    assert not seen.has(ends + np.array([1, -1])).any()
    dense = Seen()
    for number in range(100):
        dense.add(np.arange(1000) + 1000 * number)
    assert dense.memory == 16


def test_a_parent_that_comes_twice_is_counted() -> None:
    doubles = Doubles()
    for part in ([1, 2, 2], [3, 1], [4]):
        doubles.push(np.array(part), None)
    assert (doubles.tuples, doubles.violations, doubles.measured) == (6, 2, None)


def test_delays_are_those_of_brute_force_however_both_streams_are_cut() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n, within = int(rng.integers(1, 60)), int(rng.integers(0, 6))
        parents = sorted((int(at), key) for key, at in enumerate(rng.integers(0, 80, n)))
        children = sorted(
            (max(0, at + int(rng.integers(-8, 20))), key) for at, key in parents for _ in range(int(rng.integers(0, 3)))
        )
        delays = Delays()
        done = [0, 0]
        for to in [*np.sort(rng.integers(0, 100, 5)).tolist(), 200]:
            for number, rows in enumerate((children, parents)):
                upto = int(rng.integers(done[number], len(rows) + 1)) if to < 200 else len(rows)
                upto = max(upto, sum(ts <= to for ts, _ in rows))
                part = rows[done[number] : upto]
                ts, keys = (np.array([row[at] for row in part], np.int64) for at in (0, 1))
                delays.come(number == 1, ts, keys)
                done[number] = upto
            delays.passed(to, within)
            again = Delays()
            again.restore(Held(delays.capture(), "delays"))
            delays = again
        place = {key: number for number, (_, key) in enumerate(parents)}
        needed = [max(0, place[key] + 1 - sum(ts < at for ts, _ in parents)) for at, key in children]
        assert delays.tuples == len(children)
        assert delays.violations == sum(each > within for each in needed)
        assert delays.measured == max(needed, default=0)


def test_a_child_whose_parent_never_comes_counts_once_and_leaves_k_unknown() -> None:
    delays = Delays()
    delays.come(False, np.array([0]), np.array([7]))
    for number in range(6):
        delays.come(True, np.array([number + 1]), np.array([100 + number]))
        delays.passed(number + 1, 3)
    assert (delays.violations, delays.measured) == (1, None)


def test_what_comes_after_it_was_said_to_be_over_is_counted_however_it_is_cut() -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        ts, values = np.sort(rng.integers(0, 50, 80)), rng.integers(0, 12, 80)
        said = [(int(at), rng.integers(0, 12, 2)) for at in np.sort(rng.integers(0, 50, 4))]
        made = Punctuated()
        for at, each in said:
            made.say(at, each)
        for part in np.split(np.arange(80), np.sort(rng.integers(0, 81, 4))):
            made.come(ts[part], values[part])
            again = Punctuated()
            again.restore(Held(made.capture(), "measure"))
            made = again
        against = sum(
            any(at < when and value in each for at, each in said) for when, value in zip(ts, values, strict=True)
        )
        assert (made.tuples, made.violations) == (80, against)
