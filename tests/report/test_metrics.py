"""The score of an answer equals a brute-force twin written straight from the definitions."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import fields
from fractions import Fraction
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nile.report.histograms import BINS, Histogram
from nile.report.metrics import ExactPairs, Obtained, Score, score
from nile.summaries.errors import ConfigError, SourceError, SourceMissing

SECOND = 1_000_000_000
# Two correctly rounded roads to the same real number differ by a few roundings of 100 terms.
ROUNDING = 1e-12

Tuple = tuple[int, str]  # (time in ns, key)


# --- the truth, from tuples, by loops -------------------------------------------------------------------


def in_order(left: list[Tuple], right: list[Tuple]) -> list[tuple[int, int, int, str]]:
    """All tuples in total order: (ts, stream position, ordinal, key)."""
    both = [(ts, 0, i, key) for i, (ts, key) in enumerate(left)]
    return sorted(both + [(ts, 1, i, key) for i, (ts, key) in enumerate(right)])


def exact_by_loops(left: list[Tuple], right: list[Tuple], window: int | None) -> list[dict[str, Any]]:
    """Every pair of the window join with what the exact answer says of it."""
    everything = in_order(left, right)
    rows = []
    for i, (left_ts, key) in enumerate(left):
        for j, (right_ts, other) in enumerate(right):
            if key != other or (window is not None and abs(left_ts - right_ts) > window):
                continue
            later = max((left_ts, 0, i, key), (right_ts, 1, j, key))
            inside = [
                t
                for t in everything
                if t[3] == key and t[:3] <= later[:3] and (window is None or later[0] - window <= t[0])
            ]
            rows.append(
                {
                    "left": i,
                    "right": j,
                    "key": key,
                    "age": abs(left_ts - right_ts),
                    "window_count": len(inside),
                    "frequency": sum(t[3] == key for t in everything),
                }
            )
    return rows


def as_pairs(rows: list[dict[str, Any]]) -> ExactPairs:
    keys = sorted({row["key"] for row in rows})
    column = {name: [row[name] for row in rows] for name in ("left", "right", "age", "window_count", "frequency")}
    return ExactPairs(
        left=np.array(column["left"], dtype=np.int64),
        right=np.array(column["right"], dtype=np.int64),
        key_rank=np.array([keys.index(row["key"]) for row in rows], dtype=np.int64),
        age=np.array(column["age"], dtype=np.int64),
        window_count=np.array(column["window_count"], dtype=np.int64),
        frequency=np.array(column["frequency"], dtype=np.int64),
    )


def as_obtained(outputs: list[tuple[int, int, float]]) -> Obtained:
    return Obtained(
        np.array([o[0] for o in outputs], dtype=np.int64),
        np.array([o[1] for o in outputs], dtype=np.int64),
        np.array([o[2] for o in outputs], dtype=np.float64),
    )


def score_by_loops(
    rows: list[dict[str, Any]], outputs: list[tuple[int, int, float]], window: int | None, cap: int
) -> dict[str, int | Fraction | None]:
    """Every figure of a Score, in rational numbers, from the definitions alone."""
    by_pair = {(row["left"], row["right"]): row for row in rows}
    weight_of: dict[tuple[int, int], Fraction] = {}
    false = 0
    for left, right, weight in outputs:
        if (left, right) not in by_pair or (left, right) in weight_of:
            false += 1
        else:
            weight_of[left, right] = Fraction(weight)
    got = [by_pair[pair] for pair in weight_of]
    total, n = len(rows), len(got)

    keys = sorted({row["key"] for row in rows})
    width = max((row["age"] for row in rows), default=0) if window is None else window

    def key_bin(row: dict[str, Any]) -> int:
        return math.floor(Fraction(keys.index(row["key"]) * BINS, len(keys)))

    def age_bin(row: dict[str, Any]) -> int:
        return min(BINS - 1, math.floor(Fraction(row["age"] * BINS, width))) if width else 0

    def distance(bin_of: Any) -> Fraction | None:
        if not n:
            return None
        whole = sum(weight_of.values())
        squares = Fraction(0)
        for b in range(BINS):
            mine = sum((w for pair, w in weight_of.items() if bin_of(by_pair[pair]) == b), Fraction(0)) / whole
            true = Fraction(sum(bin_of(row) == b for row in rows), total)
            squares += (mine - true) ** 2
        return squares

    def ideal(bin_of: Any) -> Fraction | None:
        if not n:
            return None
        shares = [Fraction(count, total) for count in Counter(map(bin_of, rows)).values()]
        spread = sum((p * (1 - p) for p in shares), Fraction(0))
        return spread * Fraction(total - n, n * (total - 1)) if total > 1 else Fraction(0)

    frequency = sorted({row["key"]: row["frequency"] for row in rows}.values())
    threshold = frequency[math.ceil(len(frequency) * Fraction(5, 100)) - 1] if frequency else 0
    rare = [row for row in rows if row["window_count"] <= cap]
    rare_paper = [row for row in rows if row["frequency"] <= threshold]

    def share(part: int, whole: int) -> Fraction | None:
        return Fraction(part, whole) if whole else None

    def mean_age(of: list[dict[str, Any]]) -> Fraction | None:
        return Fraction(sum(row["age"] for row in of), len(of) * SECOND) if of else None

    return {
        "exact_pairs": total,
        "pairs": n,
        "recall": share(n, total),
        "false_pairs": false,
        "hist_mse_key": distance(key_bin),
        "hist_mse_age": distance(age_bin),
        "hist_mse_key_ideal": ideal(key_bin),
        "hist_mse_age_ideal": ideal(age_bin),
        "outliers": len(rare),
        "outlier_precision": share(sum(row in rare for row in got), len(outputs)),
        "outlier_recall": share(sum(row in rare for row in got), len(rare)),
        "outliers_paper": len(rare_paper),
        "outlier_precision_paper": share(sum(row in rare_paper for row in got), len(outputs)),
        "outlier_recall_paper": share(sum(row in rare_paper for row in got), len(rare_paper)),
        "mean_age_s": mean_age(got),
        "exact_mean_age_s": mean_age(rows),
    }


def assert_same(actual: Score, expected: dict[str, int | Fraction | None]) -> None:
    assert [field.name for field in fields(Score)] == list(expected)
    for name, value in expected.items():
        got = getattr(actual, name)
        if isinstance(value, Fraction):
            assert got == pytest.approx(float(value), rel=ROUNDING, abs=ROUNDING), name
        else:
            assert got == value, name


# --- property: equal to the twin ----------------------------------------------------------------------


tuples = st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abcde")), max_size=8).map(sorted)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Tuple], list[Tuple], int | None, int, list[tuple[int, int, float]]]:
    left, right = draw(tuples), draw(tuples)
    window = draw(st.none() | st.integers(1, 30))
    some = st.tuples(st.integers(-1, 8), st.integers(-1, 8), st.sampled_from([1.0, 2.0, 0.1, 3.7]))
    truth = [(row["left"], row["right"], 1.5) for row in exact_by_loops(left, right, window)]
    outputs = draw(st.lists(some | st.sampled_from(truth) if truth else some, max_size=20))
    return left, right, window, draw(st.integers(1, 6)), outputs


@given(cases())
def test_a_score_equals_the_brute_force_twin(
    case: tuple[list[Tuple], list[Tuple], int | None, int, list[tuple[int, int, float]]],
) -> None:
    left, right, window, cap, outputs = case
    rows = exact_by_loops(left, right, window)
    actual = score(as_pairs(rows), as_obtained(outputs), window=window, outlier_cap=cap)
    assert_same(actual, score_by_loops(rows, outputs, window, cap))


@given(cases(), st.randoms(use_true_random=False))
def test_a_score_is_the_same_bit_for_bit_in_any_order_of_exact_pairs_and_distinct_outputs(
    case: tuple[list[Tuple], list[Tuple], int | None, int, list[tuple[int, int, float]]], shuffle: Any
) -> None:
    left, right, window, cap, outputs = case
    rows = exact_by_loops(left, right, window)
    once = list({(o[0], o[1]): o for o in outputs}.values())
    expected = score(as_pairs(rows), as_obtained(once), window=window, outlier_cap=cap)
    shuffle.shuffle(rows)
    shuffle.shuffle(once)
    assert expected == score(as_pairs(rows), as_obtained(once), window=window, outlier_cap=cap)


@given(cases())
def test_no_figure_is_ever_nan(
    case: tuple[list[Tuple], list[Tuple], int | None, int, list[tuple[int, int, float]]],
) -> None:
    left, right, window, cap, outputs = case
    figures = score(
        as_pairs(exact_by_loops(left, right, window)), as_obtained(outputs), window=window, outlier_cap=cap
    ).record()
    assert all(value is None or math.isfinite(value) for value in figures.values())


# --- worked by hand -----------------------------------------------------------------------------------

LEFT = [(0, "a"), (10 * SECOND, "b"), (20 * SECOND, "a")]
RIGHT = [(5 * SECOND, "a"), (10 * SECOND, "b"), (30 * SECOND, "a")]
WINDOW = 10 * SECOND
# Pairs, window 10 s: (0,0) a, age 5; (1,1) b, age 0; (2,2) a, age 10.  (2,0) is 15 s apart, (0,2) 30 s.


def worked(*outputs: tuple[int, int, float], cap: int = 2) -> Score:
    return score(
        as_pairs(exact_by_loops(LEFT, RIGHT, WINDOW)),
        as_obtained(list(outputs)),
        window=WINDOW,
        outlier_cap=cap,
    )


def test_the_worked_example_has_three_pairs_of_which_one_obtained_is_a_third() -> None:
    got = worked((0, 0, 1.0))
    assert (got.exact_pairs, got.pairs, got.recall, got.false_pairs) == (3, 1, 1 / 3, 0)
    # Keys a, a, b: shares 2/3 and 1/3 against 1 and 0.
    assert got.hist_mse_key == pytest.approx(2 / 9, rel=ROUNDING)
    # Ages 5, 0, 10 of 10: bins 50, 0, 99, a third each, against all in bin 50.
    assert got.hist_mse_age == pytest.approx((2 / 3) ** 2 + 2 / 9, rel=ROUNDING)
    # Ideal: sum p (1 - p) * (3 - 1) / (1 * 2).
    assert got.hist_mse_key_ideal == pytest.approx(4 / 9, rel=ROUNDING)
    assert got.hist_mse_age_ideal == pytest.approx(2 / 3, rel=ROUNDING)
    assert (got.mean_age_s, got.exact_mean_age_s) == (5.0, 5.0)


def test_an_outlier_counts_both_streams_in_the_window_up_to_the_pair_and_no_further() -> None:
    rows = exact_by_loops(LEFT, RIGHT, WINDOW)
    # The pair (2,2) is completed at 30 s: only a@20 and a@30 lie in [20, 30], not all four a.
    assert [row["window_count"] for row in rows] == [2, 2, 2]
    assert [row["frequency"] for row in rows] == [4, 2, 4]
    assert worked(cap=2).outliers == 3
    assert worked(cap=1).outliers == 0
    assert worked(cap=1).outlier_recall is None


def test_the_paper_outliers_are_the_keys_at_or_below_the_nearest_rank_fifth_percentile() -> None:
    got = worked((1, 1, 1.0), (0, 0, 1.0))
    # Frequencies of the keys of the answer: b 2, a 4; place ceil(2 / 20) = 1 is 2: b alone is rare.
    assert (got.outliers_paper, got.outlier_recall_paper, got.outlier_precision_paper) == (1, 1.0, 0.5)


@pytest.mark.parametrize(
    ("frequencies", "rare"),
    [
        ([7], 1),  # one key: it is the least
        (list(range(1, 21)), 1),  # 20 keys: place 1
        (list(range(1, 22)), 2),  # 21 keys: place ceil(21 / 20) = 2
        ([2] * 15 + [9] * 25, 15),  # 40 keys: place 2 is tied with 15 keys, and all of them are in
        ([3] * 10, 10),  # all alike: all rare
    ],
)
def test_ties_at_the_threshold_of_the_paper_outliers_are_all_in(frequencies: list[int], rare: int) -> None:
    n = len(frequencies)
    ones = np.ones(n, dtype=np.int64)
    pairs = ExactPairs(np.arange(n), np.arange(n), np.arange(n), 0 * ones, 2 * ones, np.array(frequencies))
    assert int(pairs.paper_outliers.sum()) == rare


def test_a_repeat_and_a_pair_outside_the_answer_are_false_pairs_and_not_recall() -> None:
    got = worked((0, 0, 1.0), (0, 0, 1.0), (2, 0, 1.0), (77, -5, 1.0))
    assert (got.pairs, got.recall, got.false_pairs) == (1, 1 / 3, 3)
    assert got.outlier_precision == 1 / 4


def test_repeats_alone_leave_the_histograms_of_one_pair_with_its_first_weight() -> None:
    alone = worked((0, 0, 2.0))
    repeated = worked((0, 0, 2.0), (0, 0, 9.0), (0, 0, 9.0))
    assert repeated.hist_mse_key == alone.hist_mse_key
    assert repeated.hist_mse_age == alone.hist_mse_age
    assert (repeated.pairs, repeated.false_pairs) == (1, 2)


def test_weights_restore_a_biased_sample() -> None:
    # One a of two and the one b: unweighted 1/2 and 1/2, weighted 2/3 and 1/3 as in the exact answer.
    biased = worked((0, 0, 1.0), (1, 1, 1.0))
    mended = worked((0, 0, 2.0), (1, 1, 1.0))
    assert biased.hist_mse_key == pytest.approx(2 * (1 / 6) ** 2, rel=ROUNDING)
    assert mended.hist_mse_key == pytest.approx(0, abs=ROUNDING)


def test_everything_obtained_is_exact_in_every_figure() -> None:
    got = worked((2, 2, 1.0), (0, 0, 1.0), (1, 1, 1.0))
    assert (got.recall, got.false_pairs) == (1.0, 0)
    assert (got.hist_mse_key, got.hist_mse_age) == (0.0, 0.0)
    assert (got.hist_mse_key_ideal, got.hist_mse_age_ideal) == (0.0, 0.0)
    assert (got.outlier_precision, got.outlier_recall) == (1.0, 1.0)


def test_nothing_obtained_has_recall_zero_and_no_other_figure() -> None:
    got = worked()
    assert (got.pairs, got.recall, got.false_pairs, got.outlier_recall) == (0, 0.0, 0, 0.0)
    absent = (got.hist_mse_key, got.hist_mse_age, got.hist_mse_key_ideal, got.hist_mse_age_ideal)
    assert absent == (None, None, None, None)
    assert (got.outlier_precision, got.mean_age_s) == (None, None)


def test_no_exact_pairs_makes_every_output_false_and_recall_absent() -> None:
    got = score(as_pairs([]), as_obtained([(0, 0, 1.0)]), window=None, outlier_cap=4)
    assert (got.exact_pairs, got.pairs, got.recall, got.false_pairs) == (0, 0, None, 1)
    assert (got.hist_mse_key, got.hist_mse_key_ideal, got.exact_mean_age_s) == (None, None, None)
    assert (got.outlier_precision, got.outlier_recall) == (0.0, None)


def test_a_single_exact_pair_has_an_ideal_of_zero() -> None:
    rows = exact_by_loops([(0, "a")], [(0, "a")], None)
    got = score(as_pairs(rows), as_obtained([(0, 0, 1.0)]), window=None, outlier_cap=4)
    assert (got.hist_mse_key_ideal, got.hist_mse_age_ideal, got.hist_mse_age) == (0.0, 0.0, 0.0)


def test_the_ideal_is_the_mean_over_all_uniform_samples() -> None:
    rows = exact_by_loops([(i, "aabc"[i]) for i in range(4)], [(9, "a"), (9, "b"), (9, "c")], None)
    exact = as_pairs(rows)
    assert len(rows) == 4
    for n in (1, 2, 3):
        scores = [
            score(exact, as_obtained([(r["left"], r["right"], 1.0) for r in sample]), window=None, outlier_cap=4)
            for sample in permutations(rows, n)
        ]
        for figure in ("hist_mse_key", "hist_mse_age"):
            mean = math.fsum(getattr(s, figure) for s in scores) / len(scores)
            assert getattr(scores[0], f"{figure}_ideal") == pytest.approx(mean, rel=ROUNDING)


# --- bins and large numbers ---------------------------------------------------------------------------


def flat(age: list[int], **columns: list[int]) -> ExactPairs:
    n = len(age)
    usual = {name: list(range(n)) for name in ("left", "right", "key_rank")}
    usual |= {"window_count": [2] * n, "frequency": [2] * n, "age": age, **columns}
    return ExactPairs(**{name: np.array(column, dtype=np.int64) for name, column in usual.items()})


def test_age_bins_are_closed_at_the_window_and_exact_at_every_edge() -> None:
    assert flat([0, 1, 99, 100]).by_age(100).bins.tolist() == [0, 1, 99, 99]
    # floor(100 * age / 7): the edges fall between whole ages.
    assert flat(list(range(8))).by_age(7).bins.tolist() == [0, 14, 28, 42, 57, 71, 85, 99]


def test_age_bins_hold_where_a_hundred_ages_pass_the_largest_int64() -> None:
    century = 100 * 365 * 86_400 * SECOND
    assert flat([0, century // 2, century]).by_age(None).bins.tolist() == [0, 50, 99]


def test_without_a_window_ages_of_zero_share_one_bin() -> None:
    assert flat([0, 0]).by_age(None).bins.tolist() == [0, 0]


def test_mean_age_of_centuries_does_not_overflow() -> None:
    century = 100 * 365 * 86_400 * SECOND
    exact = flat([century] * 10)
    got = score(exact, Obtained(exact.left, exact.right, np.ones(10)), window=None, outlier_cap=4)
    assert got.mean_age_s == century / SECOND


def test_key_bins_are_equal_ranges_of_the_rank() -> None:
    assert flat([0] * 200).by_key.bins.tolist() == [i // 2 for i in range(200)]
    assert flat([0] * 4).by_key.bins.tolist() == [0, 25, 50, 75]


def test_ordinals_beyond_32_bits_are_told_apart() -> None:
    exact = flat([0, 0], left=[2**40, 2**41], right=[2**40 + 1, 2**41 + 1])
    found = exact.rows_of(np.array([2**41, 2**40, 2**41]), np.array([2**41 + 1, 2**41 + 1, 0]))
    assert found.tolist() == [1, -1, -1]


# --- refusals and files -------------------------------------------------------------------------------


def test_a_repeated_pair_in_the_exact_answer_is_refused() -> None:
    doubled = flat([0, 0], left=[3, 3], right=[4, 4])
    with pytest.raises(SourceError, match=r"needed each pair once, got \(3, 4\) again"):
        score(doubled, as_obtained([]), window=None, outlier_cap=4)


@pytest.mark.parametrize("ranks", [[1, 2], [0, 2], [-1, 0]])
def test_key_ranks_that_are_not_dense_from_zero_are_refused(ranks: list[int]) -> None:
    with pytest.raises(SourceError, match="key ranks dense from 0"):
        flat([0, 0], key_rank=ranks)


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(SourceError, match="columns of one length"):
        flat([0, 0], left=[1])
    with pytest.raises(SourceError, match="columns of one length"):
        Obtained(np.arange(1), np.arange(2), np.ones(1))


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_a_weight_that_is_no_positive_number_is_refused(weight: float) -> None:
    with pytest.raises(SourceError, match="finite weights > 0"):
        as_obtained([(0, 0, weight)])


def test_an_age_beyond_the_window_is_refused() -> None:
    with pytest.raises(SourceError, match="ages within the window of 10 ns, got 11 ns"):
        score(flat([11]), as_obtained([]), window=10, outlier_cap=4)


@pytest.mark.parametrize(("window", "cap"), [(0, 4), (-1, 4), (None, 0)])
def test_a_window_or_cap_out_of_range_is_refused(window: int | None, cap: int) -> None:
    with pytest.raises(ConfigError, match="needed"):
        score(flat([0]), as_obtained([]), window=window, outlier_cap=cap)


def parquet(rows: list[dict[str, Any]]) -> pa.Table:
    pairs = as_pairs(rows)
    columns = {name: getattr(pairs, name) for name in pairs.__dataclass_fields__}
    columns = {"left_ordinal": columns.pop("left"), "right_ordinal": columns.pop("right"), **columns}
    return pa.table(
        {k: pa.array(v, pa.int32() if k in ("key_rank", "window_count") else pa.int64()) for k, v in columns.items()}
    )


def test_an_exact_answer_is_read_from_a_directory_of_part_files(tmp_path: Path) -> None:
    rows = exact_by_loops(LEFT, RIGHT, WINDOW)
    table = parquet(rows)
    pq.write_table(table.slice(0, 2), tmp_path / "part-00000.parquet")
    pq.write_table(table.slice(2), tmp_path / "part-00001.parquet")
    (tmp_path / "_SUCCESS").touch()
    read, made = ExactPairs.read(tmp_path), as_pairs(rows)
    for name in made.__dataclass_fields__:
        assert getattr(read, name).tolist() == getattr(made, name).tolist()
        assert getattr(read, name).dtype == np.int64


def test_an_empty_exact_answer_reads_as_no_pairs(tmp_path: Path) -> None:
    pq.write_table(parquet([]), tmp_path / "part-00000.parquet")
    assert len(ExactPairs.read(tmp_path)) == 0


def test_a_missing_broken_or_foreign_exact_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match="no such file or directory"):
        ExactPairs.read(tmp_path / "nowhere")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(SourceError, match=r"exact answer .*broken\.parquet"):
        ExactPairs.read(broken)
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"left_ordinal": [1]}), foreign)
    with pytest.raises(SourceError, match="right_ordinal, key_rank"):
        ExactPairs.read(foreign)


@given(
    found=st.lists(
        st.tuples(
            st.integers(0, BINS - 1),
            st.one_of(st.floats(5e-324, 1e300), st.sampled_from([1.0, 0.1, 3.0, 5e-324, 2.0**53, 1e300])),
        )
    )
)
def test_weights_of_a_bin_add_up_as_by_fsum(found: list[tuple[int, float]]) -> None:
    bins, weights = np.array([b for b, _ in found], np.uint8), np.array([w for _, w in found], np.float64)
    sums = Histogram.weighed(np.zeros(BINS, np.int64), bins, weights).obtained
    assert sums == tuple(math.fsum(w for b, w in found if b == at) for at in range(BINS))


def test_more_weights_than_add_up_exactly_at_once_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    bins, weights = rng.integers(0, BINS, 5_000), 1 / rng.random(5_000)
    whole = Histogram.weighed(np.zeros(BINS, np.int64), bins, weights)
    monkeypatch.setattr("nile.report.histograms._EXACTLY", 7)
    assert Histogram.weighed(np.zeros(BINS, np.int64), bins, weights) == whole
    assert whole.obtained[3] == math.fsum(weights[bins == 3].tolist())
