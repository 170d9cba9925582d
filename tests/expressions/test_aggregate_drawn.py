"""Aggregates of one stream within a fraction at this machine's prices: all of it, or a sample drawn before any look."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nile
from nile.answers import bound_aggregate
from nile.base import unchanged
from nile.operators.aggregate.drawn import MOST, drawn_of, strata_of
from nile.operators.aggregate.input import Drawn, seed_word, unit_hash
from nile.operators.inputs import drawing
from nile.operators.inputs.loading import are_times_kept, load_columns
from nile.operators.strategies.prices import PRICES
from nile.summaries import intervals, sample_kernels

N = 30_000


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NILE_COSTS", "machine")
    granted(monkeypatch, 3e5)


def granted(monkeypatch: pytest.MonkeyPatch, start: float) -> None:
    """What is granted beside every fraction, in ns: with little of it streams of a test are sampled."""
    monkeypatch.setattr(bound_aggregate, "machine_prices", lambda: replace(PRICES, start=start))


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    rng = np.random.default_rng(5)
    columns = {
        "ts": np.arange(N) * 1.0, "k": (40 * rng.random(N) ** 2).astype(np.int64), "v": rng.gamma(2.0, 3.0, N),
        "w": pa.array(rng.normal(10.0, 3.0, N), mask=rng.random(N) < 0.3), "t": [f"n{i % 7}" for i in range(N)],
        "f": rng.integers(0, 5, N) / 4.0,
    }  # fmt: skip
    return pa.table(columns)


@pytest.fixture(scope="module")
def db(rows: pa.Table) -> nile.Database:
    return nile.connect().register("s", rows, time="ts")


def test_draws_are_different_ordinals_evenly_spread_and_more_draws_a_superset() -> None:
    for size, wanted in ((1, 1.0), (10, 3.0), (50_000, 500.0), (50_000, 49_000.0)):
        at = drawn_of(size, wanted, 3)
        assert (np.diff(at) > 0).all()
        assert at.min() >= 0
        assert at.max() < size
    found = [len(drawn_of(20_000, 2_000.0, seed)) for seed in range(50)]
    assert abs(np.mean(found) - 2_000) < 10
    assert len(drawn_of(20_000, 20_000.0, 1)) < 1.02 * MOST * 20_000
    before: set[int] = set()
    for wanted in (10.0, 100.0, 2_000.0, 9_000.0):
        now = set(drawn_of(20_000, wanted, 9).tolist())
        assert now > before
        before = now
    often = np.bincount(np.concatenate([drawn_of(40, 10.0, seed) for seed in range(4_000)]), minlength=40)
    mean = often.mean()
    assert np.abs(often - mean).max() < 5.0 * mean**0.5
    at = drawn_of(1_003, 200.0, 2)
    hits = np.flatnonzero(at % 3 == 1)
    for some in (None, hits, hits[:0]):
        sizes, drawn, label = strata_of(Drawn(at, 1_003, 1_003, hits=some))
        ends = np.cumsum(sizes)
        assert ends[-1] == 1_003
        np.testing.assert_array_equal(drawn, np.bincount(np.searchsorted(ends, at, side="right"), minlength=16))
        np.testing.assert_array_equal(label, np.searchsorted(ends, at if some is None else at[some], side="right"))


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_the_kernel_draws_what_hashes_of_the_draws_say(size: int) -> None:
    for seed in (-3, 0, 1, 2**40):
        for draws in (0, 1, 900):
            found, told = np.zeros(size, bool), np.zeros(size, bool)
            sample_kernels.mark_drawn(draws, seed_word(seed), found)
            told[np.minimum((unit_hash(draws, seed) * size).astype(np.int64), size - 1)] = True
            np.testing.assert_array_equal(found, told)


def test_numbers_of_cells_are_the_same_by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    for n, cells in ((0, 3), (1, 1), (9_000, 1), (9_000, 40)):
        amount, at = rng.normal(size=n), rng.integers(0, cells, n)
        told = []
        for few in (0, 1 << 40):
            monkeypatch.setattr(intervals, "_FEW", few)
            seen, total = intervals.cell_totals(amount, at, cells)
            told.append((seen, total, *intervals.cell_spreads(amount, at, total / np.maximum(seen, 1))))
        for mine, theirs in zip(*told, strict=True):
            np.testing.assert_array_equal(mine, theirs)


WHERES = {
    "": lambda v, w, k: np.ones(N, bool),
    "v > 6": lambda v, w, k: v > 6,
    "k < 9 AND w > 11": lambda v, w, k: (k < 9) & (w > 11),
    "ts >= 20000": lambda v, w, k: np.arange(N) >= 20_000,
    "v > 1e9": lambda v, w, k: v > 1e9,
}


@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("by", [None, "t"])
def test_estimates_are_those_of_the_sample_by_hand(
    db: nile.Database, rows: pa.Table, where: str, by: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(drawing, "drawn_of", lambda *given: drawn.append(drawn_of(*given)) or drawn[-1])
    made = {"n": "count(*)", "c": "count(w)", "s": "sum(v)", "a": "avg(w)", "q": "var_samp(v)", "m": "max(v)"}
    answer = db.aggregate("s", made, where=where or None, by=by).using(seed=4).run(0.1)
    (at,) = drawn
    assert 100 < at.shape[0] < MOST * N
    assert answer.figures.read == at.shape[0]
    assert answer.accounting.shed == N - at.shape[0]
    v, w, k = (rows[name].to_numpy() for name in "vwk")
    ends = np.linspace(0, N, 17).astype(np.int64)
    stratum = np.searchsorted(ends, at, side="right") - 1
    weight = (np.diff(ends) / np.bincount(stratum, minlength=16))[stratum]
    holds = WHERES[where](v, w, k)[at]
    of = np.array(rows["t"].to_pylist())[at]
    found = answer.to_arrow().to_pylist()
    assert {row["t"] for row in found} == set(of[holds]) if by else len(found) == 1
    for row in found:
        mine = holds & (of == row["t"]) if by else holds
        own, known = weight * mine, weight * (mine & ~np.isnan(w[at]))
        if not mine.any():
            assert row["n"] == 0.0
            assert row["a"] is row["m"] is None
            continue
        mean = (own * v[at]).sum() / own.sum()
        spread = (own * (v[at] - mean) ** 2).sum() / (own.sum() - 1.0)
        told = {"n": own.sum(), "c": known.sum(), "s": (own * v[at]).sum(), "q": spread, "m": v[at][mine].max()}
        told["a"] = (known * np.nan_to_num(w[at])).sum() / known.sum()
        for name, value in told.items():
            assert row[name] == pytest.approx(value, rel=1e-9)
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]


CELLS = {
    "count": ("count(*)", "v > 9", lambda v, w, k: (v > 9).sum()),
    "few": ("count(*)", "v > 20", lambda v, w, k: (v > 20).sum()),
    "sum": ("sum(v)", None, lambda v, w, k: v.sum()),
    "sum where": ("sum(v)", "k < 9", lambda v, w, k: v[k < 9].sum()),
    "sum of few": ("sum(v)", "v > 18", lambda v, w, k: v[v > 18].sum()),
    "avg nulls": ("avg(w)", "k > 3 AND v < 8", lambda v, w, k: np.nanmean(w[(k > 3) & (v < 8)])),
    "time": ("count(*)", "ts >= 6000 AND ts < 21000", lambda v, w, k: 15_000),
}
SAMPLES = 1_000


@pytest.mark.parametrize("cell", CELLS)
def test_estimates_are_right_on_average_and_intervals_hold(db: nile.Database, rows: pa.Table, cell: str) -> None:
    """A cell whose intervals hold in 95 % passes in 998 of 1,000 choices of the seeds, one of 91 % in 16."""
    text, where, exact = CELLS[cell]
    query = db.aggregate("s", {"x": text}, where=where)
    truth = float(exact(*(rows[name].to_numpy() for name in "vwk")))
    found = [query.using(seed=seed).run(0.05).estimate("x") for seed in range(SAMPLES)]
    values = np.array([each.value for each in found])
    assert values.std() > 0.0
    assert abs(values.mean() - truth) < 4.0 * values.std() / SAMPLES**0.5
    assert np.mean([each.low <= truth <= each.high for each in found]) >= 0.93


@pytest.mark.parametrize("by", ["k", "t", "f", "t, f"])
def test_groups_are_estimated_with_intervals_that_hold(db: nile.Database, rows: pa.Table, by: str) -> None:
    names = by.split(", ")
    exact = rows.group_by(names).aggregate([("v", "sum")]).to_pylist()
    truth = {tuple(row[name] for name in names): row["v_sum"] for row in exact}
    held = []
    for seed in range(60):
        answer = db.aggregate("s", {"x": "sum(v)"}, by=names).using(seed=seed).run(0.2)
        assert any("groups of which" in note for note in answer.notes)
        for row in answer.to_arrow().to_pylist():
            key = tuple(row[name] for name in names)
            if np.isfinite(row["x_high"]) and truth[key] > 2_000.0:  # of a group of a dozen values none is claimed here
                held.append(row["x_low"] <= truth[key] <= row["x_high"])
    assert len(held) > 200
    assert np.mean(held) >= 0.93


def test_more_of_a_fraction_looks_at_more_and_the_interval_narrows(db: nile.Database) -> None:
    read, width = [], []
    for fraction in (0.02, 0.1, 0.3, 0.5, 0.7):
        answer = db.aggregate("s", {"x": "sum(v)"}, where="v < 12").using(seed=2).run(fraction)
        told = answer.estimate("x")
        read.append(answer.figures.read)
        width.append(told.high - told.low)
        assert answer.budget.spent <= answer.budget.granted + 1e-9
    assert read == sorted(read)
    assert read[0] < read[-1] < N
    assert width[-1] < width[0]


def test_the_exact_answer_comes_where_the_fraction_pays_for_it(
    db: nile.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted(monkeypatch, 1e9)
    made = {"n": "count(*)", "x": "sum(v)", "d": "count(DISTINCT k)", "m": "median(v)", "h": "max(w)"}
    for by in (None, "t"):
        answer = db.aggregate("s", made, where="v < 9 AND k > 2", by=by).run(0.02)
        whole = db.aggregate("s", made, where="v < 9 AND k > 2", by=by).run()
        assert answer.is_exact
        rows, exact = (table.sort_by(by) if by else table for table in (answer.to_arrow(), whole.to_arrow()))
        assert rows.equals(exact)
        assert answer.figures == replace(whole.figures, granted=answer.figures.granted)
        assert any("exact answer" in note for note in answer.notes)
        assert answer.budget.fraction == 1.0
        assert answer.accounting.shed == 0
    found = db.sql("SELECT t, sum(v) AS x FROM s WHERE v < 9 GROUP BY t HAVING sum(v) > 1 ORDER BY t", budget=0.02)
    assert found.to_arrow().num_rows == 7


def told(rows: Any) -> list[str]:
    """Rows in an order of their own; spreads are rounded once by the one and twice by the other."""
    return sorted(re.sub(r"(\d\.\d{11})\d+", r"\1", repr(row)).replace("-0.0,", "0.0,") for row in rows)


@pytest.mark.parametrize("seed", range(12))
def test_whole_answers_by_columns_are_those_of_the_operator(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    granted(monkeypatch, 1e9)
    rng = np.random.default_rng(seed)
    n = int(rng.choice([0, 1, 5, 40, 700]))

    def column(values: Any, kind: pa.DataType | None = None) -> pa.Array:
        return pa.array(values, mask=rng.random(n) < rng.choice([0.0, 0.3, 1.0], p=[0.4, 0.5, 0.1])).cast(kind)

    days = rng.integers(-5, 5, n)
    whole = {"i": (-9, 9, pa.int32()), "g": (0, 4, pa.int64()), "big": (2**62 - 9, 2**62, pa.int64())}
    columns = {name: column(rng.integers(low, high, n), kind) for name, (low, high, kind) in whole.items()}
    columns |= {
        "ts": pa.array(np.arange(n) * 1.0),
        "u": column(rng.integers(0, 2**63, n).astype(np.uint64) * 2, pa.uint64()),
        "f": column(rng.choice([0.0, -0.0, 0.1, np.nan, np.inf, 7.7], n), pa.float64()),
        "s": column([f"é{k}" for k in days], pa.string()),
        "d": column(days.astype(np.int32), pa.int32()).cast(pa.date32()),
        "b": column(days > 0, pa.bool_()),
        "m": column(days, pa.int64()).cast(pa.decimal128(22, 2)),
    }
    table = pa.table(columns)
    made = {"n": "count(*)", "c": "count(s)", "e": "count(DISTINCT s)", "p": "max(d)", "q": "quantile_disc(s, 0.3)"}
    for name in ("i", "big", "u", "f", "m"):
        for function in ("sum", "avg", "min", "max", "stddev_pop", "median"):
            made[f"{function}_{name}"] = f"{function}({name})"
    made |= {f"{function}_{name}": f"{function}({name})" for name in ("s", "d", "b") for function in ("min", "max")}
    some = {name: made[name] for name in rng.permutation(list(made))[: int(rng.integers(1, 9))].tolist()}
    db = nile.connect().register("s", table, time="ts")
    for by in (None, ["g"], ["s"], ["f", "b"]):
        where = [None, "i > -3", "ts > 30 AND (f < 5 OR s IS NULL)", "i > 50"][int(rng.integers(4))]
        query = db.aggregate("s", some, where=where, by=by)
        query = query.within(float(rng.integers(0, 300))) if rng.random() < 0.3 else query
        answer, judge = query.run(0.02), query.run()
        assert answer.is_exact
        assert answer.coverage == judge.coverage
        rows, exact = answer.to_arrow(), judge.to_arrow()
        assert told(rows.to_pylist()) == told(exact.to_pylist())
        for field in exact.schema:  # what type nothing has is not told
            assert exact[field.name].null_count == len(exact) or rows.schema.field(field.name).type == field.type
        assert told(answer.numbers()) == told(judge.numbers())


def test_windows_and_ranges_of_time_are_sampled_for_themselves(db: nile.Database, rows: pa.Table) -> None:
    v = rows["v"].to_numpy()
    for query, truth in (
        (db.aggregate("s", {"x": "sum(v)"}).within(9_999), v[-10_000:].sum()),
        (db.aggregate("s", {"x": "sum(v)"}).between(5_000, 24_999), v[5_000:25_000].sum()),
    ):
        found = [query.using(seed=seed).run(0.02) for seed in range(40)]
        values = np.array([answer.value("x") for answer in found])
        assert not found[0].is_exact
        assert abs(values.mean() - truth) < 4.0 * values.std() / 40**0.5
        told = found[0].accounting
        assert told.shed == N - found[0].figures.read
    assert db.aggregate("s", {"n": "count(*)"}).between(90_000, 99_000).run(0.02).value("n") == 0
    assert db.aggregate("s", {"n": "count(*)"}).within(9_999).run(0.02).estimate("n").value == 10_000


def test_what_was_not_drawn_is_bounded_by_nothing(db: nile.Database) -> None:
    told = db.aggregate("s", {"h": "max(v)", "s": "sum(v)"}).run(0.02)
    assert told.estimate("h").high == np.inf
    assert not told.estimate("s").certified
    empty = db.aggregate("s", {"n": "count(*)"}, where="k = 999").run(0.02).estimate("n")
    assert empty.value == 0.0
    assert empty.high > 0.0


def test_more_may_be_asked_of_what_was_sampled(db: nile.Database) -> None:
    answer = db.aggregate("s", {"x": "sum(v)"}, where="v < 12").run(0.02)
    whole = answer.again(None)
    assert whole.is_exact
    assert whole.value("x") == db.aggregate("s", {"x": "sum(v)"}, where="v < 12").run().value("x")


def test_reading_a_file_that_takes_more_than_the_fraction_is_told(rows: pa.Table, tmp_path: Any) -> None:
    pq.write_table(rows, tmp_path / "s.parquet")
    db = nile.connect().register("s", tmp_path / "s.parquet", time="ts")
    answer = db.aggregate("s", {"x": "sum(v)"}).run(0.02)
    assert not answer.is_exact
    assert "reading the stream alone" in answer.warnings[0]


def test_fixed_prices_and_named_methods_go_as_before(db: nile.Database) -> None:
    def noted(query: Any) -> Any:
        answer = query.using(seed=1).run(0.05)
        return answer.figures, answer.value("x")

    query = db.aggregate("s", {"x": "sum(v)"}, where="k < 9")
    sample = noted(query.using(method="sample", costs="engine"))
    assert noted(query.using(method="sample")) == sample
    assert noted(query.using(costs="engine")) == sample
    assert noted(query)[0].read != sample[0].read


def test_reading_a_file_is_priced_by_its_columns() -> None:
    def read(numbers: int, texts: int, kept: bool) -> float:
        return PRICES.reading_columns("ParquetSource", numbers, texts, kept=kept)

    assert read(1, 0, True) < read(2, 0, True) < read(1, 1, True) < read(1, 1, False)
    assert read(1, 0, False) - read(1, 0, True) == pytest.approx(read(3, 2, False) - read(3, 2, True))
    assert PRICES.reading_columns("CsvSource", 5, 5, kept=False) == PRICES.reading("CsvSource", hashed=False)


def test_times_are_kept_of_files_that_stay_as_they_were(
    rows: pa.Table, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unchanged, "_FINE", 0.0)
    monkeypatch.setattr(unchanged, "_COARSE", 0.0)
    path = tmp_path / "s.parquet"
    pq.write_table(rows.set_column(0, "ts", pa.array(np.arange(N)).cast(pa.timestamp("s"))), path)
    db = nile.connect().register("s", path, time="ts")
    manager = db._names.manager("s", "ts", ("v",))
    assert not are_times_kept(manager)
    load_columns(manager, ("v",))
    assert are_times_kept(manager)
    assert not are_times_kept(nile.connect().register("s", rows, time="ts")._names.manager("s", "ts", ("v",)))
