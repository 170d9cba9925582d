"""The rows of the table of functions that are of times, and times as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from nile.expressions.rules import Array, Literal, Plain
from nile.summaries.heavy import pa, pc

__all__ = ["TIMES", "format_fault", "time_text"]

_SECOND = 1_000_000
_SIZES = {
    "microsecond": 1, "millisecond": 1_000, "second": _SECOND, "minute": 60 * _SECOND, "hour": 3_600 * _SECOND,
    "day": 86_400 * _SECOND, "week": 7 * 86_400 * _SECOND,
}  # fmt: skip
"""Microseconds of the units that are always as long."""
_BUCKETS = 946_857_600 * _SECOND
"""3 January 2000, a Monday, from which time_bucket counts."""
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


def _whole(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda value: pc.cast(function(value), pa.int64())


def _ticks(value: Array) -> Array:
    """Microseconds since 1970, as int64."""
    ticks = value.cast(pa.int64())
    if value.type != pa.timestamp("ns"):
        return ticks
    whole = pc.fill_null(ticks, 0).to_numpy(zero_copy_only=False) // 1_000
    return pa.array(whole, mask=ticks.is_null().to_numpy(zero_copy_only=False))


def _epoch(value: Array) -> Array:
    """Seconds since 1970, or of an interval."""
    ticks = value.cast(pa.int64())
    size = 1e9 if value.type == pa.timestamp("ns") else 1e6
    return pc.divide(ticks.cast(pa.float64(), safe=False), size)


def _epoch_ns(value: Array) -> Array:
    return value.cast(pa.int64()) if value.type == pa.timestamp("ns") else pc.multiply(value.cast(pa.int64()), 1_000)


def _floored(ticks: Array, size: int, begin: int = 0) -> Array:
    """How often `size` goes into what lies between `begin` and each of them, rounded down."""
    numbers = pc.fill_null(ticks, 0).to_numpy(zero_copy_only=False)
    return pa.array((numbers - begin) // size, mask=ticks.is_null().to_numpy(zero_copy_only=False))


def _count(unit: str, value: Array) -> Array:
    """The number of the year, month ... that a time is in, counted from somewhere."""
    if unit in _SIZES:
        return _floored(_ticks(value), _SIZES[unit])
    year = pc.year(value)
    if unit == "year":
        return year
    if unit == "quarter":
        return pc.add(pc.multiply(year, 4), pc.quarter(value))
    return pc.add(pc.multiply(year, 12), pc.month(value))


def _date_diff(begin: Array, end: Array, unit: str) -> Array:
    """How many beginnings of a unit lie after `begin`, up to `end`; of weeks, how often seven midnights."""
    if unit == "week":
        return pc.divide(_date_diff(begin, end, "day"), 7)  # whole numbers are divided towards 0
    return pc.subtract(_count(unit, end), _count(unit, begin))


def _date_sub(begin: Array, end: Array, unit: str) -> Array:
    """How many whole units lie between two times."""
    apart = pc.subtract(_ticks(end), _ticks(begin))
    return pc.divide(apart, _SIZES[unit])


def _bucket(value: Array, width: int) -> Array:
    """The begin of the bucket of a time: buckets of one width, one of which begins on 3 January 2000."""
    number = _floored(_ticks(value), width, _BUCKETS)
    return pc.add(pc.multiply(number, width), _BUCKETS).cast(pa.timestamp("us"))


def _last_day(value: Array) -> Array:
    return pc.subtract(
        pc.ceil_temporal(value, unit="month", ceil_is_strictly_greater=True).cast(pa.timestamp("us")),
        pa.scalar(86_400 * _SECOND, pa.duration("us")),
    )


def _from_seconds(value: Array) -> Array:
    """The time so many seconds after 1970; null beyond what a time can be."""
    numbers = pc.fill_null(value, 0.0).to_numpy(zero_copy_only=False) * 1e6
    fits = np.abs(numbers) < 2.0**62
    ticks = np.rint(np.where(fits, numbers, 0.0)).astype(np.int64)
    return pa.array(ticks, mask=value.is_null().to_numpy(zero_copy_only=False) | ~fits).cast(pa.timestamp("us"))


def _digits(number: Array, width: int) -> Array:
    return pc.utf8_lpad(pc.cast(number, pa.string()), width, "0")


def _named(names: tuple[str, ...], place: Array, most: int | None = None) -> Array:
    return pa.array([name[:most] for name in names]).take(place)


def _hour12(value: Array) -> Array:
    hour = pc.hour(value)
    return pc.if_else(pc.equal(hour, 0), 12, pc.if_else(pc.greater(hour, 12), pc.subtract(hour, 12), hour))


def _micros(value: Array) -> Array:
    return pc.add(pc.multiply(pc.millisecond(value), 1_000), pc.microsecond(value))


_PIECES: Mapping[str, Callable[[Array], Array]] = {
    "Y": lambda v: pc.cast(pc.year(v), pa.string()),
    "y": lambda v: pc.utf8_slice_codeunits(_digits(pc.year(v), 4), 2, 4),
    "m": lambda v: _digits(pc.month(v), 2),
    "d": lambda v: _digits(pc.day(v), 2),
    "H": lambda v: _digits(pc.hour(v), 2),
    "I": lambda v: _digits(_hour12(v), 2),
    "M": lambda v: _digits(pc.minute(v), 2),
    "S": lambda v: _digits(pc.second(v), 2),
    "f": lambda v: _digits(_micros(v), 6),
    "g": lambda v: _digits(pc.millisecond(v), 3),
    "j": lambda v: _digits(pc.day_of_year(v), 3),
    "p": lambda v: pc.if_else(pc.less(pc.hour(v), 12), "AM", "PM"),
    "A": lambda v: _named(_DAYS, pc.day_of_week(v)),
    "a": lambda v: _named(_DAYS, pc.day_of_week(v), 3),
    "B": lambda v: _named(_MONTHS, pc.subtract(pc.month(v), 1)),
    "b": lambda v: _named(_MONTHS, pc.subtract(pc.month(v), 1), 3),
    "u": lambda v: pc.cast(pc.day_of_week(v, count_from_zero=False), pa.string()),
    "w": lambda v: pc.cast(pc.day_of_week(v, week_start=7), pa.string()),
    "-d": lambda v: pc.cast(pc.day(v), pa.string()),
    "-m": lambda v: pc.cast(pc.month(v), pa.string()),
    "-H": lambda v: pc.cast(pc.hour(v), pa.string()),
    "-I": lambda v: pc.cast(_hour12(v), pa.string()),
    "-M": lambda v: pc.cast(pc.minute(v), pa.string()),
    "-S": lambda v: pc.cast(pc.second(v), pa.string()),
}
_WHOLE = {"x": "%Y-%m-%d", "X": "%H:%M:%S", "c": "%Y-%m-%d %H:%M:%S"}
_PARSED = frozenset("YmdHMSyjBbpI")


def _pieces(form: str) -> list[tuple[str, str]]:
    """A format as (the text before, the sign after %) pairs; sign "": the end, "?": unknown."""
    out, text, at = [], "", 0
    while at < len(form):
        if form[at] != "%":
            text, at = text + form[at], at + 1
            continue
        sign = form[at + 1 : at + 3] if form[at + 1 : at + 2] == "-" else form[at + 1 : at + 2]
        at += 1 + len(sign)
        if sign == "%":
            text += "%"
            continue
        out.append((text, sign if sign in _PIECES else "?"))
        text = ""
    return [*out, (text, "")]


def _strftime(value: Array, form: str) -> Array:
    for sign, whole in _WHOLE.items():
        form = form.replace(f"%{sign}", whole)
    parts = []
    for text, sign in _pieces(form):
        parts += [pa.scalar(text, pa.string())] * bool(text) + ([_PIECES[sign](value)] if sign else [])
    if not any(isinstance(each, pa.Array) for each in parts):
        return pc.if_else(pc.is_valid(value), "".join(each.as_py() for each in parts), pa.scalar(None, pa.string()))
    return pc.binary_join_element_wise(*parts, "", null_handling="emit_null")


def format_fault(form: str, *, parsed: bool) -> str | None:
    """What of a format is not known; None: nothing.  parsed: of times that are read."""
    if parsed:
        signs = [form[at + 1 : at + 2] for at, sign in enumerate(form) if sign == "%"]
        wrong = next((sign for sign in signs if sign not in _PARSED), None)
        return None if wrong is None else f"%{wrong}; known are {' '.join(f'%{each}' for each in sorted(_PARSED))}"
    for sign, whole in _WHOLE.items():
        form = form.replace(f"%{sign}", whole)
    if any(sign == "?" for _, sign in _pieces(form)):
        return f"another sign after %; known are {' '.join(f'%{each}' for each in (*_PIECES, *_WHOLE))}"
    return None


def _strptime(value: Array, form: str) -> Array:
    return pc.strptime(value, format=form, unit="us", error_is_null=True)


def time_text(value: Array, *, date: bool) -> Array:
    """Times as text: 2011-12-09 08:01:00, with what there is of a second behind; of dates the day alone."""
    if date:
        return _strftime(value, "%Y-%m-%d")
    whole = _strftime(value, "%Y-%m-%d %H:%M:%S")
    if value.type == pa.timestamp("ns"):
        part = _digits(pc.add(pc.multiply(_micros(value), 1_000), pc.nanosecond(value)), 9)
    else:
        part = _digits(_micros(value), 6)
    rest = pc.utf8_rtrim(part, "0")
    return pc.if_else(pc.equal(rest, ""), whole, pc.binary_join_element_wise(whole, rest, "."))


_UNIT = Literal("text", only=(*_SIZES, "month", "quarter", "year"))
_FIXED = Literal("text", only=tuple(_SIZES))

TIMES: Mapping[str, Plain] = {
    "quarter": Plain(("timestamp",), "integer", _whole(lambda v: pc.quarter(v)), (), ("quarter(ts)",)),
    "week": Plain(("timestamp",), "integer", _whole(lambda v: pc.iso_week(v)), (), ("week(ts)", "weekofyear(ts)")),
    "dayofyear": Plain(("timestamp",), "integer", _whole(lambda v: pc.day_of_year(v)), (), ("dayofyear(ts)",)),
    "dayofweek": Plain(
        ("timestamp",), "integer", _whole(lambda v: pc.day_of_week(v, week_start=7)), (), ("dayofweek(ts)",),
    ),
    "isodow": Plain(
        ("timestamp",), "integer", _whole(lambda v: pc.day_of_week(v, count_from_zero=False)), (), ("isodow(ts)",),
    ),
    "millisecond": Plain(
        ("timestamp",), "integer",
        _whole(lambda v: pc.add(pc.multiply(pc.second(v), 1_000), pc.millisecond(v))), (),
        ("millisecond(ts)", "extract(milliseconds FROM ts)"),
    ),
    "microsecond": Plain(
        ("timestamp",), "integer",
        _whole(lambda v: pc.add(pc.multiply(pc.second(v), _SECOND), _micros(v))), (), ("microsecond(ts)",),
    ),
    "epoch": Plain(("timestamp",), "number", _epoch, (), ("epoch(ts)", "extract(epoch FROM ts)")),
    "epoch_ms": Plain(("timestamp",), "integer", lambda v: _floored(_ticks(v), 1_000), (), ("epoch_ms(ts)",)),
    "epoch_us": Plain(("timestamp",), "integer", _ticks, (), ("epoch_us(ts)",)),
    "epoch_ns": Plain(("timestamp",), "integer", _epoch_ns, (), ("epoch_ns(ts)",)),
    "dayname": Plain(("timestamp",), "text", _PIECES["A"], (), ("dayname(ts)",)),
    "monthname": Plain(("timestamp",), "text", _PIECES["B"], (), ("monthname(ts)",)),
    "last_day": Plain(("timestamp",), "date", _last_day, (), ("CAST(last_day(ts) AS VARCHAR)",)),
    "date_diff": Plain(
        ("timestamp", "timestamp"), "integer", _date_diff, (_UNIT,),
        tuple(f"date_diff('{unit}', TIMESTAMP '2020-02-29 12:30:00', ts)" for unit in _UNIT.only),
        leading=True,
    ),
    "date_sub": Plain(
        ("timestamp", "timestamp"), "integer", _date_sub, (_FIXED,),
        tuple(f"date_sub('{unit}', TIMESTAMP '2020-02-29 12:30:00', ts)" for unit in _FIXED.only),
        leading=True,
    ),
    "time_bucket": Plain(
        ("timestamp",), "timestamp", _bucket, (Literal("interval", 1, 2**62),),
        ("time_bucket(INTERVAL '10 minutes', ts)", "time_bucket(INTERVAL '5 days', ts)"), leading=True,
    ),
    "make_timestamp": Plain(
        ("integer",), "timestamp", lambda v: v.cast(pa.timestamp("us")), (), ("make_timestamp(n * 1000000000)",),
    ),
    "to_timestamp": Plain(
        ("number",), "timestamp", _from_seconds, (), ("CAST(to_timestamp(n * 1000000.5) AS TIMESTAMP)",),
    ),
    "strftime": Plain(
        ("timestamp",), "text", _strftime, (Literal("text", form="strftime"),),
        (
            "strftime(ts, '%Y-%m-%d %H:%M:%S.%f')", "strftime(ts, '%a %A %b %B %j %y %I %p %u %w %g')",
            "strftime(ts, '100 %% of %-d/%-m at %-H:%-M:%-S, %x %X')",
        ),
    ),
    "strptime": Plain(
        ("text",), "timestamp", _strptime, (Literal("text", form="strptime"),),
        (
            "strptime(strftime(ts, '%d/%m/%Y %H.%M.%S'), '%d/%m/%Y %H.%M.%S')",
            "try_strptime(t, '%Y-%m-%d')",
        ),
    ),
}  # fmt: skip
