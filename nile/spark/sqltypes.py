"""Column types in Spark: how a Parquet column is read, how a text cell is typed, how a time is told.

The same rules as the direct path's, from the same patterns and constants (`nile.base.cells`,
`nile.base.times`), as Spark SQL text.  All of it is evaluated by Java, none by Python workers.
"""

from __future__ import annotations

from dataclasses import dataclass

from nile.base.cells import (
    BOOLEAN,
    INTEGER,
    MORE_THAN_MICROSECONDS,
    NOT_UTF8,
    NUMBER,
    NUMBER_WORD,
    TIMESTAMP,
)
from nile.base.durations import NS_PER_SECOND
from nile.base.times import (
    INFINITE_TIME,
    NAN_TIME,
    NULL_TIME,
    TIME_LIMIT,
    TIME_OUT_OF_RANGE,
    UNPARSABLE_TIME,
)
from nile.expressions.spark_text import quoted
from nile.summaries.heavy import pa

_WHITE = quoted(" \t\n\x0b\x0c\r")  # the characters themselves: Spark knows no \f and takes it for an f
_NS = {"s": NS_PER_SECOND, "ms": 1_000_000, "us": 1_000, "ns": 1}
_FINER = "Spark compares times to the microsecond and this column has finer ones; round it, or leave it out of `where`"


@dataclass(frozen=True, slots=True)
class CellSql:
    """A text cell, typed.

    raw: the value as `time_sql` takes it (ticks for times), null where empty or misfit.
    misfit: true where the cell does not fit its type.
    """

    raw: str
    misfit: str


@dataclass(frozen=True, slots=True)
class TimeSql:
    """An event time.  ns: BIGINT, of no meaning where there is a reason.  reason: STRING, null if good."""

    ns: str
    reason: str


def read_type(kind: pa.DataType) -> str | None:
    """The Spark type to read a Parquet column as; None when Spark has none for it.

    Times are read as their ticks (BIGINT), so that no value can overflow on the way in.
    """
    types = pa.types
    if types.is_timestamp(kind):
        return "BIGINT"
    if types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})" if kind.precision <= 38 else None
    for name, test in (
        ("BOOLEAN", types.is_boolean),
        ("TINYINT", types.is_int8),
        ("SMALLINT", lambda t: types.is_int16(t) or types.is_uint8(t)),
        ("INT", lambda t: types.is_int32(t) or types.is_uint16(t) or types.is_null(t)),
        ("BIGINT", lambda t: types.is_int64(t) or types.is_uint32(t)),
        ("DECIMAL(20, 0)", types.is_uint64),
        ("FLOAT", types.is_float32),
        ("DOUBLE", types.is_float64),
        ("DATE", types.is_date),
        ("STRING", lambda t: types.is_string(t) or types.is_large_string(t) or types.is_string_view(t)),
        (
            "BINARY",
            lambda t: types.is_binary(t) or types.is_large_binary(t) or types.is_fixed_size_binary(t),
        ),
    ):
        if test(kind):
            return name
    return None


def value_sql(raw: str, kind: pa.DataType) -> str:
    """The value of a column for `where`, from its raw form: times become timestamps in UTC."""
    if not pa.types.is_timestamp(kind):
        return raw
    if kind.unit == "ns":
        finer = f"CAST(raise_error({quoted(_FINER)}) AS BIGINT)"
        return f"timestamp_micros(IF(pmod({raw}, 1000L) <> 0, {finer}, {raw} DIV 1000L))"
    factor = _NS[kind.unit] // 1_000
    most = (2**63 - 1) // factor  # clamping keeps the order, as the direct path does
    clamped = f"CASE WHEN {raw} > {most}L THEN {most}L WHEN {raw} < -{most}L THEN -{most}L ELSE {raw} END"
    return f"timestamp_micros({clamped} * {factor}L)"


def shown_sql(raw: str, kind: pa.DataType) -> str:
    """A column's value for a person to read, from its raw form."""
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return f"timestamp_micros({raw} DIV 1000L)"
    return value_sql(raw, kind)


def key_sql(raw: str, kind: pa.DataType) -> str:
    """The value of a key column, of its own type, from its raw form."""
    if not pa.types.is_timestamp(kind):
        return raw
    stamp = f"timestamp_micros({raw} * {_NS[kind.unit] // 1_000}L)"
    return stamp if kind.tz else f"CAST({stamp} AS TIMESTAMP_NTZ)"


def cell_sql(cell: str, wanted: pa.DataType) -> CellSql:
    """A text cell (SQL of a STRING) as one of the types that `infer_type` gives."""
    text = _trimmed(cell)
    given = f"{text} <> ''"
    if pa.types.is_string(wanted):
        broken = f"contains({cell}, {quoted(NOT_UTF8)})"
        return CellSql(f"IF({cell} = '' OR {broken}, NULL, {cell})", f"({broken})")
    if pa.types.is_timestamp(wanted):
        ns, fits = _instant(text, whole_range=wanted.unit == "us")
        if wanted.unit == "ns":
            raw = f"IF({fits}, {ns}, NULL)"
        else:
            raw = f"IF({fits} AND NOT {_matches(text, MORE_THAN_MICROSECONDS)}, {_micros(text)}, NULL)"
    elif pa.types.is_boolean(wanted):
        raw = f"IF({_matches(text, BOOLEAN)}, lower({text}) = 'true', NULL)"
    elif pa.types.is_integer(wanted):
        raw = f"IF({_matches(text, INTEGER)}, try_cast({text} AS BIGINT), NULL)"
    else:
        raw = _number(text)
    return CellSql(raw, f"({given} AND {raw} IS NULL)")


