"""The rows of the table of functions that are of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nile.expressions.rules import Array, Plain
from nile.summaries.heavy import pa, pc

__all__ = ["NUMBERS"]


def _numbers(function: Callable[[Any], Any], least: float | None = None) -> Callable[[Array], Array]:
    """A function of doubles by numpy; null up to `least`, where it has no value."""

    def kernel(value: Array) -> Array:
        null = value.is_null().to_numpy(zero_copy_only=False)
        numbers = pc.fill_null(value, 1.0).to_numpy(zero_copy_only=False)
        if least is not None:
            null = null | (numbers <= least)
            numbers = np.where(numbers <= least, 1.0, numbers)
        with np.errstate(all="ignore"):
            return pa.array(function(numbers), mask=null)

    return kernel


def _where_known(function: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """A function of doubles, null where it has no value though its argument is a number."""

    def kernel(value: Array) -> Array:
        null = value.is_null().to_numpy(zero_copy_only=False)
        numbers = pc.fill_null(value, 0.0).to_numpy(zero_copy_only=False)
        with np.errstate(all="ignore"):
            found = function(numbers)
        return pa.array(found, mask=null | (np.isnan(found) & ~np.isnan(numbers)))

    return kernel


def _both(function: Callable[[Any, Any], Any], filler: Any) -> Callable[[Array, Array], Array]:
    """A function of two numbers by numpy."""

    def kernel(one: Array, other: Array) -> Array:
        null = pc.or_(one.is_null(), other.is_null()).to_numpy(zero_copy_only=False)
        first, second = (pc.fill_null(each, filler).to_numpy(zero_copy_only=False) for each in (one, other))
        with np.errstate(all="ignore"):
            return pa.array(function(first, second), mask=null)

    return kernel


def _sign(value: Array) -> Array:
    found = _numbers(lambda numbers: np.nan_to_num(np.sign(numbers)))(value)
    return found.cast(pa.int64())


def _divided(one: Array, other: Array) -> Array:
    """Whole numbers divided towards 0; null by 0, and where 64 bits do not hold it."""
    null = pc.or_(one.is_null(), other.is_null()).to_numpy(zero_copy_only=False)
    first, second = (pc.fill_null(each, 1).to_numpy(zero_copy_only=False) for each in (one, other))
    null = null | (second == 0) | ((first == np.iinfo(np.int64).min) & (second == -1))
    divisor = np.where(null, 1, second)
    quotient = first // divisor
    quotient += (quotient < 0) & (quotient * divisor != first)
    return pa.array(quotient, mask=null)


def _told(function: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """A question about a double; null of null."""
    return lambda value: pc.if_else(pc.is_valid(value), function(value), pa.scalar(None, pa.bool_()))


NUMBERS: Mapping[str, Plain] = {
    "sign": Plain(("number",), "integer", _sign, (), ("sign(v)", "sign(n)")),
    "power": Plain(
        ("number", "number"), "number", _both(np.power, 1.0), (), ("power(v, 2)", "pow(n, 0.5)", "n ** 2", "v ^ 2"),
    ),
    "exp": Plain(("number",), "number", _numbers(np.exp), (), ("exp(v)",)),
    "ln": Plain(("number",), "number", _numbers(np.log, 0.0), (), ("ln(abs(v) + 1)",)),
    "log10": Plain(("number",), "number", _numbers(np.log10, 0.0), (), ("log10(abs(v) + 1)", "log(abs(n) + 1)")),
    "log2": Plain(("number",), "number", _numbers(np.log2, 0.0), (), ("log2(abs(n) + 1)",)),
    "cbrt": Plain(("number",), "number", _numbers(np.cbrt), (), ("cbrt(v)", "cbrt(n)")),
    "trunc": Plain(("number",), "number", _numbers(np.trunc), (), ("trunc(v)",)),
    "sin": Plain(("number",), "number", _where_known(np.sin), (), ("sin(n)",)),
    "cos": Plain(("number",), "number", _where_known(np.cos), (), ("cos(n)",)),
    "tan": Plain(("number",), "number", _where_known(np.tan), (), ("tan(n)",)),
    "asin": Plain(("number",), "number", _where_known(np.arcsin), (), ("asin(n / 20)",)),
    "acos": Plain(("number",), "number", _where_known(np.arccos), (), ("acos(n / 20)",)),
    "atan": Plain(("number",), "number", _where_known(np.arctan), (), ("atan(v)",)),
    "atan2": Plain(("number", "number"), "number", _both(np.arctan2, 1.0), (), ("atan2(v, n)",)),
    "degrees": Plain(("number",), "number", _numbers(lambda v: v * (180.0 / math.pi)), (), ("degrees(n)",)),
    "radians": Plain(("number",), "number", _numbers(lambda v: v * (math.pi / 180.0)), (), ("radians(n)",)),
    "isnan": Plain(("number",), "boolean", _told(lambda v: pc.is_nan(v)), (), ("isnan(v)",)),
    "isinf": Plain(("number",), "boolean", _told(lambda v: pc.is_inf(v)), (), ("isinf(v)",)),
    "isfinite": Plain(("number",), "boolean", _told(lambda v: pc.is_finite(v)), (), ("isfinite(v)",)),
    "divide": Plain(("integer", "integer"), "integer", _divided, (), ("n // 2", "n // -3", "divide(n, 7)")),
    "gcd": Plain(("integer", "integer"), "integer", _both(np.gcd, 1), (), ("gcd(n, 6)",)),
    "lcm": Plain(("integer", "integer"), "integer", _both(np.lcm, 1), (), ("lcm(n, 4)",)),
}  # fmt: skip
