"""A cell of an input as a column of a stream, in Spark SQL: its raw form, and whether it does not fit.

Times stay ticks (BIGINT) until a task writes them, so that none is rounded and none overflows on the way.
"""

from __future__ import annotations

from nile.base.cells import misfit_reason
from nile.spark.sqltypes import CellSql, cell_sql, read_type, shown_sql
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

__all__ = ["check_carried", "misfit_why", "text_cell", "typed_cell"]

_TICKS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}  # a second
_DAY = 86_400 * 1_000_000  # microseconds


def check_carried(kind: pa.DataType, *, where: str) -> None:
    """Raises ConfigError for a type that cannot travel through Spark into the lake."""
    types = pa.types
    if types.is_nested(kind) or types.is_float16(kind) or read_type(kind) is None:
        raise ConfigError(
            f"{where}: needed numbers, text, bytes, booleans, dates, timestamps or decimals; got {kind}; "
            "flatten or convert the column before"
        )


def misfit_why(column: str, kind: pa.DataType) -> str:
    """Why a row with a cell that does not fit is rejected, as the direct path says it where it knows the type."""
    if pa.types.is_date(kind):
        return f"cell of '{column}' is no date"
    return misfit_reason(column, pa.float64() if pa.types.is_decimal(kind) else kind)


def text_cell(cell: str, wanted: pa.DataType) -> CellSql:
    """A text cell (SQL of a STRING) as a column type of a stream.  Raises ConfigError for bytes."""
    types = pa.types
    if types.is_string(wanted) or types.is_boolean(wanted) or wanted in (pa.int64(), pa.float64()):
        return cell_sql(cell, wanted)
    if types.is_timestamp(wanted):
        whole = cell_sql(cell, pa.timestamp("ns" if wanted.unit == "ns" else "us"))
        if wanted.unit in ("us", "ns"):
            return whole
        return _divided(whole, 1_000_000 // _TICKS[wanted.unit])
    if types.is_date(wanted):
        days = _divided(cell_sql(cell, pa.timestamp("us")), _DAY)
        return CellSql(f"DATE_FROM_UNIX_DATE(CAST({days.raw} AS INT))", days.misfit)
    if types.is_integer(wanted) and wanted != pa.uint64():
        return _narrowed(cell_sql(cell, pa.int64()), wanted)
    if types.is_floating(wanted):
        number = cell_sql(cell, pa.float64())
        return CellSql(f"CAST({number.raw} AS FLOAT)", number.misfit)
    if types.is_decimal(wanted) or wanted == pa.uint64():
        number = cell_sql(cell, pa.float64())
        name = read_type(wanted)
        digits, scale = (20, 0) if wanted == pa.uint64() else (wanted.precision - wanted.scale, wanted.scale)
        exact = f"try_cast(trim({cell}) AS DECIMAL(38, {38 - digits}))"
        raw = f"IF({number.raw} IS NULL, NULL, try_cast(trim({cell}) AS {name}))"
        # A decimal of 38 digits leaves none to compare with, so digits beyond its scale are looked for.
        finer = f"{cell} RLIKE '^[^eE]*[.][0-9]{{{scale}}}[0-9]*[1-9][^eE]*$'"
        outside = f" OR NOT coalesce({raw} BETWEEN 0 AND {2**64 - 1}, FALSE)" if wanted == pa.uint64() else ""
        lost = f"({number.raw} IS NOT NULL AND (NOT coalesce({raw} = {exact}, FALSE) OR {finer}{outside}))"
        return CellSql(f"IF({lost}, NULL, {raw})", f"({number.misfit} OR {lost})")
    raise ConfigError(f"ingest: a text cell cannot become {wanted}; declare the column as string and convert it later")


def typed_cell(raw: str, found: pa.DataType, wanted: pa.DataType) -> CellSql:
    """A typed cell (SQL of its raw form) as another column type; nothing is rounded, what does not fit is told."""
    types = pa.types
    if found == wanted:
        return CellSql(raw, "FALSE")
    if types.is_null(found):
        return CellSql(f"CAST(NULL AS {read_type(wanted)})", "FALSE")
    if types.is_timestamp(found) and types.is_timestamp(wanted):
        up, down = _TICKS[wanted.unit], _TICKS[found.unit]
        if up >= down:
            ticks = f"try_multiply({raw}, {up // down}L)"
            return CellSql(ticks, f"({raw} IS NOT NULL AND {ticks} IS NULL)")
        return _divided(CellSql(raw, "FALSE"), down // up)
    if not (_is_number(found) and (_is_number(wanted) or types.is_string(wanted))):
        finer = f"coalesce(pmod({raw}, 1000L) <> 0, FALSE)" if found == pa.timestamp("ns") else "FALSE"
        shown = raw if types.is_string(found) else f"CAST({shown_sql(raw, found)} AS STRING)"
        cell = _retyped(shown, wanted)
        return cell if finer == "FALSE" else CellSql(f"IF({finer}, NULL, {cell.raw})", f"({cell.misfit} OR {finer})")
    cast = f"try_cast({raw} AS {read_type(wanted)})"
    # There and back: 2.5 is no whole number, 300 no int8, though both could be cast.
    back = f"try_cast({cast} AS {read_type(found)})"
    misfit = f"({raw} IS NOT NULL AND NOT coalesce({back} <=> {raw}, FALSE))"
    if types.is_unsigned_integer(wanted):
        top = 2**wanted.bit_width - 1
        misfit = f"({misfit} OR coalesce(NOT ({cast} BETWEEN 0 AND {top}), FALSE))"
    return CellSql(f"IF({misfit}, NULL, {cast})", misfit)


def _retyped(text: str, wanted: pa.DataType) -> CellSql:
    if pa.types.is_binary(wanted):
        return CellSql(f"CAST({text} AS BINARY)", "FALSE")
    return text_cell(text, wanted)


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind))


def _divided(whole: CellSql, by: int) -> CellSql:
    """Ticks of a coarser unit; what falls between two of them does not fit."""
    between = f"coalesce(pmod({whole.raw}, {by}L) <> 0, FALSE)"
    raw = f"IF({between}, NULL, {whole.raw} DIV {by}L)"
    return CellSql(raw, f"({whole.misfit} OR {between})")


def _narrowed(whole: CellSql, wanted: pa.DataType) -> CellSql:
    signed = pa.types.is_signed_integer(wanted)
    low = -(2 ** (wanted.bit_width - 1)) if signed else 0
    high = 2 ** (wanted.bit_width - (1 if signed else 0)) - 1
    outside = f"coalesce(NOT ({whole.raw} BETWEEN {low}L AND {high}L), FALSE)"
    return CellSql(f"IF({outside}, NULL, CAST({whole.raw} AS {read_type(wanted)}))", f"({whole.misfit} OR {outside})")
