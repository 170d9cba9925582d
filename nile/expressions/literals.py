"""What a literal is worth: numbers, times, intervals, patterns and values given as parameters."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

from nile.base.cells import parse_instant
from nile.base.durations import NS_PER_SECOND, parse_duration
from nile.expressions.places import Fault
from nile.expressions.tree import Arithmetic, Cast, Constant, Kind, Node, Operator, Piece
from nile.summaries.errors import ConfigError

__all__ = ["beyond", "moved_time", "read_interval", "read_number", "read_parameter", "read_pattern", "read_time"]

MAX_PATTERN = 1_000
_DAY = 86_400 * NS_PER_SECOND
_FIRST_INSTANT = -719_162 * _DAY  # 1 January of year 1
_MOST_DAYS = 3_652_058
_TIMES = ("timestamp", "date")
_LAST_INSTANT = 2_932_897 * _DAY  # 1 January of year 10000


def read_number(digits: str) -> Constant:
    """An unsigned number as written.  Raises Fault beyond 64 bits, those without a sign, or a double."""
    if digits.isdecimal():
        if len(digits) > 100 or int(digits) >= 2**64:
            raise beyond(digits[:40])
        return Constant(int(digits), "integer" if int(digits) < 2**63 else "number")
    try:
        value = float(digits)
    except ValueError:
        raise Fault(f"'{digits[:40]}' is no number") from None
    if math.isinf(value):
        raise Fault(f"the number {digits[:40]} is beyond a double; write CAST('inf' AS DOUBLE)")
    return Constant(value, "number")


def beyond(number: object) -> Fault:
    """What a whole number is that 64 bits do not hold, or only without a sign."""
    return Fault(f"the whole number {number} is beyond 64 bits; write {number}.0")


def read_time(text: str, kind: Kind) -> Constant:
    """ISO text as a timestamp or date constant: years 1 to 9999, no finer than a microsecond.

    Without zone it is UTC. Raises Fault.
    """
    instant = parse_instant(text.strip())
    step = _DAY if kind == "date" else 1_000
    if instant is None or instant % step or not _FIRST_INSTANT <= instant < _LAST_INSTANT:
        form = "'2011-12-09'" if kind == "date" else "'2011-12-09 08:01:00' (with zone or in UTC)"
        raise Fault(f"{text[:40]!r} is no {kind}; write it as {form}")
    return Constant(instant // 1_000, kind)


def read_interval(amount: str, unit: str) -> Constant:
    """INTERVAL 'amount' unit, or INTERVAL 'amount with unit' (unit ""), in whole microseconds.  Raises Fault."""
    text = f"{amount} {unit}".strip()
    sign, magnitude = (-1, text[1:]) if text.startswith("-") else (1, text)
    try:
        if not unit and magnitude.replace(".", "").isdecimal():
            raise ConfigError(f"the interval {text!r} has no unit; write INTERVAL '{text} seconds'")
        nanoseconds = parse_duration(magnitude, where="the interval")
    except ConfigError as error:
        raise Fault(str(error)) from None
    if nanoseconds % 1_000:
        raise Fault(f"the interval {text!r} is finer than a microsecond")
    return Constant(sign * nanoseconds // 1_000, "interval")


def moved_time(operator: Operator, left: Node, right: Node) -> Node | None:
    """A time moved by an interval, a date by a whole number of days, or what lies between two times; None: neither."""
    if operator == "+" and right.kind in _TIMES and left.kind not in _TIMES:
        left, right = right, left
    if left.kind not in _TIMES or operator not in ("+", "-"):
        return None
    if right.kind in _TIMES:
        days = left.kind == right.kind == "date"
        return Arithmetic(operator, left, right, "integer" if days else "interval") if operator == "-" else None
    if not isinstance(right, Constant):
        return None
    if right.kind == "interval":
        return Arithmetic(operator, left, right, "timestamp")
    if left.kind != "date" or right.kind != "integer" or right.value is None or abs(int(right.value)) > _MOST_DAYS:
        return None
    moved = Constant(int(right.value) * _DAY // 1_000, "interval")
    return Cast(Arithmetic(operator, left, moved, "timestamp"), "date")


def read_pattern(pattern: str, escape: str | None) -> tuple[Piece, ...]:
    """A LIKE pattern as literal pieces and wildcards.  Raises Fault."""
    if len(pattern) > MAX_PATTERN:
        raise Fault(f"a LIKE pattern has at most {MAX_PATTERN} characters, this one {len(pattern)}")
    pieces: list[Piece] = []
    characters = iter(pattern)
    for character in characters:
        wildcard = character in "%_"
        if character == escape:
            wildcard = False
            character = next(characters, "")
            if character not in ("%", "_", escape):
                raise Fault(
                    f"in LIKE {pattern!r} the escape character {escape!r} must stand before "
                    f"'%', '_' or itself, and not at the end"
                )
        if wildcard:
            piece = Piece(None, any_length=character == "%")
            if not (piece.any_length and pieces and pieces[-1] == piece):
                pieces.append(piece)
        elif pieces and pieces[-1].text is not None:
            pieces[-1] = Piece(pieces[-1].text + character)
        else:
            pieces.append(Piece(character))
    return tuple(pieces)


def read_parameter(value: Any) -> Constant:
    """A Python value as a constant: None, bool, int, float, str, datetime (without zone: UTC) or date.

    Raises Fault, for any other type and for what lies outside 64 bits.
    """
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()  # NumPy's scalars
    if value is None:
        return Constant(None, "null")
    if isinstance(value, bool):
        return Constant(value, "boolean")
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise Fault("needed a parameter of 64 bits; got a larger whole number; pass a float")
        return Constant(value, "integer" if value < 2**63 else "number")
    if isinstance(value, float):
        return Constant(value, "number")
    if isinstance(value, str):
        return Constant(value, "text")
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        ticks = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return Constant((ticks.days * 86_400 + ticks.seconds) * 1_000_000 + ticks.microseconds, "timestamp")
    if isinstance(value, date):
        return Constant((value - date(1970, 1, 1)).days * 86_400_000_000, "date")
    raise Fault(
        "needed a number, text, True, False, None, a datetime or a date as the parameter; got "
        f"{type(value).__name__}; convert it"
    )
