"""Text cells and their possible types: how a CSV cell, or an event time as text, is read.

A cell is first trimmed of white space (not in text columns); an empty cell is null in every column,
quoted or not. The patterns below are the whole rule. They mean the same to Arrow (RE2), Java and
Python, so that the direct path and the Spark path type a file alike.

    whole number   INTEGER, within int64
    number         NUMBER or a word for infinity or NaN, as a double
    boolean        BOOLEAN
    timestamp      TIMESTAMP: ISO 8601 date, or date and time to the minute, second or fraction,
                   with or without zone; without zone it is UTC
    text           anything but the replacement character U+FFFD, which stands for bytes that are not UTF-8
"""

from __future__ import annotations

import re
from datetime import date

import numpy as np

from nile.base.nearest import nearest
from nile.summaries.heavy import pa, pc

INTEGER = r"^[+-]?[0-9]+$"
LEADING_ZERO = r"^[+-]?0[0-9]+$"
NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
NUMBER_WORD = r"^([+-]?[iI][nN][fF]([iI][nN][iI][tT][yY])?|[nN][aA][nN])$"
BOOLEAN = r"^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$"
_DAY = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_ZONE = r"(Z|[+-](0[0-9]|1[0-4])(:?[0-5][0-9])?)"
TIMESTAMP = rf"^{_DAY}([ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{{1,9}})?)?{_ZONE}?)?$"
MORE_THAN_MICROSECONDS = r"\.[0-9]{7,9}"
NOT_UTF8 = "\ufffd"

_ZONED = r":[0-9.]*" + _ZONE + "$"
_FIELDS = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(?:Z|([+-])(\d\d):?(\d\d)?)?)?")
_EPOCH = date(1970, 1, 1).toordinal()


def infer_type(cells: pa.Array) -> pa.DataType:
    """The type that every non-empty cell of a sample (text) has.

    int64, float64, bool, timestamp[us] (timestamp[ns] when a cell has more than six fractional digits)
    or text. Whole numbers with leading zeros or beyond int64, and columns without any cell, are text: an
    item number '00123' must not turn into 123.
    """
    trimmed = _trimmed(cells)
    sample = trimmed.filter(pc.fill_null(pc.not_equal(trimmed, ""), False))
    if len(sample) == 0 or _any(sample, LEADING_ZERO):
        return pa.string()
    if _all(sample, INTEGER):
        return pa.int64() if parse_cells(sample, pa.int64())[1] is None else pa.string()
    if _any(sample, NUMBER) and _all(sample, f"{NUMBER}|{NUMBER_WORD}"):
        return pa.float64()
    if _all(sample, BOOLEAN):
        return pa.bool_()
    if _all(sample, TIMESTAMP):
        unit = "ns" if _any(sample, MORE_THAN_MICROSECONDS) else "us"
        if parse_cells(sample, pa.timestamp(unit))[1] is None:
            return pa.timestamp(unit)
    return pa.string()


def parse_cells(cells: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, np.ndarray | None]:
    """Text `cells` as an array of `wanted` (a type that `infer_type` gives), and which cells do not fit.

    The second value is a bool array (true = does not fit, and null in the first), or None when all fit.
    Vectorised; rows are looked at one by one only in a batch that has a day like 30 February or a number
    beyond the type's range.
    """
    if pa.types.is_string(wanted):
        filled = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)
        broken = _flags(pc.match_substring(filled, NOT_UTF8))
        return (_nulled(filled, broken), broken) if broken.any() else (filled, None)
    trimmed = _trimmed(cells)
    given = _flags(pc.not_equal(trimmed, ""))
    if pa.types.is_timestamp(wanted):
        values, fits = _timestamps(trimmed, wanted.unit)
    elif pa.types.is_boolean(wanted):
        fits = _flags(pc.match_substring_regex(trimmed, BOOLEAN))
        values = pc.cast(_nulled(pc.ascii_lower(trimmed), ~fits), pa.bool_())
    else:
        values, fits = _numbers(trimmed, wanted)
    misfit = given & ~fits
    return values, (misfit if misfit.any() else None)


