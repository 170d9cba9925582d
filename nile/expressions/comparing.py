"""Values of one Arrow type compared, with SQL's nulls and doubles in their total order."""

from __future__ import annotations

import math
from typing import Any

from nile.expressions.tree import MIRRORED, Comparison
from nile.summaries.heavy import pa, pc

__all__ = ["compared", "further"]

Value = Any
"""A pyarrow Array as long as the batch, or a Scalar."""


def compared(operator: Comparison, left: Value, right: Value) -> Value:
    if left.type == pa.float64():
        return _numbers(operator, left, right)
    functions = {
        "=": pc.equal,
        "<>": pc.not_equal,
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
    }
    return functions[operator](left, right)


def _numbers(operator: Comparison, left: Value, right: Value) -> Value:
    """Comparison of doubles in their total order: NaN last and equal to itself."""
    if _is_number(right):
        return _with(operator, left, right)
    if _is_number(left):
        return _with(MIRRORED[operator], right, left)
    if operator in ("=", "<>"):
        equal = pc.or_(pc.equal(left, right), pc.and_(pc.is_nan(left), pc.is_nan(right)))
        return equal if operator == "=" else pc.invert(equal)
    if operator in (">", "<="):
        left, right = right, left
    less = pc.or_(pc.less(left, right), pc.and_(pc.invert(pc.is_nan(left)), pc.is_nan(right)))
    return less if operator in ("<", ">") else pc.invert(less)


def _with(operator: Comparison, value: Value, number: pa.Scalar) -> Value:
    """The same with a number that is not NaN: what Arrow calls false of NaN is right, or all but."""
    match operator:
        case "=":
            return pc.equal(value, number)
        case "<>":
            return pc.invert(pc.equal(value, number))
        case "<":
            return pc.less(value, number)
        case "<=":
            return pc.less_equal(value, number)
        case ">":
            return pc.invert(pc.less_equal(value, number))
        case ">=":
            return pc.invert(pc.less(value, number))


def _is_number(value: Value) -> bool:
    return isinstance(value, pa.Scalar) and value.is_valid and not math.isnan(value.as_py())


def further(operator: Comparison, one: Value, other: Value) -> Value:
    """The greater or lesser of two values; what is null does not count."""
    beyond = pc.fill_null(compared(operator, other, one), False)
    return pc.if_else(pc.or_(pc.is_null(one), beyond), pc.coalesce(other, one), one)
