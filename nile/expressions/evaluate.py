"""A bound condition over a batch, with Arrow's vectorised functions and SQL's three-valued logic.

Pinned where engines differ (DuckDB's and Spark's common ground, tested against DuckDB):
  - NaN equals NaN and is greater than every number, infinity included; -0.0 equals 0.0.
  - Whole numbers are 64 bits; an overflow is null. Division is of doubles; dividing by zero, and % by zero,
    is null. The sign of % is the dividend's.
  - A cast that is impossible is null; a double is rounded to the nearest whole number, ties to even.
  - round() goes half away from zero; the square root of what is below zero is null; greatest() and least() look
    past nulls; || with a null is null.
  - Text compares by bytes. LIKE has no escape character unless ESCAPE names one; ILIKE compares lower case.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial, reduce
from typing import Any

import numpy as np

from nile.expressions.comparing import compared, further
from nile.expressions.convert import (
    MICROSECONDS_A_DAY,
    cast_unsigned,
    cast_values,
    in_nanoseconds,
    leaf,
    to_number,
    unsigned_leaf,
)
from nile.expressions.functions import PLAIN
from nile.expressions.lists.evaluation import joined_lists, list_value, repeated
from nile.expressions.lists.functions import LISTS
from nile.expressions.lists.values import element_kind, is_list
from nile.expressions.tree import (
    Arithmetic,
    Between,
    Call,
    Case,
    Cast,
    Column,
    Compare,
    Constant,
    In,
    IsNull,
    Kind,
    Like,
    Logic,
    Lookup,
    Node,
    Not,
    Piece,
    are_whole,
    is_unsigned,
    whole_numbers,
)
from nile.summaries.heavy import pa, pc

Value = Any
"""A pyarrow Array as long as the batch, or a Scalar."""


def evaluate_mask(tree: Node, batch: pa.RecordBatch) -> pa.BooleanArray:
    """The truth of a bound tree for each row: true, false or null. O(rows x nodes)."""
    value = _value(tree, batch)
    if isinstance(value, pa.Scalar):
        return pa.repeat(value, len(batch))
    return value


def evaluate_value(tree: Node, batch: pa.RecordBatch) -> pa.Array:
    """The value of a bound tree for each row, null where it has none. O(rows x nodes)."""
    value = _value(tree, batch)
    return repeated(value, len(batch)) if isinstance(value, pa.Scalar) else value


def column_as_is(tree: Node, batch: pa.RecordBatch) -> pa.Array | None:
    """A column that is computed with in another type (whole numbers without a sign, decimals, dates, times), where
    nothing is computed of it: so its values are told apart and put in order.  None of all else, which `evaluate_value`
    tells.
    """
    if isinstance(tree, Column | Lookup):
        column = unsigned_leaf(as_stored(tree, batch))
        types = pa.types
        if types.is_uint64(column.type) or types.is_decimal(column.type) or types.is_temporal(column.type):
            return column
    return None


def _value(node: Node, batch: pa.RecordBatch) -> Value:
    match node:
        case Constant():
            return _constant(node)
        case Column() | Lookup():
            return leaf(as_stored(node, batch), node.kind)
        case Logic():
            combine = pc.and_kleene if node.operator == "AND" else pc.or_kleene
            return reduce(combine, [_value(item, batch) for item in node.items])
        case Not():
            return pc.invert(_value(node.item, batch))
        case IsNull():
            return pc.is_null(_value(node.item, batch))
        case Compare():
            return compared(node.operator, *_comparable(batch, node.left, node.right))
        case Between():
            item, low, high = _comparable(batch, node.item, node.low, node.high)
            return pc.and_kleene(compared(">=", item, low), compared("<=", item, high))
        case In():
            return _in(node, batch)
        case Like():
            return _like(_value(node.item, batch), node.pattern, node.ignore_case)
        case Arithmetic():
            return _arithmetic(node, batch)
        case Call():
            return _call(node, batch)
        case Cast():
            if is_unsigned(node.item) and node.kind in ("text", "integer"):
                return cast_unsigned(unsigned_leaf(as_stored(node.item, batch)), node.kind, node.bits)
            return cast_values(_value(node.item, batch), node.item.kind, node.kind, node.bits)
        case Case():
            return _case(node, batch)


def as_stored(node: Node, batch: pa.RecordBatch) -> pa.Array:
    """A column, or what is looked up, in the type in which it is stored; what is worked out in that it comes in."""
    if isinstance(node, Column):
        return batch.column(batch.schema.get_field_index(node.name))
    if isinstance(node, Lookup):
        return node.rows.values([as_stored(each, batch) for each in node.keys], node.column, len(batch))
    return evaluate_value(node, batch)


_ARROW_TYPES: dict[Kind, Callable[[], pa.DataType]] = {
    "boolean": lambda: pa.bool_(),
    "integer": lambda: pa.int64(),
    "number": lambda: pa.float64(),
    "text": lambda: pa.string(),
    "timestamp": lambda: pa.timestamp("us"),
    "date": lambda: pa.timestamp("us"),
    "interval": lambda: pa.duration("us"),
    "null": lambda: pa.int64(),
}


def _constant(node: Constant) -> pa.Scalar:
    if node.kind == "null":
        return pa.scalar(None, pa.bool_())
    if is_list(node.kind):
        return pa.scalar(None, pa.list_(_ARROW_TYPES[element_kind(node.kind)]()))
    return pa.scalar(node.value, _ARROW_TYPES[node.kind]())


def _alike(batch: pa.RecordBatch, *nodes: Node) -> list[Value]:
    """The values of nodes whose kinds go together, as values of one Arrow type."""
    values = [_value(node, batch) for node in nodes]
    if any(node.kind == "number" for node in nodes):
        return [to_number(value) for value in values]
    if any(value.type == pa.list_(pa.timestamp("ns")) for value in values):
        return [value.cast(pa.list_(pa.timestamp("ns"))) for value in values]
    if any(value.type == pa.timestamp("ns") for value in values):
        return [in_nanoseconds(value) for value in values]
    return values


def _comparable(batch: pa.RecordBatch, *nodes: Node) -> list[Value]:
    """The same of what is compared, where whole numbers without a sign stay what they are."""
    if not are_whole(nodes):
        return _alike(batch, *nodes)
    plain = min(whole_numbers(nodes), default=0) >= 0 and all(
        isinstance(node, Constant) or node.kind == "number" for node in nodes
    )
    kind = pa.uint64() if plain else pa.decimal128(20, 0)
    return [_whole_value(node, batch, kind) for node in nodes]


def _whole_value(node: Node, batch: pa.RecordBatch, kind: pa.DataType) -> Value:
    if isinstance(node, Constant):
        return pa.scalar(node.value if node.value is None or kind == pa.uint64() else Decimal(node.value), kind)
    if is_unsigned(node):
        return unsigned_leaf(as_stored(node, batch)).cast(kind)
    return _value(node, batch).cast(kind)


def _in(node: In, batch: pa.RecordBatch) -> Value:
    item, *choices = _comparable(batch, node.item, *node.choices)
    if isinstance(item, pa.Scalar) or not all(isinstance(choice, pa.Scalar) for choice in choices):
        return reduce(pc.or_kleene, [compared("=", item, choice) for choice in choices])
    values = pa.array([choice.as_py() for choice in choices if choice.is_valid], item.type)
    if item.type == pa.float64():
        # Hashing tells -0.0 from 0.0 and one NaN from another; comparing does not.
        found = pc.is_in(pc.add(item, 0.0), value_set=pc.add(values, 0.0))
        if pc.any(pc.is_nan(values)).as_py():
            found = pc.or_(found, pc.fill_null(pc.is_nan(item), False))
    else:
        found = pc.is_in(item, value_set=values)
    null = pa.scalar(None, pa.bool_())
    missed = found if all(choice.is_valid for choice in choices) else pc.if_else(found, found, null)
    return pc.if_else(pc.is_valid(item), missed, null)


def _like(item: Value, pattern: tuple[Piece, ...], ignore_case: bool) -> Value:
    if ignore_case:
        item = pc.utf8_lower(item)
        pattern = tuple(Piece(lower_text(piece.text), piece.any_length) for piece in pattern)
    match pattern:
        case ():
            return pc.equal(item, "")
        case (Piece(str(text)),):
            return pc.equal(item, text)
        case (Piece(str(text)), Piece(None, True)):
            return pc.starts_with(item, text)
        case (Piece(None, True), Piece(str(text))):
            return pc.ends_with(item, text)
        case (Piece(None, True), Piece(str(text)), Piece(None, True)):
            return pc.match_substring(item, text)
    return pc.match_substring_regex(item, "(?s)^" + "".join(map(_regex, pattern)) + "$")


def lower_text(text: str | None) -> str | None:
    """`text` in lower case exactly as a column would be."""
    return None if text is None else pc.utf8_lower(pa.scalar(text)).as_py()


def _regex(piece: Piece) -> str:
    if piece.text is None:
        return ".*" if piece.any_length else "."
    return "".join(
        character if character.isalnum() or not character.isascii() else f"\\x{ord(character):02x}"
        for character in piece.text
    )


def _arithmetic(node: Arithmetic, batch: pa.RecordBatch) -> Value:
    left = _value(node.left, batch)
    if node.kind == "timestamp":
        assert isinstance(node.right, Constant)
        interval = pa.scalar(node.right.value, pa.int64())
        if left.type == pa.timestamp("ns"):
            interval = pa.scalar(interval.as_py() * 1_000, pa.int64())
        return pc.cast(_computed(node.operator, pc.cast(left, pa.int64()), interval), left.type)
    right = _value(node.right, batch)
    if pa.types.is_timestamp(left.type):
        return _apart(node, left, right)
    if node.kind == "number":
        left, right = to_number(left), to_number(right)
    return _computed(node.operator, left, right)


def _apart(node: Arithmetic, left: Value, right: Value) -> Value:
    """What lies between two times: days between dates, else an interval, in whole microseconds."""
    fine = any(each.type == pa.timestamp("ns") for each in (left, right))
    one, other = (in_nanoseconds(each) if fine else each for each in (left, right))
    ticks = _computed("-", pc.cast(one, pa.int64()), pc.cast(other, pa.int64()))
    if node.kind == "integer":
        return pc.divide(ticks, MICROSECONDS_A_DAY)
    return pc.cast(pc.divide(ticks, 1_000) if fine else ticks, pa.duration("us"))


def _computed(operator: str, left: Value, right: Value) -> Value:
    """left operator right on int64 or on doubles, null where it overflows or divides by zero."""
    first, first_null = _as_numpy(left)
    second, second_null = _as_numpy(right)
    impossible = first_null | second_null
    with np.errstate(all="ignore"):
        if operator in ("/", "%"):
            impossible = impossible | (second == 0)
            divisor = np.where(second == 0, second.dtype.type(1), second)
            result = first / divisor if operator == "/" else np.fmod(first, divisor)
        elif first.dtype == np.float64:
            result = first + second if operator == "+" else first - second if operator == "-" else first * second
        else:
            result, overflow = _whole(operator, first, second)
            impossible = impossible | overflow
    array = pa.array(result, mask=np.broadcast_to(impossible, result.shape))
    both_scalars = isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar)
    return array[0] if both_scalars else array


def _whole(operator: str, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The wrapped int64 result, and where it wrapped."""
    if operator == "+":
        result = first + second
        return result, ((first ^ result) & (second ^ result)) < 0
    if operator == "-":
        result = first - second
        return result, ((first ^ second) & (first ^ result)) < 0
    result = first * second
    large = np.abs(first.astype(np.float64) * second) >= 2.0**62
    divisor = np.where(first == 0, 1, first)
    smallest = np.iinfo(np.int64).min
    wrapped = (result // divisor != second) | ((first == -1) & (second == smallest))
    return result, large & (first != 0) & wrapped


def _as_numpy(value: Value) -> tuple[np.ndarray, np.ndarray]:
    """Values (0 where null) and which are null; a scalar gives arrays of one."""
    if isinstance(value, pa.Scalar):
        value = pa.array([value.as_py()], value.type)
    filled: np.ndarray = pc.fill_null(value, pa.scalar(0, value.type)).to_numpy(zero_copy_only=False)
    return filled, value.is_null().to_numpy(zero_copy_only=False)


def _case(node: Case, batch: pa.RecordBatch) -> Value:
    """The first branch whose condition is true."""
    *values, result = _alike(batch, *(value for _, value in node.branches), node.default)
    for (condition, _), value in zip(reversed(node.branches), reversed(values), strict=True):
        result = pc.if_else(pc.fill_null(_value(condition, batch), False), value, result)
    return result


def _rounded(node: Call, value: Value) -> Value:
    """round(), floor(), ceil() and sqrt() of doubles; round() goes half away from zero, as C and DuckDB do."""
    numbers, null = _as_numpy(value)
    with np.errstate(all="ignore"):
        if node.function == "sqrt":
            null = null | (numbers < 0)
            result = np.sqrt(np.where(numbers < 0, 0.0, numbers))
        elif node.function == "round":
            digits = whole_numbers(node.arguments[1:])
            result = _half_away(numbers, digits[0] if digits else 0)
        else:
            result = np.floor(numbers) if node.function == "floor" else np.ceil(numbers)
    array = pa.array(result, mask=null)
    return array[0] if isinstance(value, pa.Scalar) else array


def _half_away(numbers: np.ndarray, digits: int) -> np.ndarray:
    size = 10.0 ** abs(digits)
    scaled = numbers * size if digits >= 0 else numbers / size
    whole = np.trunc(scaled)
    nearest = whole + np.where(np.abs(scaled - whole) >= 0.5, np.sign(scaled), 0.0)
    result = nearest / size if digits >= 0 else nearest * size
    return np.where(np.isfinite(scaled) & np.isfinite(result), result, numbers)


_PARTS: dict[str, Callable[[Value], Value]] = {
    "year": lambda value: pc.year(value),
    "month": lambda value: pc.month(value),
    "day": lambda value: pc.day(value),
    "hour": lambda value: pc.hour(value),
    "minute": lambda value: pc.minute(value),
    "second": lambda value: pc.second(value),
}


def _plain(node: Call, batch: pa.RecordBatch) -> Value:
    """A function of the table."""
    rule = PLAIN[node.function]
    written, given = rule.split(node.arguments)
    values = [_value(each, batch) for each in written]
    scalars = all(isinstance(each, pa.Scalar) for each in values)
    size = 1 if scalars else len(batch)
    arrays = [pa.repeat(each, size) if isinstance(each, pa.Scalar) else each for each in values]
    arrays = [to_number(each) if kind == "number" else each for each, kind in zip(arrays, rule.takes, strict=True)]
    literals = [each.value for each in given if isinstance(each, Constant)]
    found = rule.kernel(*arrays, *literals)
    return found[0] if scalars else found


def _call(node: Call, batch: pa.RecordBatch) -> Value:
    if node.function in LISTS or (is_list(node.kind) and node.function == "concat"):
        values = [_value(each, batch) for each in node.arguments]
        arrays = [repeated(each, len(batch)) if isinstance(each, pa.Scalar) else each for each in values]
        return joined_lists(arrays) if node.function == "concat" else list_value(node, arrays, len(batch))
    if node.function in PLAIN:
        return _plain(node, batch)
    if node.function == "coalesce":
        return pc.coalesce(*_alike(batch, *node.arguments))
    if node.function in ("greatest", "least"):
        return reduce(partial(further, ">" if node.function == "greatest" else "<"), _alike(batch, *node.arguments))
    if node.function == "nullif":
        first, second = _alike(batch, *node.arguments)
        same = pc.fill_null(compared("=", first, second), False)
        value = _value(node.arguments[0], batch)
        return pc.if_else(same, pa.scalar(None, value.type), value)
    if node.function == "concat":
        parts = [_value(each, batch) for each in node.arguments]
        return pc.binary_join_element_wise(*parts, "", null_handling="emit_null")
    value = _value(node.arguments[-1 if node.function == "date_trunc" else 0], batch)
    if node.function in _PARTS:
        return pc.cast(_PARTS[node.function](value), pa.int64())
    if node.function == "date_trunc":
        unit = node.arguments[0]
        assert isinstance(unit, Constant)
        return pc.floor_temporal(value, unit=unit.value)
    if node.function == "substring":
        begin, *length = whole_numbers(node.arguments[1:])
        return pc.utf8_slice_codeunits(value, begin - 1, begin - 1 + length[0] if length else None)
    if node.function in ("round", "floor", "ceil", "sqrt"):
        return value if value.type == pa.int64() else _rounded(node, value)
    if value.type == pa.float64():
        return pc.abs(value)
    smallest = pc.equal(value, np.iinfo(np.int64).min)
    return pc.if_else(smallest, pa.scalar(None, pa.int64()), pc.abs(value))