def time_sql(raw: str, kind: pa.DataType) -> TimeSql:
    """The event time of a column from its raw form; the type is one that `check_time_type` accepts."""
    types = pa.types
    if types.is_null(kind):
        return TimeSql("CAST(NULL AS BIGINT)", quoted(NULL_TIME))
    if types.is_floating(kind):
        return _from_seconds(f"CAST({raw} AS DOUBLE)")
    if types.is_integer(kind):
        return _from_ticks(raw, NS_PER_SECOND)
    if types.is_timestamp(kind):
        return _from_ticks(raw, _NS[kind.unit])
    if types.is_date(kind):
        return _from_ticks(f"CAST(unix_date({raw}) AS BIGINT)", 86_400 * NS_PER_SECOND)
    return _from_text(raw)


def _from_ticks(ticks: str, size: int) -> TimeSql:
    limit = TIME_LIMIT // size
    inside = f"{ticks} BETWEEN -{limit}L AND {limit}L"
    return TimeSql(
        f"IF({inside}, try_cast({ticks} AS BIGINT), 0L) * {size}L",
        f"CASE WHEN {ticks} IS NULL THEN {quoted(NULL_TIME)} WHEN NOT ({inside}) THEN {quoted(TIME_OUT_OF_RANGE)} END",
    )


def _from_seconds(seconds: str) -> TimeSql:
    """ns = floor(s) * 10**9 + rint((s - floor(s)) * 10**9), as the direct path computes it."""
    limit = TIME_LIMIT // NS_PER_SECOND
    safe = f"IF(abs({seconds}) <= {limit}D, {seconds}, 0D)"
    whole = f"floor({safe})"
    return TimeSql(
        f"{whole} * {NS_PER_SECOND}L + CAST(rint(({safe} - {whole}) * {NS_PER_SECOND}D) AS BIGINT)",
        f"CASE WHEN {seconds} IS NULL THEN {quoted(NULL_TIME)} "
        f"WHEN isnan({seconds}) THEN {quoted(NAN_TIME)} "
        f"WHEN abs({seconds}) = CAST('Infinity' AS DOUBLE) THEN {quoted(INFINITE_TIME)} "
        f"WHEN NOT abs({seconds}) <= {limit}D THEN {quoted(TIME_OUT_OF_RANGE)} END",
    )


def _from_text(cell: str) -> TimeSql:
    text = _trimmed(cell)
    instant, shaped = _instant(text, whole_range=True)
    number = _from_seconds(_number(text))
    numeric = _matches(text, f"{NUMBER}|{NUMBER_WORD}")
    limit = f"{TIME_LIMIT}L"
    return TimeSql(
        f"IF({numeric}, {number.ns}, coalesce({instant}, 0L))",
        f"CASE WHEN {cell} IS NULL OR {text} = '' THEN {quoted(NULL_TIME)} "
        f"WHEN {numeric} THEN {number.reason} "
        f"WHEN NOT {shaped} THEN {quoted(UNPARSABLE_TIME)} "
        f"WHEN NOT coalesce({instant} BETWEEN -{limit} AND {limit}, FALSE) THEN {quoted(TIME_OUT_OF_RANGE)} END",
    )


def _instant(text: str, *, whole_range: bool = False) -> tuple[str, str]:
    """Nanoseconds since 1970 (null beyond 64 bits) of an ISO time, and whether it is one.

    whole_range: times beyond 64 bits of nanoseconds count as times too.
    """
    finer = f"rpad(regexp_extract({text}, '[.][0-9]{{6}}([0-9]{{1,3}})', 1), 3, '0')"
    ns = f"try_add(try_multiply({_micros(text)}, 1000L), CAST({finer} AS BIGINT))"
    # Spark knows a year 0; the direct path does not.
    fits = f"{_matches(text, TIMESTAMP)} AND left({text}, 4) <> '0000' AND {_micros(text)} IS NOT NULL"
    return ns, f"({fits})" if whole_range else f"({fits} AND {ns} IS NOT NULL)"


def _micros(text: str) -> str:
    """Microseconds since 1970 of text shaped like TIMESTAMP, rounded down; null or nonsense for other text."""
    # Spark wants seconds before a zone.
    full = f"regexp_replace({text}, '([ T][0-9]{{2}}:[0-9]{{2}})([Z+-])', '$1:00$2')"
    return f"unix_micros(try_cast({full} AS TIMESTAMP))"


def _number(text: str) -> str:
    return f"IF({_matches(text, f'{NUMBER}|{NUMBER_WORD}')}, try_cast({text} AS DOUBLE), NULL)"


def _matches(text: str, pattern: str) -> str:
    # In Java `$` also matches before a line end that closes the text.
    return f"({text} RLIKE {quoted(pattern.replace('$', chr(92) + 'z'))})"


def _trimmed(cell: str) -> str:
    return f"trim(BOTH {_WHITE} FROM {cell})"
