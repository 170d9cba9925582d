"""A sample of pairs that ends early by the clock: no pair twice, and right on average whenever it ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.exact.join.listed import Lists
from nile.operators.drive.clock import Clock
from nile.operators.strategies import key_kernels
from nile.operators.strategies.by_key import KeyPairs
from nile.operators.strategies.drawing import drawn_in_parts
from nile.preferences.budget import Budget

Array = np.ndarray[Any, Any]
N, GRANT = 600, 1_000.0
TWO = 2 / 32  # of the sample: a part of it, and one that counts for all to come


def _streams() -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    keys = [(40 * np.random.default_rng(seed).random(N) ** 2).astype(np.int64) for seed in (0, 1)]
    return (np.arange(N), np.arange(N)), (keys[0], keys[1])


def _found(window: int | None = 50) -> KeyPairs:
    ts, keys = _streams()
    return KeyPairs(Lists(ts, keys, -1, threads=1), ts, window, pa.array(keys[0]))


class _Now:
    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def _drawn(found: KeyPairs, rate: Array, seed: int, all_of_it: float, later: float = 1.0) -> tuple[Array, ...]:
    """Left, right and weight of what is drawn, and when the last was taken.

    all_of_it: ns in which the whole sample is handed out; later: how many times longer it takes from the half on.
    """
    now = _Now()
    clock = Clock(Budget(seconds=1e-6), cpu=now, wall=now)
    which = (np.arange(40) % 2).astype(np.uint8)
    whole = float(rate @ np.bincount(which, found.by_key, 2))
    parts, rows = [], 0
    for part in drawn_in_parts(
        found, which, rate, np.array([1.0, 1.0]), np.random.default_rng(seed), clock, GRANT, GRANT, 1.0
    ):
        parts.append(part)
        rows += len(part)
        classes = round(32 * len(part) / whole)  # a part takes no longer for the pairs that it happens to have
        now.ns += round(all_of_it * classes / 32 * (later if now.ns > 0.5 * GRANT else 1.0))
    columns = (np.concatenate([getattr(each, name) for each in parts]) for name in ("left", "right", "weight"))
    return *columns, np.array(now.ns)


@pytest.mark.parametrize(
    ("all_of_it", "later"), [(10.0, 1.0), (900.0, 1.0), (2_000.0, 1.0), (2_000.0, 3.0), (8_000.0, 1.0), (1e5, 1.0)]
)
def test_totals_are_right_on_average_whenever_the_clock_ends_it(all_of_it: float, later: float) -> None:
    found, rate = _found(), np.array([0.08, 0.24])
    first = np.arange(N) < 100
    expected = np.sum([[len(part), first[part.left].sum()] for part in found.written(1 << 40)], axis=0)
    sums, rows = [], []
    for seed in range(400):
        left, right, weight, ended = _drawn(found, rate, seed, all_of_it, later)
        assert len({*zip(left.tolist(), right.tolist(), strict=True)}) == left.shape[0]
        sums.append([weight.sum(), weight[first[left]].sum()])
        rows.append(left.shape[0])
        assert ended <= max(1.02 * GRANT, TWO * all_of_it)
    told = np.array(sums)
    error = told.std(axis=0, ddof=1) / np.sqrt(len(sums))
    assert (np.abs(told.mean(axis=0) - expected) <= 3.0 * error + 1e-9).all()
    whole = float(np.mean([_drawn(found, rate, seed, 0.0)[0].shape[0] for seed in range(20)]))
    paid = min(1.0, (0.5 + 0.5 / later) * GRANT / all_of_it)
    assert max(0.5 * paid, 0.9 * TWO) <= np.mean(rows) / whole <= 1.05 * max(paid, TWO)


def test_without_a_clock_it_is_one_sample_and_in_parts_the_same_pairs() -> None:
    found, rate, one = _found(), np.array([0.1, 0.1]), np.array([1.0, 1.0])
    which = np.zeros(40, np.uint8)
    [whole] = drawn_in_parts(found, which, rate, one, np.random.default_rng(7), None, GRANT, GRANT, 1.0)
    clock = Clock(Budget(seconds=1.0), cpu=_Now(), wall=_Now())
    parts = [*drawn_in_parts(found, which, rate, one, np.random.default_rng(7), clock, 1e9, GRANT, 1.0)]
    assert len(parts) > 8
    pairs = {pair for part in parts for pair in zip(part.left.tolist(), part.right.tolist(), strict=True)}
    assert pairs == {*zip(whole.left.tolist(), whole.right.tolist(), strict=True)}
    assert np.concatenate([part.weight for part in parts]) == pytest.approx(10.0)
    assert whole.weight == pytest.approx(10.0)


def test_every_pair_is_drawn_as_often_as_its_stratum_says_with_its_times_and_key() -> None:
    ts, keys = _streams()
    found, rate, stands = _found(), np.array([0.1, 0.5]), np.array([3.0, 4.0])
    which = (np.arange(40) % 2).astype(np.uint8)
    pairs = np.bincount(which, found.by_key, 2)
    for phase in (0.0, 0.3, 0.999):
        parts = list(found.drawn(which, rate, stands, phase))
        left, right, weight, key, left_ts, right_ts = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("left", "right", "weight", "key", "left_ts", "right_ts")
        )
        assert (keys[0][left] == keys[1][right]).all()
        assert (np.abs(ts[0][left] - ts[1][right]) <= 50).all()
        assert (key == keys[0][left]).all()
        assert (left_ts == ts[0][left]).all()
        assert (right_ts == ts[1][right]).all()
        assert (weight == stands[which[key]]).all()
        # Of every key as many as its share of the line has whole numbers.
        drawn = np.bincount(key, minlength=40)
        assert (np.abs(drawn - rate[which] * found.by_key) < 1.0 + 1e-6).all()
        assert abs(left.shape[0] - rate @ pairs) < 1.0 + 1e-6
    whole = [np.stack([part.left, part.right]) for part in found.drawn(which, np.ones(2), np.ones(2), 0.5)]
    assert len({*map(tuple, np.concatenate(whole, axis=1).T.tolist())}) == found.pairs


@pytest.mark.parametrize(("window", "alike"), [(None, False), (50, True)])
def test_the_kernels_do_what_they_do_in_python(
    monkeypatch: pytest.MonkeyPatch, window: int | None, alike: bool
) -> None:
    _, keys = _streams()
    found, which = _found(window), (np.arange(40) % 2).astype(np.uint8)
    coins, level = np.array([[1.0, 0.5], [1.0, 0.25]]), np.array([0.5, 1.0])

    def run(draw: Any, scatter: Any) -> list[Any]:
        out, weight = np.zeros((5, 70), np.int64), np.zeros(70)
        progress, place = np.zeros(2, np.int64), np.array([0.3, 1.0])
        told = []
        for _ in range(3):
            n = draw(
                found._rows, found.by_key, which, np.array([0.05, 0.02]), np.array([1.0, 2.0]), *found._joined,
                *found._times, *found._listed, keys[0], alike, progress, place, *out, weight,
            )  # fmt: skip
            told += [n, out.tolist(), weight.tolist(), progress.tolist(), place.tolist()]
        return [*told, scatter(found._rows, *found._times, found._window, found._joined[1], which, level, coins)]

    compiled = run(key_kernels.draw_keys, key_kernels.scatter_by_key)
    for part in ("_since", "_until"):  # which only kernels can call
        monkeypatch.setattr(key_kernels, part, getattr(key_kernels, part).py_func)
    plain = run(key_kernels.draw_keys.py_func, key_kernels.scatter_by_key.py_func)
    assert compiled[0] == 70
    assert compiled[:-1] == plain[:-1]
    assert compiled[-1] == pytest.approx(plain[-1])
    # Coins of the tuples of odd keys: what each has, squared, over its chance, times that of its being out.
    near = np.abs(np.subtract.outer(np.arange(N), np.arange(N))) <= (N if window is None else window)
    alike = near & (keys[0][:, None] == keys[1][None, :]) & (keys[0][:, None] % 2 == 1)
    of_left, of_right = ((alike.sum(axis=axis) / 0.125) ** 2 for axis in (1, 0))
    assert compiled[-1] == pytest.approx(0.5 * of_left.sum() + 0.75 * of_right.sum())
