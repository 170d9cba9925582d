"""Keys that are a dictionary, as kept Parquet files have them, and slots chosen by counts of all tuples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.answers.join_answer import JoinAnswer
from nile.operators.common.plan import JoinPlan
from nile.operators.inputs.joining import Joinable, Loaded
from nile.operators.strategies import looking
from nile.operators.strategies.by_key import KeyPairs
from nile.operators.strategies.forecast import Work
from nile.operators.strategies.looking import Look
from nile.operators.strategies.prices import PRICES
from nile.operators.strategies.slots import Kinds, few_around
from nile.preferences.budget import Budget
from nile.streams.accounting import Accounting

Array = np.ndarray[Any, Any]
SECOND = 1_000_000_000


def joinable(keys: tuple[Array, Array], window: int | None, form: str = "plain") -> Joinable:
    """form: of keys: plain, numbers, a dictionary with values that come twice, one with nulls."""
    sides = []
    for name, key in zip("ab", keys, strict=True):
        text = pa.array(key).cast(pa.string())
        if form == "numbers":
            text = pa.array(key)
        elif form == "dictionary":
            values = pa.array([str(k) for k in range(int(key.max()) + 1)] * 2)
            at = np.where(np.arange(key.shape[0]) % 3 == 0, key + int(key.max()) + 1, key).astype(np.int32)
            text = pa.DictionaryArray.from_arrays(pa.array(at), values)
        elif form == "nulls":
            text = text.dictionary_encode()
            text = pa.DictionaryArray.from_arrays(pa.array(text.indices.to_numpy(), mask=key % 7 == 0), text.dictionary)
        accounting = Accounting(tuples_in=len(key), applied=len(key))
        sides.append(Loaded(name, np.arange(len(key)) * SECOND, pa.chunked_array([text]), accounting))
    return Joinable(sides[0], sides[1], window)


def keys(n: int, of: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    first, second = ((rng.random(n) ** 2 * of).astype(np.int64) for _ in range(2))
    return first, second


def answered(joined: Joinable, preference: str, strategy: str, budget: float) -> list[tuple[Any, ...]]:
    plan = JoinPlan(
        window=joined.window, budget=Budget(budget), preference=preference, strategy=strategy
    )  # fmt: skip
    table = JoinAnswer(joined, plan, key="k").to_arrow()
    assert table.schema.field("k").type == pa.string()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("preference", ["desc", "asc", "weighted"])
@pytest.mark.parametrize("strategy", ["keys", "counts", "exact", "prefix"])
def test_texts_in_a_dictionary_have_the_pairs_that_they_have_without(
    monkeypatch: pytest.MonkeyPatch, preference: str, strategy: str
) -> None:
    monkeypatch.setenv("NILE_PRICES", "shipped")
    given = keys(60_000, 4_000)
    if strategy == "prefix" and preference != "desc":
        return
    plain = joinable(given, 400 * SECOND)
    every = {row[:2]: row[2:5] for row in answered(plain, "desc", "exact", 1.0)}
    for form in ("dictionary", "nulls"):
        whole = {pair for pair, row in every.items() if form != "nulls" or int(row[0]) % 7}
        for budget in (0.1, 1.0):
            found = answered(joinable(given, 400 * SECOND, form), preference, strategy, budget)
            assert all(every[row[:2]] == row[2:5] for row in found)
            assert len({row[:2] for row in found}) == len(found)
            assert found
            assert budget < 1.0 or preference == "asc" or strategy == "prefix" or {row[:2] for row in found} == whole


def test_a_look_at_a_dictionary_sees_what_one_at_its_texts_sees() -> None:
    given = keys(80_000, 9_000)
    looks = [Look(joinable(given, 500 * SECOND, form), 3) for form in ("plain", "dictionary")]
    plain, coded = looks
    assert (plain.seen == coded.seen).all()
    assert (plain.pairs, plain.distinct, plain.paired) == (coded.pairs, coded.distinct, coded.paired)
    assert (plain.unhashed, coded.unhashed, coded.hashed) == (160_000, 0, 160_000)
    (all_, bits), (other, others) = (look.counted() for look in looks)
    assert bits == others
    assert (all_ == other).all()
    assert all_.sum() == 160_000
    rng = np.random.default_rng(1)
    stratum = rng.integers(0, 3, 1 << bits).astype(np.uint8)
    level, coins = np.array([0.0, 1.0, 0.5]), (np.array([1.0, 1.0, 0.5]), np.array([1.0, 0.3, 1.0]))
    for one, two in zip(
        *([each.left, each.right] for each in (look.admitted(stratum, level, coins, bits) for look in looks)),
        strict=True,
    ):
        assert one.place.tolist() == two.place.tolist()
        assert one.ts.tolist() == two.ts.tolist()
        assert one.stratum.tolist() == two.stratum.tolist()
        assert one.key.to_pylist() == two.key.to_pylist()
        assert len(two.key.chunk(0).dictionary) < 2 * 9_000


@pytest.mark.parametrize("form", ["numbers", "plain", "dictionary"])
@pytest.mark.parametrize("cap", [0, 4])
def test_slots_by_all_tuples_are_those_of_the_best_keys(form: str, cap: int) -> None:
    given = keys(100_000, 30_000)
    look = Look(joinable(given, 20_000 * SECOND, form), 0)
    assert min(look.every) > 1
    kinds, work = Kinds(look, cap), Work(look, PRICES)
    left, right = (np.bincount(each, minlength=30_000) for each in given)
    worth = left * right / np.maximum(1, left + right) * (few_around(left + right, look.alike, cap) if cap else 1.0)
    taken: set[int] = set()
    last = np.inf
    for room in (4e5, 8e5, 1e12):
        admission = kinds.best(work, room, counting=cap > 0)
        one = np.ones(2)
        came = look.admitted(admission.stratum, admission.level, (one, one), kinds.bits)
        own = {int(key) for key in np.unique(given[0][came.left.place])} | {
            int(key) for key in np.unique(given[1][came.right.place])
        }
        assert not own & taken
        taken |= own
        if room < 1e12:
            assert 0.5 * room < admission.cost <= room
            assert len(own) < 30_000
        assert np.median(worth[list(own)]) <= 1.1 * last  # the best first, as far as they are alone in their slots
        last = float(np.median(worth[list(own)]))
    assert {int(key) for key in np.flatnonzero(worth)} <= taken
    assert not kinds.best(work, 1e12).stratum.any()


@pytest.mark.parametrize("cap", [1, 2, 4, 7])
def test_how_many_of_a_keys_pairs_are_outliers(cap: int) -> None:
    rng = np.random.default_rng(cap)
    for window, alike in ((1.0, 1.0), (0.02, 1.0 - 0.98**2)):
        for n in (2, 5, 20, 90):
            pairs = outliers = 0
            for _ in range(2_000):
                at = np.sort(rng.random(n))
                later = int(rng.integers(1, n))
                since = np.searchsorted(at, at[later] - window)
                pairs += later - int(since)
                outliers += (later - int(since)) * (later - int(since) + 1 <= cap)
            if pairs > 400:
                # An arrival that more are before completes more pairs: each arrival counts for those that it completes.
                told = float(few_around(np.array([float(n)]), alike, cap)[0])
                assert told == pytest.approx(outliers / pairs, abs=0.06)


def test_pairs_of_heavy_keys_are_foretold_where_light_ones_share_their_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "_FINEST", 12)
    rng = np.random.default_rng(6)
    light, heavy = rng.integers(100, 200_000, (2, 90_000)), rng.integers(0, 100, (2, 6_000))
    first, second = (rng.permutation(np.concatenate(each)) for each in zip(light, heavy, strict=True))
    look = Look(joinable((first, second), 50_000 * SECOND, "numbers"), 0)
    assert look.distinct > 4 * (1 << look.finest)
    admission, one = Kinds(look, 0).best(Work(look, PRICES), 3e6), np.ones(2)
    came = look.admitted(admission.stratum, admission.level, (one, one), look.finest)
    assert np.isin(np.arange(100), first[came.left.place]).mean() > 0.4
    lists = came.listed
    pairs = sum(
        part.left.shape[0]
        for part in KeyPairs(
            lists, (look.joined.left.ts, look.joined.right.ts), look.window, look.joined.left_keys
        ).written(1 << 60)
    )
    assert 0.6 < admission.pairs / pairs < 1.2
