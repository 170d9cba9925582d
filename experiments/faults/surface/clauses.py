"""Every type of Arrow in every clause: it works and the answer is right, or it is refused by name."""

from __future__ import annotations

import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nile
from nile.base.plain import can_be_ordered, plain_type
from nile.experiments.faults.fault import expect
from nile.experiments.faults.surface.arrow_types import ArrowType
from nile.summaries.errors import NileError
from nile.summaries.heavy import pa

__all__ = ["CLAUSES", "outcome"]

Run = Callable[[ArrowType], object]
_TIMES = [0, 1, 2, 3, 4, 5, 6, 7]
_NUMERIC = ("sum", "avg", "median", "quantile_cont", "var_samp", "stddev_pop")


def outcome(case: ArrowType, clause: str) -> str:
    """yes, or no: refused by name.  Raises Wrong for a wrong answer, and whatever else comes that is no NileError."""
    try:
        CLAUSES[clause](case)
    except NileError as error:
        told = str(error)
        expect(re.search(r"\bv\b", told), f"{clause} of {case.name}: the column is not named: {told}")
        expect(_named(case, told), f"{clause} of {case.name}: the type is not named: {told}")
        expect(";" in told or "CAST" in told, f"{clause} of {case.name}: nothing to do is named: {told}")
        return "no"
    return "yes"


def _named(case: ArrowType, told: str) -> bool:
    """Whether a message says which type came, by its first word."""
    words = {re.split(r"[\[<( ]", each)[0] for each in (str(case.type), str(_worked_with(case)), case.name)}
    return any(word in told for word in words)


def _worked_with(case: ArrowType) -> pa.DataType:
    kind = plain_type(case.type)
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _table(case: ArrowType) -> pa.Table:
    return pa.table({"ts": pa.array(_TIMES), "i": pa.array(range(8)), "v": case.column})


def _open(case: ArrowType) -> nile.Database:
    return nile.connect().register("s", _table(case), time="ts")


def _rows(case: ArrowType, text: str) -> list[dict[str, Any]]:
    with _open(case) as db:
        rows: list[dict[str, Any]] = db.sql(text).to_arrow().to_pylist()
        return rows


def _key(value: Any) -> Any:
    """A value that can be put into sets: equal exactly where the values are."""
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    if isinstance(value, dict):
        return tuple((name, _key(each)) for name, each in value.items())
    return value


def _same(found: list[Any], must: list[Any], what: str) -> None:
    expect(list(map(_key, found)) == list(map(_key, must)), f"{what}: {found}, must be {must}")


def _alike(found: list[Any], must: list[Any], what: str) -> None:
    expect(Counter(map(_key, found)) == Counter(map(_key, must)), f"{what}: {found}, must be {must}")


def _present(case: ArrowType) -> list[Any]:
    return [value for value in case.values if value is not None]


def _select(case: ArrowType) -> None:
    _same([row["v"] for row in _rows(case, "SELECT v FROM s")], case.values, "values")


def _is_null(case: ArrowType) -> None:
    _same([row["i"] for row in _rows(case, "SELECT i FROM s WHERE v IS NULL")],
          [i for i, value in enumerate(case.values) if value is None], "rows with null")  # fmt: skip


def _where(case: ArrowType) -> None:
    _same([row["i"] for row in _rows(case, "SELECT i FROM s WHERE v = v")],
          [i for i, value in enumerate(case.values) if value is not None], "rows equal to themselves")  # fmt: skip


def _group(case: ArrowType) -> None:
    rows = _rows(case, "SELECT v, count(*) AS n FROM s GROUP BY v")
    must = Counter(map(_key, case.values))
    expect({_key(row["v"]): row["n"] for row in rows} == must, f"groups {rows}, must be {must}")


def _distinct(case: ArrowType) -> None:
    found = [row["v"] for row in _rows(case, "SELECT DISTINCT v FROM s")]
    _alike(found, list(dict.fromkeys(map(_key, case.values))), "distinct values")


def _order(case: ArrowType) -> None:
    rows = _rows(case, "SELECT v FROM s ORDER BY v NULLS LAST")
    must = sorted(_present(case)) + [None] * case.values.count(None)
    _same([row["v"] for row in rows], must, "order")