def converted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A column in another type, as `nearest` casts it; nulls fit any, and text may name a zone that a time has not.

    Raises pa.ArrowException.
    """
    if column.null_count == len(column):
        return pa.nulls(len(column), wanted)
    try:
        return nearest(column, wanted)
    except pa.ArrowInvalid:
        if not pa.types.is_timestamp(wanted) or not pa.types.is_string(column.type):
            raise
        instants, _ = parse_cells(column, pa.timestamp("ns" if wanted.unit == "ns" else "us"))
        if instants.null_count > column.null_count:
            raise
        return instants.cast(wanted)


def misfit_reason(column: str, wanted: pa.DataType) -> str:
    """Why a row with a cell that does not fit is rejected: "cell of 'price' is no number"."""
    if pa.types.is_string(wanted):
        needed = "UTF-8 text"
    elif pa.types.is_integer(wanted):
        needed = "whole number"
    elif pa.types.is_floating(wanted):
        needed = "number"
    else:
        needed = "boolean" if pa.types.is_boolean(wanted) else "timestamp"
    return f"cell of '{column}' is no {needed}"


def parse_instants(cells: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Text as instants: (nanoseconds since 1970 int64, which cells are timestamps, which are out of range).

    A cell that is a timestamp beyond int64 nanoseconds (years 1677 to 2262) is true in both masks.
    """
    trimmed = _trimmed(cells)
    shaped = _flags(pc.match_substring_regex(trimmed, TIMESTAMP))
    try:
        values = _cast_timestamps(_nulled(trimmed, ~shaped), "ns")
    except pa.ArrowInvalid:
        pass
    else:
        return _int64(values), shaped, np.zeros(len(cells), bool)
    ns, outside = np.zeros(len(cells), np.int64), np.zeros(len(cells), bool)
    for row in np.flatnonzero(shaped):
        exact = parse_instant(trimmed[int(row)].as_py())
        if exact is None:
            shaped[row] = False
        elif -(2**63) < exact < 2**63:
            ns[row] = exact
        else:
            outside[row] = True
    return ns, shaped, outside


def _timestamps(trimmed: pa.Array, unit: str) -> tuple[pa.Array, np.ndarray]:
    fits = _flags(pc.match_substring_regex(trimmed, TIMESTAMP))
    if unit == "us":
        fits &= ~_flags(pc.match_substring_regex(trimmed, MORE_THAN_MICROSECONDS))
    try:
        return _cast_timestamps(_nulled(trimmed, ~fits), unit), fits
    except pa.ArrowInvalid:
        divisor = 1_000 if unit == "us" else 1
        instants = [parse_instant(cell.as_py()) if fit else None for cell, fit in zip(trimmed, fits, strict=True)]
        ticks = [None if ns is None or abs(ns // divisor) >= 2**63 else ns // divisor for ns in instants]
        values = pa.array(ticks, pa.int64()).cast(pa.timestamp(unit))
        return values, _flags(values.is_valid())


def _numbers(trimmed: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, np.ndarray]:
    whole = pa.types.is_integer(wanted)
    fits = _flags(pc.match_substring_regex(trimmed, INTEGER if whole else f"{NUMBER}|{NUMBER_WORD}"))
    # Arrow knows no leading plus before a whole number.
    text = pc.ascii_ltrim(_nulled(trimmed, ~fits), characters="+")
    try:
        return pc.cast(text, wanted), fits
    except pa.ArrowInvalid:
        values = pa.array([None if cell is None else _int64_or_none(cell) for cell in text.to_pylist()], wanted)
        return values, _flags(values.is_valid())


def _int64_or_none(digits: str) -> int | None:
    sign, magnitude = ("-", digits[1:]) if digits[0] == "-" else ("", digits)
    magnitude = magnitude.lstrip("0") or "0"
    if len(magnitude) > 19:  # also keeps a cell of a million digits from costing a long conversion
        return None
    number = int(sign + magnitude)
    return number if -(2**63) <= number < 2**63 else None


def _cast_timestamps(text: pa.Array, unit: str) -> pa.Array:
    zoned = pc.match_substring_regex(text, _ZONED)
    if not pc.any(zoned).as_py():
        return pc.cast(text, pa.timestamp(unit))
    nothing = pa.scalar(None, pa.string())
    local = pc.cast(pc.if_else(zoned, nothing, text), pa.timestamp(unit))
    aware = pc.cast(pc.if_else(zoned, text, nothing), pa.timestamp(unit, "UTC"))
    return pc.coalesce(local, aware.cast(pa.int64()).cast(pa.timestamp(unit)))


def parse_instant(text: str) -> int | None:
    """Text shaped like TIMESTAMP as nanoseconds since 1970, of any size; None if it is no such time."""
    found = _FIELDS.fullmatch(text)
    if found is None or not re.fullmatch(TIMESTAMP, text):
        return None
    year, month, day, hour, minute, second, fraction, sign, zone_hour, zone_minute = found.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - _EPOCH
    except ValueError:
        return None
    seconds = days * 86_400 + int(hour or 0) * 3_600 + int(minute or 0) * 60 + int(second or 0)
    offset = int(zone_hour or 0) * 3_600 + int(zone_minute or 0) * 60
    seconds += offset if sign == "-" else -offset
    return seconds * 1_000_000_000 + int((fraction or "").ljust(9, "0"))


def _trimmed(cells: pa.Array) -> pa.Array:
    return pc.ascii_trim_whitespace(cells)


def _nulled(array: pa.Array, drop: np.ndarray) -> pa.Array:
    return pc.if_else(pa.array(drop), pa.scalar(None, array.type), array) if drop.any() else array


def _flags(mask: pa.Array) -> np.ndarray:
    """A boolean array as numpy, null as false."""
    flags: np.ndarray = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return flags.copy()


def _int64(values: pa.Array) -> np.ndarray:
    """The ticks of a timestamp array, 0 where null."""
    ticks: np.ndarray = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return ticks


def _all(cells: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(cells, pattern)).as_py())


def _any(cells: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(cells, pattern)).as_py())
