"""How the parts of a weighted join share one budget: what tasks count, and what that is worth."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.experiments.benchmarks.standing.parts import asked, histogram_errors, in_parts, one, streams
from nile.preferences.arrival_kernels import unit
from nile.spark.standing.dealing import parts_of
from nile.spark.standing.level_kernels import AN_OCTAVE, OCTAVES, classes_of
from nile.spark.standing.levels import Levels, matches_of, shares_of
from nile.spark.standing.partition import Partition, told_of
from nile.summaries.costs import ENGINE
from nile.summaries.hashing import hash_keys
from nile.summaries.kernels import kernel

TEXT = "SELECT a.k, a.t AS x, b.t AS y FROM a, b WHERE a.k = b.k WITH PREFERENCE weighted a.k WINDOW '6 s'"
PARTS, SALT = 4, 12345


@kernel
def numbers(hashes: np.ndarray, out: np.ndarray) -> None:  # type: ignore[type-arg]
    for i in range(hashes.shape[0]):
        out[i] = unit(hashes[i], SALT)


def hashed(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    hashes = hash_keys(pa.array(keys))
    out = np.empty(hashes.shape[0])
    numbers(hashes, out)
    return hashes, out


def counted(keys: list[np.ndarray], span: int) -> list[list[tuple[int, Levels]]]:  # type: ignore[type-arg]
    """What each part hears of two streams."""
    heard: list[list[tuple[int, Levels]]] = [[] for _ in range(PARTS)]
    for stream, each in enumerate(keys):
        ts = np.linspace(0, span, each.shape[0]).astype(np.int64)
        for mine, levels in zip(heard, Levels.of(hashed(each)[0], ts, PARTS, SALT), strict=True):
            mine.append((stream, levels))
    return heard


def test_classes_are_those_of_a_twin() -> None:
    hashes, number = hashed(np.arange(60_000))
    found = np.empty(hashes.shape[0], np.int64)
    classes_of(hashes, SALT, found)
    for each, u in zip(found.tolist(), number.tolist(), strict=True):
        octave = math.floor(-math.log2(u)) if u else OCTAVES
        top = 0.5**octave
        place = math.floor((1.0 - u / top) * 2 * AN_OCTAVE - 1e-12)
        assert each == (OCTAVES * AN_OCTAVE if octave >= OCTAVES else AN_OCTAVE * octave + place)
    assert set(found.tolist()) == set(range(OCTAVES * AN_OCTAVE + 1))


@pytest.mark.parametrize("level", [1.0, 0.5, 0.1875, 0.3, 0.02, 0.001])
def test_shares_are_those_of_the_tuples_below_the_level_and_one_on_average(level: float) -> None:
    keys = [np.random.default_rng(stream).integers(0, 900, 5_000) for stream in (1, 2)]
    heard = counted(keys, 10**9)
    hashes, number = hashed(np.concatenate(keys))
    part = parts_of(hashes, PARTS)
    tuples = np.bincount(part, minlength=PARTS)
    alike = (10_000.0, 0.0), (2_500.0, 0.0)
    shares, means = np.array([shares_of(each, alike, ENGINE, level, 0.5, 0.5) for each in heard]).T
    assert means == pytest.approx(1.0)
    assert (shares * tuples).sum() == pytest.approx(tuples.sum())
    below = np.bincount(part[number < level], minlength=PARTS)
    exact = below / tuples * tuples.sum() / max(1, below.sum())
    if level in (1.0, 0.5, 0.1875):  # where a class begins; within one its keys are taken as even
        assert shares == pytest.approx(0.02 + 0.98 * exact, rel=1e-9)
    elif level > 0.1:
        assert shares == pytest.approx(0.02 + 0.98 * exact, rel=0.12)


def test_counts_come_back_from_their_batch() -> None:
    (made, *_) = counted([np.arange(100)], 7)[1]
    again = told_of(made[1].batch())
    assert isinstance(again, Levels)
    assert all(np.array_equal(getattr(again, name), getattr(made[1], name)) for name in Levels.__slots__)


@pytest.mark.parametrize(("keys", "exponent"), [(2_000, 0.0), (300, 1.0)])
def test_matches_are_expected_without_bias(keys: int, exponent: float) -> None:
    window, span = 10**9, 8 * 10**9
    off: list[float] = []
    of_parts: list[float] = []
    for seed in range(30):
        chance = np.random.default_rng(seed)
        weight = np.arange(1, keys + 1) ** -exponent
        drawn = [chance.choice(keys, 1_500, p=weight / weight.sum()) + 10**6 * seed for _ in range(2)]
        counts = [np.bincount(each - 10**6 * seed, minlength=keys) for each in drawn]
        pairs = float((counts[0] * counts[1]).sum())
        exact = pairs * 2 * window / span / 3_000
        of_all, of_own = zip(*(matches_of(heard, window) for heard in counted(drawn, span)), strict=True)
        assert of_all == (of_all[0],) * PARTS
        assert sum(tuples for tuples, _ in of_own) == of_all[0][0] == 3_000
        off.append(of_all[0][1] / exact - 1.0)
        of_parts.append(sum(tuples * matches for tuples, matches in of_own) / 3_000 / exact - 1.0)
    for each in (off, of_parts):
        assert abs(np.mean(each)) < 4.0 * np.std(each) / math.sqrt(len(each)) + 1e-3
        assert np.std(each) < 0.1


@pytest.mark.parametrize(("kept", "drawn"), [(1.0, 1.0), (0.3, 1.0), (0.2, 0.4)])
def test_parts_are_granted_what_their_tuples_cost_at_the_rates_of_all(kept: float, drawn: float) -> None:
    keys = [np.random.default_rng(stream).zipf(1.5, 5_000) % 400 for stream in (1, 2)]
    heard = counted(keys, 10**9)
    met = [matches_of(each, 10**7) for each in heard]
    shares, means = np.array([shares_of(h, m, ENGINE, 1.0, kept, drawn) for h, m in zip(heard, met, strict=True)]).T
    tuples, matches = np.array([own for _, own in met]).T
    taking = ENGINE.insert + ENGINE.lookup
    exact, cost = taking + matches * ENGINE.emit, taking + kept * drawn * matches * ENGINE.emit
    granted = (shares - 0.02) / 0.98 * exact
    assert granted / cost == pytest.approx(granted[0] / cost[0])
    assert (granted * tuples).sum() == pytest.approx((exact * tuples).sum(), rel=0.02)
    assert means * exact == pytest.approx(means[0] * exact[0])


def test_only_a_sample_in_several_parts_tells_a_salt() -> None:
    tables = streams(50, 0.0)
    budget = {"budget": nile.Budget(fraction=0.1)}
    assert Partition(asked(TEXT, tables, budget, 3)).salt is not None
    assert Partition(asked(TEXT, tables, budget, 1)).salt is None
    assert Partition(asked(TEXT.replace("weighted", "desc"), tables, budget, 3)).salt is None
    assert Partition(asked(TEXT, tables, {"budget": nile.Budget(fraction=1.0)}, 3)).salt is None


def test_keys_of_all_parts_are_told_as_close_as_by_one_process() -> None:
    """Over uneven keys: parts with rates of their own were off by 1.5 to 3 times as much."""
    text = TEXT.replace("6 s", "10 s")
    errors = np.zeros(2)
    for seed in range(6):
        tables = streams(1_000, 1.0, seed=seed)
        exact = one(text.replace("WITH PREFERENCE weighted a.k ", ""), tables, None)
        for at, found in enumerate((one(text, tables, 0.3), in_parts(text, tables, 0.3, PARTS)[0])):
            errors[at] += histogram_errors(exact, found, 1_000, "10 s")[0]
    assert errors[1] <= 1.3 * errors[0]


@pytest.mark.parametrize("fraction", [0.1, 0.4])
def test_parts_spend_and_hand_out_what_one_process_does(fraction: float) -> None:
    alone = together = spent = 0.0
    ratios = []
    for seed in range(4):
        tables = streams(2_000, 0.0, seed=seed)
        exact = one(TEXT.replace("WITH PREFERENCE weighted a.k ", ""), tables, None).num_rows
        alone += one(TEXT, tables, fraction).num_rows
        found, share = in_parts(TEXT, tables, fraction, PARTS)
        together += found.num_rows
        spent += share / 4
        ratios.append(found["_weight"].to_numpy().sum() / exact)
    assert 0.97 <= together / alone <= 1.03
    assert 0.92 * fraction <= spent <= fraction
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.05)