def _aggregated(case: ArrowType, function: str) -> Any:
    """Told by SQL, and by `db.aggregate` alike."""
    text = f"{function}(v, 0.5)" if function.startswith("quantile") else f"{function}(v)"
    found = _rows(case, f"SELECT {text} AS x FROM s")[0]["x"]
    with _open(case) as db:
        same = db.aggregate("s", {"x": text}).run().to_arrow().to_pylist()
    told = same[0].get("x", same[0].get("value"))
    close = told == found or (isinstance(told, float) and math.isclose(told, float(found)))
    expect(close, f"db.aggregate gives {text} as {told}, SQL as {found}")
    return found


def _count(case: ArrowType) -> None:
    found = _rows(case, "SELECT count(v) AS x FROM s")[0]["x"]
    expect(found == len(_present(case)), f"count {found}")


def _count_distinct(case: ArrowType) -> None:
    found = _rows(case, "SELECT count(DISTINCT v) AS x FROM s")[0]["x"]
    expect(found == len(set(map(_key, _present(case)))), f"count of distinct values {found}")


def _extreme(case: ArrowType) -> None:
    for function, pick in (("min", min), ("max", max)):
        found = _rows(case, f"SELECT {function}(v) AS x FROM s")[0]["x"]
        _same([found], [pick(_present(case), default=None)], function)


