"""Set operations (their sides made compatible), and GROUPING SETS, ROLLUP and CUBE as unions of groups.

A key that a grouping set leaves out is null in its rows.  Source: Gray and others, Data Cube, Data Mining and Knowledge
Discovery 1 (1997), section 3, where the cube is that union too.  Cost: that of each grouping, reading included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from nile.expressions.binding import kind_of
from nile.expressions.folding import fold
from nile.expressions.places import Fault
from nile.expressions.tree import Cast, Constant
from nile.sql import plan as ops
from nile.sql.binding.inputs import column_of
from nile.sql.parsed import Operation
from nile.sql.plan import Field, Plan
from nile.summaries.heavy import pa

__all__ = ["alike", "all_of_sets", "by_name"]

_UNITS = ("s", "ms", "us", "ns")
_DIGITS = 38
"""Of a decimal of 128 bits."""


def all_of_sets(groups: Sequence[Plan]) -> Plan:
    """The rows of all groupings, nulls in the types that the column has where it is a key."""
    projects = [each for each in groups if isinstance(each, ops.Project)]
    assert len(projects) == len(groups)
    types = [field.type for field in projects[0].fields]
    for each in projects:
        types = [old if _is_null(item) else item.field.type for old, item in zip(types, each.items, strict=True)]
    made: list[Plan] = []
    for each in projects:
        items = tuple(
            replace(item, field=Field(item.name, kind)) if _is_null(item) else item
            for item, kind in zip(each.items, types, strict=True)
        )
        made.append(replace(each, items=items))
    return _together(made)


def _together(plans: Sequence[Plan]) -> Plan:
    """Halves of halves, so that many are not nested deep."""
    if len(plans) == 1:
        return plans[0]
    middle = (len(plans) + 1) // 2
    return ops.SetOperation("union", True, _together(plans[:middle]), _together(plans[middle:]))


def _is_null(item: ops.Item) -> bool:
    return isinstance(item.node, Constant) and item.node.value is None


def alike(left: Plan, right: Plan, query: Operation) -> tuple[Plan, Plan]:
    """Both sides with columns of the same kinds, numbers and times in a type that holds those of both sides."""
    kinds = [(kind_of(a.type), kind_of(b.type)) for a, b in zip(left.fields, right.fields, strict=True)]
    for at, (one, other) in enumerate(kinds):
        if one != other and {one, other} != {"integer", "number"}:
            raise Fault(
                f"needed columns of one kind on both sides of {query.kind.upper()}; got {one} and {other} for "
                f"column {at + 1}, '{left.fields[at].name}'; CAST one of them",
                query.start,
            )
    held = [_holding(a.type, b.type) for a, b in zip(left.fields, right.fields, strict=True)]
    left, right = _widened(left, held), _widened(right, held)
    return _null_as(left, right), _null_as(right, left)


def _null_as(plan: Plan, other: Plan) -> Plan:
    """The plan whose columns of nothing but null have the types of the other's: no text says int32 of a null."""
    if not isinstance(plan, ops.Project) or not any(map(_is_null, plan.items)):
        return plan
    there = [_is_null(item) for item in other.items] if isinstance(other, ops.Project) else [False] * len(plan.items)
    items = []
    for item, field, null in zip(plan.items, other.fields, there, strict=True):
        takes = _is_null(item) and not null and kind_of(item.field.type) == kind_of(field.type)
        items.append(replace(item, field=Field(item.name, field.type)) if takes else item)
    return replace(plan, items=tuple(items))


def by_name(left: Plan, right: Plan, start: int) -> tuple[Plan, Plan]:
    """UNION BY NAME: both sides with the columns of both, the left's first, null where one has none.  Raises Fault."""
    names = {field.name.lower(): field for field in left.fields}
    names |= {field.name.lower(): field for field in right.fields if field.name.lower() not in names}
    return _with_names(left, names, start), _with_names(right, names, start)


def _with_names(plan: Plan, names: Mapping[str, Field], start: int) -> Plan:
    own = {field.name.lower(): field for field in plan.fields}
    items = []
    for name, field in names.items():
        if name in own:
            items.append(ops.Item(Field(field.name, own[name].type), column_of(own[name])))
            continue
        if kind_of(field.type) == "other":
            raise Fault(f"needed '{field.name}', which is {field.type}, on both sides of UNION BY NAME", start)
        items.append(ops.Item(field, Constant(None, kind_of(field.type))))
    return ops.Project(plan, tuple(items))


def _holding(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type of numbers or times of two types; None: as they are."""
    both = [plain.value_type if pa.types.is_dictionary(plain) else plain for plain in (one, other)]
    kinds = {kind_of(each) for each in both}
    if both[0] == both[1] or not (kinds <= {"integer", "number"} or kinds == {"timestamp"}):
        return None
    if kinds == {"timestamp"}:
        finest = max(both, key=lambda each: _UNITS.index(each.unit))
        return None if finest.unit == "ns" else pa.timestamp(finest.unit, both[0].tz)
    if kinds == {"integer"}:
        return pa.from_numpy_dtype(np.promote_types(*(each.to_pandas_dtype() for each in both)))
    if all(map(pa.types.is_integer, both)):
        return pa.decimal128(20, 0)  # of 64 bits with and without a sign
    if all(map(pa.types.is_decimal, both)):
        scale = max(each.scale for each in both)
        digits = max(each.precision - each.scale for each in both) + scale
        return pa.decimal128(digits, scale) if digits <= _DIGITS else pa.float64()
    return pa.float64()


def _widened(plan: Plan, held: Sequence[pa.DataType | None]) -> Plan:
    """The plan with its columns in these types."""
    if all(kind is None or kind == field.type for field, kind in zip(plan.fields, held, strict=True)):
        return plan
    nodes = [item.node for item in plan.items] if isinstance(plan, ops.Project) else list(map(column_of, plan.fields))
    below = plan.input if isinstance(plan, ops.Project) else plan
    items = []
    for field, node, kind in zip(plan.fields, nodes, held, strict=True):
        crosses = kind == pa.float64() and kind_of(field.type) == "integer"
        value = fold(Cast(node, "number")) if crosses else node
        items.append(ops.Item(field if kind is None else Field(field.name, kind), value))
    return ops.Project(below, tuple(items))
