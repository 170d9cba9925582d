"""Answers too long to be kept: read batch by batch, again from the start, counted, and refused before they begin."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.answers import join_outputs, kept_outputs, tabular
from nile.preferences.key_sample import KeySample, KeyTotals

TUPLES = 3_000


@pytest.fixture
def db() -> nile.Database:
    rng = np.random.default_rng(1)
    made = nile.connect()
    for name in ("a", "b", "c"):
        ts = np.sort(rng.random(TUPLES)) * 1000
        made.register(name, pa.table({"ts": ts, "k": rng.zipf(1.3, TUPLES) % 50, "x": np.arange(TUPLES)}), time="ts")
    return made


def asked(db: nile.Database, kind: str, streams: int, **changes: Any) -> Any:
    join = db.join("a", "b", on="k") if streams == 2 else db.join("a", "b", "c", on="k")
    join = join.within(20).using(**changes)
    return join.prefer(kind) if kind else join


@pytest.mark.parametrize("streams", [2, 3])
@pytest.mark.parametrize(("kind", "budget"), [("desc", 0.3), ("weighted", 0.3), ("asc", 0.5), ("", None)])
@pytest.mark.parametrize("output", ["pairs", "ranges"])
def test_what_is_not_kept_is_found_again(
    db: nile.Database, kind: str, budget: float | None, streams: int, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = asked(db, kind, streams).returning(output)
    kept = query.run(budget)
    table, estimate = kept.to_arrow(), kept.estimate
    expanded, spent = kept.expand(), kept.budget
    monkeypatch.setattr(kept_outputs, "_MOST_KEPT", 1000)
    answer = query.run(budget)
    assert pa.Table.from_batches(answer.batches(), answer.schema) == table
    assert answer.to_arrow() == table
    assert answer.expand() == expanded
    assert answer.budget == spent
    told = answer.estimate
    for name in ("value", "low", "high"):
        assert getattr(told, name) == pytest.approx(getattr(estimate, name), rel=1e-9)
    assert answer._found.kept <= 1


@pytest.mark.parametrize("asked_first", [False, True])
@pytest.mark.parametrize(
    "budget",
    [
        nile.Budget(outputs=2_000),
        nile.Budget(fraction=0.3),
        nile.Budget(seconds=20),
        nile.Budget(seconds_per_tuple=1e-5),
    ],
)
def test_samples_are_estimated_under_every_kind_of_budget(
    db: nile.Database, budget: nile.Budget, asked_first: bool
) -> None:
    exact = asked(db, "", 2).run().estimate.value
    answer = asked(db, "weighted", 2).run(budget)
    if not asked_first:
        answer.to_arrow()
    estimate = answer.estimate
    assert estimate.value == pytest.approx(exact, rel=0.1)
    assert estimate.low <= estimate.value <= estimate.high
    assert estimate.value == pytest.approx(np.sum(answer.to_arrow()["weight"].to_numpy()), rel=0.05)


def test_two_readers_of_one_answer_each_read_all_of_it(db: nile.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_outputs, "_MOST_KEPT", 1000)
    answer = asked(db, "desc", 2).run(0.5)
    wanted = [part.left.tolist() for part in asked(db, "desc", 2).run(0.5).outputs()]
    first, second = answer.outputs(), answer.outputs()
    got = [part.left.tolist() for part in islice(first, 2)]
    theirs = [part.left.tolist() for part in second]
    got += [part.left.tolist() for part in first]
    assert got == theirs == wanted


def test_a_run_that_cannot_be_repeated_says_so(db: nile.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_outputs, "room_for_answers", lambda: 4000)
    # A fade factor, under which counts alone do not tell what is first: such a run is metered as it goes.
    answer = asked(db, "desc", 2).prefer("desc", fade=0.9).run(nile.Budget(outputs=5_000))
    rows = sum(batch.num_rows for batch in answer.batches())
    assert 4_000 < rows <= 5_000
    assert answer.estimate.value == rows
    with pytest.raises(nile.MemoryRefused, match="read batches"):
        next(iter(answer.batches()))


def test_totals_by_key_tell_what_all_outputs_tell() -> None:
    rng = np.random.default_rng(2)
    level = rng.choice([1.0, 0.5, 0.25], 5_000)
    sample = KeySample(rng.integers(1, 4, 5_000) / level, level, rng.integers(0, 300, 5_000), 17.0)
    pairs = rng.integers(1, 9, 5_000)
    totals = KeyTotals()
    for at in np.array_split(np.arange(5_000), 13):
        totals.add(KeySample(sample.weight[at], level[at], sample.key[at]), pairs[at])
    for like in (sample, replace(sample, missed=0.4)):
        one, other = like.count(pairs, 0.95), totals.count(like, 0.95)
        assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high), rel=1e-12)


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("it began")


@pytest.mark.parametrize("text", ["SELECT a.x, b.x AS y FROM a, b WHERE a.k = b.k {}", "SELECT a.x FROM a, b, c {}"])
@pytest.mark.parametrize("window", ["", "WINDOW 20"])
def test_sql_answers_that_cannot_fit_are_refused_before_they_begin(
    db: nile.Database, text: str, window: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "c " in text and window:
        return  # three streams in a window are counted by none but the join itself
    monkeypatch.setattr(tabular, "memory_bytes", lambda: 100_000)
    result = db.sql(text.format(window))
    with pytest.raises(nile.MemoryRefused, match=r"answer: [\d,]+ rows need about .* GiB, .*batches\(\)"):
        result.to_arrow()
    if "c " not in text:
        assert sum(batch.num_rows for batch in db.sql(text.format(window)).batches()) > 10_000


@pytest.mark.parametrize("streams", [2, 3])
@pytest.mark.parametrize("way", ["to_arrow", "members", "to_pandas"])
def test_whole_joins_that_cannot_fit_are_refused_before_they_begin(
    db: nile.Database, streams: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = asked(db, "", streams).run()
    monkeypatch.setattr(tabular, "memory_bytes", lambda: 100_000)
    assert join_outputs.room_for_answers() == 50_000
    monkeypatch.setattr(type(answer), "outputs", never)
    with pytest.raises(nile.MemoryRefused, match="LIMIT, a window"):
        getattr(answer, way)()
    assert answer.estimate.value > 10_000


def test_an_answer_under_a_budget_is_refused_once_it_is_too_long(
    db: nile.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tabular, "memory_bytes", lambda: 1_000_000)
    with pytest.raises(nile.MemoryRefused, match="more than half"):
        asked(db, "desc", 2).run(0.9).to_arrow()


def test_memory_that_the_system_does_not_give_is_an_error_of_ours() -> None:
    def failing() -> Any:
        yield pa.record_batch([pa.array([1, 2])], names=["x"])
        raise pa.ArrowMemoryError("malloc of size 17 failed")

    with pytest.raises(nile.MemoryRefused, match="more than 2 rows"):
        tabular.held_together(failing())


PEAK = """
import numpy as np, pyarrow as pa, nile
from nile.base.machine import peak_memory
db, rng = nile.connect(), np.random.default_rng(1)
for name in "ab":
    n = 200_000
    db.register(name, pa.table({"ts": np.sort(rng.random(n)) * 1e4, "k": rng.integers(0, 4000, n)}), time="ts")