def _disc(case: ArrowType) -> None:
    found = _rows(case, "SELECT quantile_disc(v, 0.5) AS x FROM s")[0]["x"]
    present = sorted(_present(case))
    _same([found], [present[(len(present) + 1) // 2 - 1] if present else None], "quantile_disc")


def _numbers(case: ArrowType) -> None:
    for function in _NUMERIC:
        found = _aggregated(case, function)
        values = list(map(float, _present(case)))
        if function == "sum":
            expect(found == (sum(values) if values else None), f"sum {found}")
        elif function == "median":
            ordered = sorted(values)
            expect(found == (ordered[len(ordered) // 2] if ordered else None), f"median {found}")


def _twice(case: ArrowType) -> nile.Database:
    return _open(case).register("r", _table(case), time="ts")


def _pairs(case: ArrowType) -> list[tuple[int, int]]:
    values = list(map(_key, case.values))
    return [
        (i, j) for i in range(8) for j in range(8)
        if values[i] is not None and values[i] == values[j] and abs(i - j) <= 4
    ]  # fmt: skip


def _join_key(case: ArrowType) -> None:
    with _twice(case) as db:
        text = "SELECT a.i AS a, b.i AS b FROM s a, r b WHERE a.v = b.v WINDOW 4"
        found = [(row["a"], row["b"]) for row in db.sql(text).to_arrow().to_pylist()]
        _alike(found, _pairs(case), "pairs")
        told = db.join("s", "r", on="v", window=4).run().to_arrow()
        pairs = list(zip(told["left_ordinal"].to_pylist(), told["right_ordinal"].to_pylist(), strict=True))
        _alike(pairs, _pairs(case), "pairs of db.join")


def _preferred(case: ArrowType) -> None:
    with _twice(case) as db:
        for preference in ("desc", "weighted", "asc"):
            told = db.join("s", "r", on="v", window=4).prefer(preference).run(0.5).to_arrow()
            pairs = set(zip(told["left_ordinal"].to_pylist(), told["right_ordinal"].to_pylist(), strict=True))
            expect(pairs <= set(_pairs(case)), f"false pairs under {preference}: {pairs - set(_pairs(case))}")


def _payload(case: ArrowType) -> None:
    with _twice(case) as db:
        text = "SELECT a.v AS x, b.v AS y FROM s a, r b WHERE a.i = b.i WINDOW 4"
        rows = db.sql(text).to_arrow().to_pylist()
        _same([row["x"] for row in rows], case.values, "payload")
        _same([row["y"] for row in rows], case.values, "payload")
        answer = db.sql(text.replace("WINDOW", "WITH PREFERENCE desc a.i WINDOW") + " BUDGET 90 %").to_arrow()
        values = set(map(_key, case.values))
        expect(all(_key(row["x"]) in values for row in answer.to_pylist()), "payload of a preferred join")


def _selection(case: ArrowType) -> None:
    with _open(case) as db:
        text = "SELECT i FROM s WHERE v IS NOT NULL WITH PREFERENCE desc v BUDGET 90 %"
        found = {row["i"] for row in db.sql(text).to_arrow().to_pylist()}
        expect(found <= {i for i, value in enumerate(case.values) if value is not None}, f"rows {found}")


def _summary(case: ArrowType) -> None:
    with _open(case) as db:
        db.summarize("s", "v", granularity=4)


def _time(case: ArrowType) -> None:
    far = (
        value is None or isinstance(value, str) or (isinstance(value, int) and abs(value) > 2**33)
        for value in case.values
    )
    must = [i for i, no_time in enumerate(far) if not no_time]
    with nile.connect() as db:
        table = _table(case)
        if can_be_ordered(_worked_with(case)):
            places = sorted((i for i in range(8) if case.values[i] is not None), key=lambda i: case.values[i])
            table = pa.concat_tables([table.slice(i, 1) for i in (*places, 5)])
        db.register("s", table, time="v")
        answer = db.sql("SELECT i FROM s")
        _alike([row["i"] for row in answer.to_arrow().to_pylist()], must, "rows with a time")


def _live(db: nile.Database, case: ArrowType) -> None:
    db.stream("s", _table(case).schema, time="ts")
    db.push("s", _table(case).slice(0, 3))
    db.push("s", _table(case).slice(3))


def _push(case: ArrowType) -> None:
    with nile.connect() as db:
        _live(db, case)
        _same([row["v"] for row in db.sql("SELECT v FROM s").to_arrow().to_pylist()], case.values, "pushed values")


def _store(case: ArrowType) -> None:
    with tempfile.TemporaryDirectory(prefix="nile-faults-") as folder:
        with nile.connect(Path(folder) / "store") as db:
            _live(db, case)
            db.checkpoint()
            db.advance(100)
        with nile.connect(Path(folder) / "store") as db:
            _same([row["v"] for row in db.sql("SELECT v FROM s").to_arrow().to_pylist()], case.values, "stored values")


def _history(case: ArrowType) -> None:
    with nile.connect() as db:
        _live(db, case)
        found = [row["v"] for part in db.sql("SELECT v FROM s").progress(0) for b in part.rows for row in b.to_pylist()]
        _alike(found, case.values, "values as they are found")
        last = list(db.sql("SELECT v, count(*) AS n FROM s GROUP BY v").progress(0))[-1].to_arrow().to_pylist()
        must = Counter(map(_key, case.values))
        expect({_key(row["v"]): row["n"] for row in last} == must, f"groups {last}, must be {must}")


def _standing(case: ArrowType, text: str, check: Callable[[list[dict[str, Any]]], None]) -> None:
    with nile.connect() as db:
        db.stream("s", _table(case).schema, time="ts")
        found: list[dict[str, Any]] = []
        db.subscribe(text, lambda batch: found.extend(batch.to_pylist()))
        db.push("s", _table(case))
        db.advance(100)
        check(found)


def _standing_rows(case: ArrowType) -> None:
    _standing(case, "SELECT v FROM s", lambda rows: _same([row["v"] for row in rows], case.values, "standing rows"))


def _standing_groups(case: ArrowType) -> None:
    def check(rows: list[dict[str, Any]]) -> None:
        left: Counter[Any] = Counter()
        for row in rows:
            left[_key(row["v"]), row["n"]] += row["_sign"]
        must = Counter(map(_key, case.values)).items()
        expect(+left == Counter(must), f"standing groups {+left}, must be {must}")

    _standing(case, "SELECT v, count(*) AS n FROM s GROUP BY v", check)


def _standing_extreme(case: ArrowType) -> None:
    def check(rows: list[dict[str, Any]]) -> None:
        left: Counter[Any] = Counter()
        for row in rows:
            left[_key(row["x"])] += row["_sign"]
        expect(+left == Counter([_key(max(_present(case), default=None))]), f"standing maximum {+left}")

    _standing(case, "SELECT max(v) AS x FROM s", check)


CLAUSES: Mapping[str, Run] = {
    "SELECT": _select,
    "IS NULL": _is_null,
    "WHERE": _where,
    "GROUP BY": _group,
    "DISTINCT": _distinct,
    "ORDER BY": _order,
    "count": _count,
    "count distinct": _count_distinct,
    "min, max": _extreme,
    "quantile_disc": _disc,
    "sum, avg, ...": _numbers,
    "join key": _join_key,
    "join payload": _payload,
    "preference": _preferred,
    "selection": _selection,
    "summary": _summary,
    "time": _time,
    "push": _push,
    "store": _store,
    "progress": _history,
    "standing": _standing_rows,
    "standing groups": _standing_groups,
    "standing max": _standing_extreme,
}
"""What is done with column v, by the name of the column in docs/sql.md."""
