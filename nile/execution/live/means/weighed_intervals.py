"""What numbers over weighed tuples are worth: intervals of totals, averages and counts of values.

Each is the normal interval of Horvitz and Thompson, solved for the truth (a score interval), so that a group of which
hardly a tuple came in, or none, is told with room for what may have been missed.  Not certified: squares of the sample
stand for those of all.
Source: Cochran, Sampling Techniques, 1977, sections 2.9, 6.3 and, for random groups, 10.16; Wilson, JASA 1927.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nile.execution.live.means.weighing import GROUPS, Told
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["CONFIDENCE", "Precision", "counted", "interval", "totalled"]

Array = np.ndarray[Any, Any]
CONFIDENCE = 0.95
_Z = 1.959963984540054
_T = 2.364624251592784
"""Student's quantile for as many degrees of freedom as there are random groups less one."""
_FEW = 8
"""Sampled values below which of an average nothing is claimed."""


class Precision(NamedTuple):
    """How precise outputs are: fp, the share of them that is wrong; fn, the share of the exact ones that is missing.

    Both in [0, 1].  Source: STREAM (CIDR 2003), section 5.3.
    """

    fp: float
    fn: float


def counted(value: Array, squares: Array, excess: float, *, found: bool = False) -> tuple[Array, Array]:
    """Ends of the interval of counts.  squares: sum of w * (w - 1); excess: the largest w - 1 there was.

    found: the counts are of groups that are told because a tuple of theirs came in, which therefore says nothing.
    """
    half = excess * _Z * _Z / 2.0
    high = value + half + np.sqrt(_Z * _Z * squares + half * half)
    if found:
        value = np.maximum(value - (excess + 1.0), 0.0)
        squares = np.maximum(squares - excess * (excess + 1.0), 0.0)
    return np.maximum(value + half - np.sqrt(_Z * _Z * squares + half * half), 0.0), high


def totalled(groups: Array, excess: float) -> Array:
    """How far totals of sampled keys reach.  groups: float64 [n, GROUPS], what random groups of the keys add up to.

    NaN where one of them has nothing, so that nothing is known of how they differ.
    """
    spread = ((groups - groups.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) * GROUPS / (GROUPS - 1)
    reach = _T * np.sqrt(spread * excess / (excess + 1.0))
    return np.where((groups != 0.0).all(axis=1), reach, np.nan)


def interval(told: Told, rows: pa.RecordBatch, level: int, *, grouped: bool) -> tuple[Array, Array] | None:
    """Ends (float64 [n], NaN: nothing is claimed) of an aggregate of rows.  level: the highest in their windows.

    None of what is no number.
    """
    column = rows.column(told.column)
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return None
    value = _numbers(column)
    if not level:
        return value, value.copy()
    excess = 2.0**level - 1.0

    def part(name: str) -> Array:
        return np.nan_to_num(_numbers(rows.column(rows.schema.get_field_index(told.hidden[name]))))

    if told.function == "other":
        unknown = np.full(value.shape[0], np.nan)
        return unknown, unknown.copy()
    if "e" not in told.hidden and "ne" not in told.hidden:
        return _of_keys(told, value, part, excess)
    if told.function == "count":
        return counted(value, part("e"), excess, found=grouped)
    squares, plain, number = part("exx"), part("ex"), part("e")
    if told.function == "sum":
        known = number.sum()
        typical = np.sqrt(squares.sum() / known) if known else np.nan
        with np.errstate(all="ignore"):
            own = np.where(number > 0, np.sqrt(squares / number), typical)
        reach = _Z * np.sqrt(squares) + excess * _Z * _Z / 2.0 * np.where(number > 0, own, 2.0 * typical)
        return value - reach, value + reach
    many = part("many")
    with np.errstate(all="ignore"):
        seen = number / (excess * (excess + 1.0))
        spread = np.maximum(squares - 2.0 * value * plain + value * value * number, 0.0)
        reach = _Z * np.sqrt(spread) / many * (1.0 + 2.0 / seen)
    reach = np.where(seen >= _FEW, reach, np.nan)
    return value - reach, value + reach


def _of_keys(told: Told, value: Array, part: Callable[[str], Array], excess: float) -> tuple[Array, Array]:
    what = "n" if told.function == "count" else "x"
    groups = np.stack([part(f"{what}{k}") for k in range(GROUPS)], axis=1)
    if told.function != "avg":
        reach = totalled(groups, excess)
    else:
        many = part("many")
        of_all = np.stack([part(f"nn{k}") for k in range(GROUPS)], axis=1)
        with np.errstate(all="ignore"):
            reach = totalled(groups - value[:, None] * of_all, excess) / many
    low = value - reach
    return (np.maximum(low, 0.0) if told.function == "count" else low), value + reach


def values_told(hashes: Array, sampled: Array, level: int) -> Estimate:
    """How many rows there are, of which those of sampled values are all there.  hashes: of every row."""
    if not level:
        return Estimate.exact(float(hashes.shape[0]))
    weight = 2.0**level
    _, times = np.unique(hashes[sampled], return_counts=True)
    value = np.array([weight * times.sum()])
    low, high = counted(value, np.array([weight * (weight - 1.0) * (times.astype(float) ** 2).sum()]), weight - 1.0)
    return Estimate(float(value[0]), float(low[0]), float(high[0]), CONFIDENCE, False)


def _numbers(column: pa.Array) -> Array:
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