query = db.join("a", "b", on="k").using(costs="engine")
next(iter(query.run().batches())), next(iter(query.prefer("desc").run(0.9).batches()))
before = peak_memory()
rows = sum(b.num_rows for b in query.run().batches())
rows += sum(b.num_rows for b in query.prefer("desc").run(0.9).batches())
print(rows, (peak_memory() - before) >> 20)
"""


def test_ten_million_pairs_and_nine_more_take_no_more_memory_than_what_is_kept() -> None:
    told = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True).stdout.split()
    assert int(told[0]) > 18_000_000
    assert 0 < int(told[1]) < 120, f"{told[1]} MB; 24 bytes a pair would be {24 * int(told[0]) / 2e6:.0f}"


def test_a_join_that_costs_more_than_the_whole_answer_as_ranges_warns_once_when_it_has_run(db: nile.Database) -> None:
    query = db.join("a", "b", on="k", window=100).prefer("desc").using(costs="engine")
    with warnings.catch_warnings(record=True) as before:
        warnings.simplefilter("always")
        answer = query.run(0.9)
        batches = answer.batches()
        next(batches)
    assert not before
    with pytest.warns(nile.CostWarning, match="the whole answer as ranges costs") as told:
        list(batches)
    assert [str(each.message) for each in told] == list(answer.warnings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer.again(0.8).to_arrow()  # a sweep asks for budgets that no user asked for
        query.run().to_arrow()
