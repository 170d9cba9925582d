"""Casts and expressions against DuckDB: where Nile has a value, DuckDB has the same; where it is null, TRY_CAST is too.

What docs/sql.md says is otherwise is written into DuckDB's text: an overflow is null, as is a division by zero, and a
CAST that is impossible (TRY_CAST there); text is read in fewer forms.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import nile
from nile.experiments.faults.fault import Fault, expect, generator
from nile.summaries.heavy import duckdb, pa

__all__ = ["FAULT"]

_NAME = "casts"
_EACH = 4
_TYPES = {"TINYINT": "i", "SMALLINT": "i", "INTEGER": "i", "BIGINT": "i", "DOUBLE": "f", "VARCHAR": "t", "BOOLEAN": "b",
          "DATE": "d", "TIMESTAMP": "m"}  # fmt: skip
_FITS = {"i": "iftb", "f": "iftb", "t": "itb", "b": "itb", "d": "dmt", "m": "dmt"}
"""Which kinds (whole number, double, text, boolean, date, moment) can be cast to each; docs/sql.md, casts."""
_READ = {"i": "[+-]?[0-9]+", "b": "true|false", "d": "[0-9]{4}-.*", "m": "[0-9]{4}-.*"}
"""Of text, the forms that Nile reads."""
_INTEGERS = [
    0,
    1,
    -1,
    7,
    127,
    128,
    -128,
    -129,
    32_767,
    32_768,
    2**31 - 1,
    2**31,
    -(2**31),
    2**53,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    None,
]
_FLOATS = [
    0.0,
    -0.0,
    0.5,
    1.5,
    2.5,
    -0.5,
    -1.5,
    -15.5,
    2.7,
    127.5,
    126.5,
    1e-300,
    1e17,
    2.0**53,
    2.0**62,
    9.3e18,
    math.inf,
    -math.inf,
    math.nan,
    None,
]
_TEXTS = [
    "0",
    "1",
    "-7",
    "+7",
    " 12 ",
    "127",
    "128",
    "2147483648",
    "9223372036854775807",
    "abc",
    "",
    "true",
    "FALSE",
    "3e2",
    "inf",
    "nan",
    "2011-12-09",
    "2011-12-09 08:01:02.5",
    "2011-02-30",
    None,
]
_DAYS = [dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2020, 2, 29), dt.date(2011, 12, 9), None]
_MOMENTS = [
    dt.datetime(1970, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(2020, 2, 29, 12, 30, 1, 5),
    None,
]


def attempt(seed: int) -> None:
    """Some expressions over random rows, by both."""
    _compared(seed, rounding="rint")


def control(seed: int) -> None:
    """The same where a double is cut to a whole number, as other engines do it."""
    _compared(seed, rounding="trunc")


def _compared(seed: int, *, rounding: str) -> None:
    rng = generator(_NAME, seed)
    table = _table(rng)
    texts = [_expression(rng, str(rng.choice(list("iftbdm"))), 3) for _ in range(_EACH)]
    if rounding == "trunc":
        texts = [("CAST(f AS BIGINT)", "TRY_CAST(trunc(f) AS BIGINT)")]
    with nile.connect() as db:
        db.register("s", table)
        for ours, theirs in texts:
            found = db.sql(f"SELECT {ours} AS x FROM s").to_arrow()["x"].to_pylist()
            must = _asked(table, theirs)
            at = next((k for k, (a, b) in enumerate(zip(found, must, strict=True)) if not _same(a, b)), None)
            if at is not None:
                expect(False, f"{ours} of {table.slice(at, 1).to_pylist()[0]} is {found[at]!r}, DuckDB's {must[at]!r}")


def _table(rng: np.random.Generator) -> pa.Table:
    n = 30

    def some(values: list[Any], kind: Any) -> Any:
        return pa.array([values[k] for k in rng.integers(0, len(values), n)], kind)

    return pa.table({
        "i": some(_INTEGERS, pa.int64()), "j": some(_INTEGERS[:12], pa.int64()), "f": some(_FLOATS, pa.float64()),
        "t": some(_TEXTS, pa.string()), "b": some([True, False, None], pa.bool_()), "d": some(_DAYS, pa.date32()),
        "m": some(_MOMENTS, pa.timestamp("us")),
    })  # fmt: skip


def _expression(rng: np.random.Generator, kind: str, depth: int) -> tuple[str, str]:
    """An expression of a kind, as Nile has it and as DuckDB has the same."""
    if depth == 0 or rng.random() < 0.15:
        column = {"i": ["i", "j"]}.get(kind, [kind])
        name = str(rng.choice(column))
        return name, name

    def inner(wanted: str) -> tuple[str, str]:
        return _expression(rng, wanted, depth - 1)

    made: list[Callable[..., tuple[str, str]]] = [_cast]
    more: dict[str, list[Callable[..., tuple[str, str]]]] = {
        "i": [_whole, _part, _length],
        "f": [_double, _rounded],
        "t": [_joined],
        "b": [_compare],
        "d": [],
        "m": [_shift],
    }
    made += more[kind]
    made += [_case, _either]
    return made[int(rng.integers(len(made)))](rng, kind, inner)


def _cast(rng: np.random.Generator, kind: str, inner: Any) -> tuple[str, str]:
    wanted = str(rng.choice([name for name, of in _TYPES.items() if of == kind]))
    of = str(rng.choice(list(_FITS[kind])))
    ours, theirs = inner(of)
    word = str(rng.choice(["CAST", "TRY_CAST"]))
    told = f"TRY_CAST({theirs} AS {wanted})"
    if of == "f" and wanted == "BIGINT":
        told = f"CASE WHEN ({theirs}) = 2.0::DOUBLE ** 63 THEN {2**63 - 1} ELSE {told} END"
    if of == "t" and kind in _READ:
        told = f"CASE WHEN regexp_full_match(trim({theirs}), '{_READ[kind]}', 'i') THEN {told} END"
    return f"{word}({ours} AS {wanted})", told


def _whole(rng: np.random.Generator, _: str, inner: Any) -> tuple[str, str]:
    sign = str(rng.choice(list("+-*%")))
    (a, x), (b, y) = inner("i"), inner("i")
    wide = f"({x})::HUGEINT {sign} " + (f"nullif(({y})::HUGEINT, 0)" if sign == "%" else f"({y})::HUGEINT")
    if sign == "*":  # 64 bits squared fit, but for the very ends
        wide = f"CASE WHEN abs(({x})::DOUBLE * ({y})::DOUBLE) < 1.7e38 THEN ({x})::HUGEINT * ({y})::HUGEINT END"
    return f"({a} {sign} {b})", f"TRY_CAST({wide} AS BIGINT)"


def _part(rng: np.random.Generator, _: str, inner: Any) -> tuple[str, str]:
    part = str(rng.choice(["year", "month", "day", "hour", "minute", "second"]))
    a, x = inner("m")
    return f"extract({part} FROM {a})", f"extract({part} FROM {x})"


def _length(_: np.random.Generator, __: str, inner: Any) -> tuple[str, str]:
    a, x = inner("t")
    return f"length({a})", f"length({x})"


def _double(rng: np.random.Generator, _: str, inner: Any) -> tuple[str, str]:
    sign = str(rng.choice(list("+-*/")))
    (a, x), (b, y) = inner("f"), inner(str(rng.choice(list("if"))))
    if sign == "/":
        return f"({a} / {b})", f"(({x})::DOUBLE / nullif(({y})::DOUBLE, 0))"
    return f"({a} {sign} {b})", f"(({x})::DOUBLE {sign} ({y})::DOUBLE)"


def _rounded(rng: np.random.Generator, _: str, inner: Any) -> tuple[str, str]:
    name = str(rng.choice(["round", "floor", "ceil", "abs", "sqrt"]))
    a, x = inner("f")
    return f"{name}({a})", f"sqrt(CASE WHEN ({x}) < 0 THEN NULL ELSE {x} END)" if name == "sqrt" else f"{name}({x})"


def _joined(rng: np.random.Generator, _: str, inner: Any) -> tuple[str, str]:
    (a, x), (b, y) = inner("t"), inner("t")
    name = str(rng.choice(["||", "lower", "upper", "substring"]))
    if name == "||":
        return f"({a} || {b})", f"({x} || {y})"
    return (
        (f"substring({a}, 2, 3)", f"substring({x}, 2, 3)") if name == "substring" else (f"{name}({a})", f"{name}({x})")
    )


def _compare(rng: np.random.Generator, _: str, inner: Any) -> tuple[str, str]:
    of = str(rng.choice(list("iftdm")))
    sign = str(rng.choice(["=", "<>", "<", "<=", ">", ">="]))
    (a, x), (b, y) = inner(of), inner(of)
    return f"({a} {sign} {b})", f"({x} {sign} {y})"


def _shift(rng: np.random.Generator, _: str, inner: Any) -> tuple[str, str]:
    a, x = inner("m")
    if rng.random() < 0.5:
        unit = str(rng.choice(["year", "month", "week", "day", "hour", "minute", "second"]))
        return f"date_trunc('{unit}', {a})", f"date_trunc('{unit}', {x})::TIMESTAMP"
    sign, step = str(rng.choice(list("+-"))), str(rng.choice(["1 day", "90 minutes", "5 seconds"]))
    return f"({a} {sign} INTERVAL '{step}')", f"({x} {sign} INTERVAL '{step}')"


def _case(_: np.random.Generator, kind: str, inner: Any) -> tuple[str, str]:
    (c, z), (a, x), (b, y) = inner("b"), inner(kind), inner(kind)
    return f"CASE WHEN {c} THEN {a} ELSE {b} END", f"CASE WHEN {z} THEN {x} ELSE {y} END"


def _either(rng: np.random.Generator, kind: str, inner: Any) -> tuple[str, str]:
    name = str(rng.choice(["coalesce", "greatest", "least", "nullif"]))
    (a, x), (b, y) = inner(kind), inner(kind)
    return f"{name}({a}, {b})", f"{name}({x}, {y})"


@cache
def _duck() -> Any:
    connection = duckdb.connect()
    connection.execute("SET threads = 1; SET TimeZone = 'UTC'")
    return connection


def _asked(table: pa.Table, text: str) -> list[Any]:
    _duck().register("s", table)
    return [row[0] for row in _duck().execute(f"SELECT {text} FROM s").fetchall()]


def _same(found: Any, must: Any) -> bool:
    if isinstance(found, float) and isinstance(must, float):
        return found == must or (math.isnan(found) and math.isnan(must)) or math.isclose(found, must, rel_tol=1e-15)
    return type(found) is type(must) and bool(found == must)


FAULT = Fault(
    _NAME, "casts and expressions, as DuckDB has them", "the same values and nulls", attempt, control,
    full=2_000, small=60,
)  # fmt: skip
