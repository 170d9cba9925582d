"""Random queries that Nile and another engine are both asked: text for Nile, and the same for DuckDB at an instant.

A query is a template over named inputs.  DuckDB sees each stream as the rows that its window holds at an instant, or
(all that was ever appended) as the whole table with the windows written as conditions on times.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from nile.aggregates.catalogue import CATALOGUE, Kind
from nile.exact.plan.algebra import RUNNING

__all__ = ["RandomQuery", "cell", "query", "tables"]

KEYS = ["tea", "cup", "jar", "", None]


@dataclass
class RandomQuery:
    """template: SELECT text with {0}, {1} .. for inputs; inputs: (table, alias); windows: seconds, ("rows", n) or None.

    whole: one WINDOW for all, seconds, or None; kind: rows, join or state (what may be taken back); after: what the
    rows of ORDER BY and LIMIT add.  forms: what the stream of an alias stands in: ("hop", slide, size) or ("session",
    gap), or the stream of a relation, in a window: ("istream", inner, outer) and ("dstream", inner, outer).
    """

    template: str
    inputs: list[tuple[str, str]]
    kind: str
    whole: int | None = None
    own: dict[str, Any] = field(default_factory=dict)
    where: list[str] = field(default_factory=list)
    tail: str = ""
    after: str = ""
    forms: dict[str, Any] = field(default_factory=dict)

    @property
    def takes_back(self) -> bool:
        """Whether rows of its streams may be taken back."""
        rows = any(isinstance(self.window(a), tuple) and self.window(a)[0] in ("rows", "parts") for _, a in self.inputs)
        return not rows and not self.forms

    def window(self, alias: str) -> Any:
        return self.own.get(alias, self.whole)

    def nile(self) -> str:
        """The statement."""
        names = []
        for table, alias in self.inputs:
            own = self.own.get(alias)
            text = "" if own is None else f" [RANGE {own}]"
            if isinstance(own, tuple):
                text = {
                    "rows": f" [ROWS {own[1]}]", "parts": f" [PARTITION BY k ROWS {own[1]}]", "now": " [NOW]",
                    "slide": f" [RANGE {own[1]} SLIDE {own[-1]}]",
                }[own[0]]  # fmt: skip
            names.append(self._formed(table, alias) if alias in self.forms else f"{table} {alias}{text}")
        return self._text(names, self.where) + ("" if self.whole is None else f" WINDOW {self.whole}")

    def _formed(self, table: str, alias: str) -> str:
        kind, *sizes = self.forms[alias]
        spans = ", ".join(f"INTERVAL '{size} seconds'" for size in sizes)
        if kind == "hop":
            return f"HOP ({table}, ts, {spans}) AS {alias}"
        if kind == "session":
            return f"SESSION ({table} PARTITION BY k, ts, {spans}) AS {alias}"
        inner, outer = sizes
        return f"{kind.upper()} (SELECT ts, id, k, n, v FROM {table} [RANGE {inner}]) AS {alias} [RANGE {outer}]"

    def _formed_at(self, table: str, alias: str, instant: float) -> str:
        kind, *sizes = self.forms[alias]
        window = self.window(alias)
        since = "" if window is None else f" AND ts >= {instant - window}"
        held = f"SELECT * FROM {table} WHERE ts <= {instant}{since}"
        if kind == "hop":
            slide, size = sizes
            begins = f"unnest(range(ts // {slide} * {slide}, ts - {size}, -{slide}))"
            told = f"make_timestamp(b * 1000000) AS window_start, make_timestamp((b + {size}) * 1000000) AS window_end"
            return f"(SELECT * EXCLUDE (b), {told} FROM (SELECT *, {begins} AS b FROM ({held}))) {alias}"
        if kind == "session":
            (gap,) = sizes
            new = f"CASE WHEN ts - lag(ts) OVER (PARTITION BY k ORDER BY ts, id) < {gap} THEN 0 ELSE 1 END"
            numbered = f"SELECT *, sum(new) OVER (PARTITION BY k ORDER BY ts, id) AS g FROM (SELECT *, {new} AS new "
            told = "make_timestamp(min(ts) OVER p * 1000000) AS window_start"
            told += f", make_timestamp((max(ts) OVER p + {gap}) * 1000000) AS window_end"
            return f"(SELECT *, {told} FROM ({numbered} FROM ({held}))) WINDOW p AS (PARTITION BY k, g)) {alias}"
        inner, outer = sizes
        if kind == "istream":
            return f"(SELECT * FROM {table} WHERE ts BETWEEN {instant - outer} AND {instant}) {alias}"
        leaves = f"ts + {inner} + 1e-9"  # the instant behind the last at which a window holds it
        late = f"{leaves} >= {instant - outer} - 5e-10"  # halves of a nanosecond: seconds are floats
        return f"(SELECT * FROM {table} WHERE {late} AND ts + {inner} < {instant}) {alias}"

    def at(self, instant: float | None) -> str:
        """DuckDB's text for what windows hold at an instant; None: for all there is."""
        names = []
        for table, alias in self.inputs:
            window = self.window(alias)
            if table == "r" or instant is None:
                names.append(f"{table} {alias}")
            elif alias in self.forms:
                names.append(self._formed_at(table, alias, instant))
            elif isinstance(window, tuple) and window[0] == "parts":
                rows = f"SELECT * FROM {table} WHERE ts <= {instant}"
                rows += f" QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC, id DESC) <= {window[1]}"
                names.append(f"({rows}) {alias}")
            elif isinstance(window, tuple) and window[0] == "slide":
                last = instant // window[2] * window[2]
                names.append(f"(SELECT * FROM {table} WHERE ts BETWEEN {last - window[1]} AND {last}) {alias}")
            elif isinstance(window, tuple) and window[0] == "now":
                names.append(f"(SELECT * FROM {table} WHERE ts = {instant}) {alias}")
            elif isinstance(window, tuple):
                rows = f"SELECT * FROM {table} WHERE ts <= {instant} ORDER BY ts DESC, id DESC LIMIT {window[1]}"
                names.append(f"({rows}) {alias}")
            else:
                since = "" if window is None else f" AND ts >= {instant - window}"
                names.append(f"(SELECT * FROM {table} WHERE ts <= {instant}{since}) {alias}")
        return self._text(names, self.where)

    def appended(self) -> str:
        """DuckDB's text for every row that ever comes: an earlier tuple is valid when the last one comes."""
        streams = [alias for table, alias in self.inputs if table != "r"]
        last = f"greatest({', '.join(f'{alias}.ts' for alias in streams)})" if len(streams) > 1 else f"{streams[0]}.ts"
        times = [f"{last} - {a}.ts <= {self.window(a)}" for a in streams if isinstance(self.window(a), int)]
        return self._text([f"{table} {alias}" for table, alias in self.inputs], [*self.where, *times])

    def _text(self, names: list[str], where: list[str]) -> str:
        condition = " WHERE " + " AND ".join(where).format(*names) if where else ""
        parts = self.template.format(*names, where=condition)
        return parts + self.tail + self.after


def tables(rng: random.Random, rows: int) -> dict[str, pa.Table]:
    """Three streams (id in order of arrival; ties and gaps in ts) and a stored relation."""
    out = {}
    for number in range(1, 4):
        size = rng.choice([0, 1, rows // 2, *[rows] * 9])
        ts, now = [], rng.randrange(0, 5)
        for _ in range(size):
            now += rng.choice([0, 0, 1, 1, 2, 5, 20])
            ts.append(now)
        out[f"s{number}"] = pa.table(
            {
                "ts": pa.array(ts, pa.int64()),
                "id": pa.array(range(size), pa.int64()),
                "k": pa.array([rng.choice(KEYS) for _ in ts], pa.string()),
                "n": pa.array([rng.choice([None, *range(-3, 6)]) for _ in ts], pa.int64()),
                "v": pa.array(
                    [rng.choice([None, math.nan, -0.0, 0.0, 0.25, 1.5, -2.75, 4.0]) for _ in ts], pa.float64()
                ),
            }
        )
    out["r"] = pa.table(
        {
            "k": pa.array([rng.choice(KEYS) for _ in range(5)], pa.string()),
            "w": pa.array([rng.choice([None, 1, 2, 3]) for _ in range(5)], pa.int64()),
        }
    )
    return out


def _condition(rng: random.Random, a: str) -> str:
    return rng.choice(
        [
            f"{a}.n > {rng.randrange(-3, 5)}",
            f"{a}.n BETWEEN {rng.randrange(-3, 2)} AND {rng.randrange(0, 6)}",
            f"{a}.k = 'tea'",
            f"{a}.k IN ('cup', 'jar', '')",
            f"{a}.k IS NOT NULL",
            f"{a}.k LIKE '%a%'",
            f"({a}.v >= 0 OR {a}.n < 1)",
            f"NOT ({a}.n = 2 AND {a}.k <> 'jar')",
            f"{a}.n % 2 = 0",
            f"coalesce({a}.n, 1) * 2 < 5",
            f"{a}.k IS DISTINCT FROM 'tea'",
            f"({a}.k, {a}.n) IN (('tea', 1), ('cup', 2), ('jar', 3))",
            f"({a}.n > 1) IS NOT TRUE",
            f"length({a}.k) = 3",
        ]
    )


def _value(rng: random.Random, a: str) -> str:
    return rng.choice(
        [
            f"{a}.n", f"{a}.v", f"{a}.k", f"{a}.id", f"{a}.n + 1", f"{a}.v * 2", f"upper({a}.k)", f"abs({a}.n)",
            f"coalesce({a}.k, 'none')", f"{a}.n * {a}.n - 1", f"{a}.n > 1", f"concat({a}.k, '-', {a}.n)", f"{a}.n // 2",
            f"list_sum([{a}.n, 2, {a}.id])", f"list_contains([{a}.n, 1, NULL], 2)", f"[{a}.k, 'x'][-1]",
            f"array_to_string(list_sort([{a}.k, 'm', {a}.k]), '-')", f"len(string_split({a}.k, 'a'))",
            f"list_max([{a}.v, 1.5])", f"list_position([3, {a}.n][1:2], {a}.n)", f"len(list_distinct([{a}.n, 1, 2]))",
            f"{a}.k || {a}.n", f"strftime(make_timestamp({a}.id * 100000000), '%H:%M')", f"isnan({a}.v)",
        ]
    )  # fmt: skip


def _aggregate(rng: random.Random, a: str, running: bool) -> str:
    def asked(kind: Kind, of: str) -> str:
        return f"{kind.sql}({of}, {rng.choice([0.0, 0.25, 0.9, 1.0])})" if kind.argument else f"{kind.sql}({of})"

    kinds = [kind for kind in CATALOGUE.values() if kind.sql is not None and not kind.is_collected]
    kept = [kind for kind in kinds if kind.name in RUNNING]
    some = [f"coalesce(count_if({a}.n > 1), 0)", f"bool_and({a}.n > 0)", f"bool_or({a}.k = 'tea')"]
    some += ["count(*)", f"sum({a}.n * 2)", f"min({a}.k)", f"max({a}.v)", *(asked(kind, f"{a}.n") for kind in kept)]
    some += [
        f"list({a}.n ORDER BY {a}.id)", f"list({a}.v ORDER BY {a}.n DESC, {a}.id)",
        f"array_agg(DISTINCT {a}.k ORDER BY {a}.k)",
        f"list({a}.k ORDER BY {a}.id) FILTER (WHERE {a}.n > 0)", f"string_agg({a}.k, '-' ORDER BY {a}.id)",
        f"string_agg({a}.n, ',' ORDER BY {a}.n NULLS FIRST)", f"first({a}.k ORDER BY {a}.id DESC)",
        f"last({a}.v ORDER BY {a}.n NULLS FIRST, {a}.id)", f"arg_max({a}.n, {a}.id)", f"arg_min({a}.k, {a}.id)",
        f"max_by({a}.v, {a}.id)",
    ]  # fmt: skip
    whole = [f"count(DISTINCT {a}.k)", *(asked(kind, f"DISTINCT {a}.n") for kind in kinds)]
    whole += [asked(kind, f"{a}.n") for kind in kinds if kind not in kept]
    return rng.choice(some if running else [*some, *whole])


def query(rng: random.Random, *, running: bool) -> RandomQuery:
    """A random query.  running: only what can be kept up to date."""
    kinds = [
        _rows,
        _rows,
        _join,
        _join,
        _group,
        _group,
        _distinct,
        _set,
        _outer,
        _outer,
        _nested,
        _nested,
        _marked,
        _sets,
        _with,
        _over,
        _over,
        _top,
        _distinct_on,
        _looked_up,
        _above_groups,
        _values,
        _windowed,
        _windowed,
        _streamed,
        _unnested,
        _unnested,
    ]
    made = rng.choice(kinds)(rng, running)
    if made.forms:
        return made
    if rng.random() < 0.75:
        made.whole = rng.choice([0, 1, 3, 10, 30, 1000]) or 1
    if rng.random() < 0.3:
        alias = rng.choice([a for t, a in made.inputs if t != "r"])
        made.own[alias] = rng.choice([2, 7, 25])
        if len(made.inputs) == 1 and not made.where and rng.random() < 0.5:
            made.own[alias] = ("rows", rng.choice([1, 3, 10]))
    elif rng.random() < 0.25:
        made.own[rng.choice([a for t, a in made.inputs if t != "r"])] = rng.choice(
            [("parts", 1), ("parts", 3), ("now", 0), ("slide", 10, 5), ("slide", 5, 5), ("slide", 2, 7)]
        )
        made.kind = "state"
    if all(alias in made.own for table, alias in made.inputs if table != "r"):
        made.whole = None
    return made


def _where(rng: random.Random, aliases: list[str]) -> list[str]:
    return [_condition(rng, rng.choice(aliases)) for _ in range(rng.choice([0, 0, 1, 1, 2]))]


def _columns(values: list[str]) -> str:
    return ", ".join(f"{value} AS c{at}" for at, value in enumerate(values))


def _rows(rng: random.Random, running: bool) -> RandomQuery:  # noqa: ARG001
    values = _columns([_value(rng, "a") for _ in range(rng.randrange(1, 4))])
    return RandomQuery(f"SELECT {values} FROM {{0}}{{where}}", [("s1", "a")], "rows", where=_where(rng, ["a"]))


def _join(rng: random.Random, running: bool) -> RandomQuery:  # noqa: ARG001
    count = rng.choice([2, 2, 2, 3])
    inputs = [(rng.choice(["s1", "s2", "s3"]), alias) for alias in "abc"[:count]]
    if rng.random() < 0.2:
        inputs[-1] = ("r", inputs[-1][1])
    aliases = [alias for _, alias in inputs]
    streams = [alias for table, alias in inputs if table != "r"]
    key = rng.choice(["k", "k", "n"]) if "r" not in [table for table, _ in inputs] else "k"
    equal = [f"{aliases[0]}.{key} = {other}.{key}" for other in aliases[1:]]
    if rng.random() < 0.15 and count == 2 and len(streams) == 2:
        equal = ["a.n < b.n"]
    elif rng.random() < 0.2 and len(streams) > 1:
        equal.append(f"{streams[0]}.n <= {streams[1]}.n + 1")
    values = [_value(rng, rng.choice(streams)) for _ in range(rng.randrange(1, 4))]
    values += [f"{alias}.id" for alias in streams]
    if len(streams) < count and rng.random() < 0.5:
        values.append(f"{aliases[-1]}.w")
    names = ", ".join(f"{{{at}}}" for at in range(count))
    where = [*equal, *(_where(rng, streams) if rng.random() < 0.5 else [])]
    return RandomQuery(f"SELECT {_columns(values)} FROM {names}{{where}}", inputs, "join", where=where)


def _group(rng: random.Random, running: bool) -> RandomQuery:
    keys = rng.choice([["a.k"], ["a.k"], ["a.n"], ["a.v"], ["a.k", "a.n"], []])
    aggregates = [_aggregate(rng, "a", running) for _ in range(rng.randrange(1, 4))]
    having = rng.choice(["", "", f" HAVING count(*) > {rng.randrange(0, 3)}"])
    by = f" GROUP BY {', '.join(keys)}" if keys else ""
    if rng.random() < 0.25:
        made = _join(rng, running)
        if "a" in [alias for table, alias in made.inputs if table != "r"]:
            names = ", ".join(f"{{{at}}}" for at in range(len(made.inputs)))
            made.template = f"SELECT {_columns([*keys, *aggregates])} FROM {names}{{where}}"
            made.kind, made.tail = "state", by + having
            return made
    text = f"SELECT {_columns([*keys, *aggregates])} FROM {{0}}{{where}}"
    return RandomQuery(text, [("s1", "a")], "state", where=_where(rng, ["a"]), tail=by + having)


def _list(rng: random.Random, a: str) -> str:
    """A list of whole numbers."""
    return rng.choice(
        [
            f"[{a}.n, {a}.n + 1]", f"[{a}.n, NULL, 2, {a}.n]", f"list_sort([{a}.n, 1])", f"[{a}.id % 3, 2][{a}.n:]",
            f"list_concat([{a}.n], CASE WHEN {a}.n > 1 THEN [7, 8] END)",
            f"CASE WHEN {a}.n > 0 THEN [{a}.n] ELSE [] END",
            f"list_append(list_reverse([1, {a}.n]), 4)", "[1, 2]", f"list_sort(list_distinct([{a}.n, 0, {a}.n]))[1:1]",
        ]
    )  # fmt: skip


def _unnested(rng: random.Random, running: bool) -> RandomQuery:
    """Lists as rows, in SELECT and in FROM."""
    how = rng.randrange(6)
    if how == 0:
        values = f"a.id AS c0, unnest({_list(rng, 'a')}) AS c1, unnest({_list(rng, 'a')}) * 2 AS c2"
        return RandomQuery(f"SELECT {values} FROM {{0}}{{where}}", [("s1", "a")], "rows", where=_where(rng, ["a"]))
    if how == 1:
        inputs = [("s1", "a"), (rng.choice(["s1", "s2"]), "b")]
        text = f"SELECT a.id AS c0, b.id AS c1, u.x AS c2 FROM {{0}}, unnest({_list(rng, 'a')}) AS u(x), {{1}}{{where}}"
        where = [rng.choice(["a.k = b.k", "a.n = b.n AND a.k = b.k", "a.k = b.k AND u.x = b.n"]), *_where(rng, ["b"])]
        return RandomQuery(text, inputs, "state", where=where)
    source = f"{{0}}, unnest({_list(rng, 'a')}) AS u(x){{where}}"
    where = [*_where(rng, ["a"]), *rng.choice([[], ["u.x > 1"], ["u.x = a.n"], ["u.x IS NULL"]])]
    if how == 2:
        source = f"{{0}} LEFT JOIN unnest({_list(rng, 'a')}) AS u(x) ON TRUE{{where}}"
    if how == 3:
        text = "SELECT a.id AS c0, w.word AS c1 FROM {0}, unnest(string_split(a.k, 'a')) AS w(word){where}"
        return RandomQuery(text, [("s1", "a")], "rows", where=_where(rng, ["a"]))
    if how == 4:
        more = _aggregate(rng, "a", running)
        text = f"SELECT u.x AS c0, count(*) AS c1, {more} AS c2 FROM {source} GROUP BY u.x"
        return RandomQuery(text, [("s1", "a")], "state", where=where)
    text = f"SELECT {_value(rng, 'a')} AS c0, a.id AS c1, u.x AS c2 FROM {source}"
    return RandomQuery(text, [("s1", "a")], "rows", where=where)


def _distinct(rng: random.Random, running: bool) -> RandomQuery:
    made = _rows(rng, running) if rng.random() < 0.7 else _join(rng, running)
    made.template = made.template.replace("SELECT", "SELECT DISTINCT", 1)
    made.kind = "state"
    return made


def _set(rng: random.Random, running: bool) -> RandomQuery:  # noqa: ARG001
    values = rng.choice([["k"], ["n"], ["v"], ["k", "n"]])
    word = rng.choice(["UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"])
    left, right = (", ".join(f"{alias}.{value} AS {value}" for value in values) for alias in "ab")
    first = f" WHERE {_condition(rng, 'a')}" if rng.random() < 0.5 else ""
    second = f" WHERE {_condition(rng, 'b')}" if rng.random() < 0.3 else ""
    text = f"SELECT {left} FROM {{0}}{first} {word} SELECT {right} FROM {{1}}{second}"
    return RandomQuery(text, [("s1", "a"), (rng.choice(["s2", "s1"]), "b")], "state")


def _outer(rng: random.Random, running: bool) -> RandomQuery:
    kind = rng.choice(["LEFT", "RIGHT", "FULL", "SEMI", "ANTI"])
    second = rng.choice(["s2", "s2", "s1", "r"])
    key = "k" if second == "r" else rng.choice(["k", "n"])
    on = rng.choice([[f"a.{key} = b.{key}"], [f"a.{key} = b.{key}"], ["a.n < b.n"] if second != "r" else ["a.k < b.k"]])
    more = [_condition(rng, "a"), "a.n <= b.n", "b.n > 1"] if second != "r" else [_condition(rng, "a"), "b.w > 1"]
    if kind != "FULL":  # of which DuckDB knows equalities alone
        on = [*on, *(each for each in more if rng.random() < 0.3)]
    elif on[0] in ("a.n < b.n", "a.k < b.k"):
        on = [f"a.{key} = b.{key}"]
    own = ["b.k"] if second == "r" else ["b.n", "b.id", "b.k"]
    shown = ["a.id", "a.k"] if kind in ("SEMI", "ANTI") else ["a.id", rng.choice(own), _value(rng, "a")]
    inputs, text = [("s1", "a"), (second, "b")], f"{{0}} {kind} JOIN {{1}} ON {' AND '.join(on)}"
    if rng.random() < 0.3:
        inputs.append(("s3", "c"))
        left = rng.choice(["JOIN", "LEFT JOIN", "ANTI JOIN", "RIGHT JOIN"])
        text += f" {left} {{2}} ON c.k = a.k"
    where = [_condition(rng, "a")] if rng.random() < 0.4 else []
    if second != "r" and len(inputs) == 2 and kind in ("LEFT", "RIGHT", "FULL") and rng.random() < 0.25:
        using = rng.choice(["k", "n", "k, n"])
        text = f"SELECT {using}, a.id AS c0, b.id AS c1 FROM {{0}} {kind} JOIN {{1}} USING ({using}){{where}}"
        return RandomQuery(text, inputs, "state", where=where)
    if kind not in ("SEMI", "ANTI") and rng.random() < 0.3:
        where.append(f"{own[0]} IS NULL")
    if rng.random() < 0.3:
        told = _columns([_aggregate(rng, "a", running) for _ in range(2)])
        text = f"SELECT a.k AS g, {told} FROM {text}{{where}}"
        return RandomQuery(text, inputs, "state", where=where, tail=" GROUP BY a.k")
    return RandomQuery(f"SELECT {_columns(shown)} FROM {text}{{where}}", inputs, "state", where=where)


def _nested(rng: random.Random, running: bool) -> RandomQuery:  # noqa: ARG001
    inside = f" AND {_condition(rng, 'b')}" if rng.random() < 0.5 else ""
    same = rng.choice(["b.k = a.k", "b.n = a.n", "b.k = a.k AND b.n > a.n"])
    value = rng.choice(["max(b.n)", "count(*)", "sum(b.n) + 1", "avg(b.n)", "count(b.v) * 2"])
    alone = f" WHERE {_condition(rng, 'b')}" if rng.random() < 0.5 else ""
    told = "a.id AS c0"
    condition = rng.choice(
        [
            f"EXISTS (SELECT 1 FROM {{1}} WHERE {same}{inside})",
            f"NOT EXISTS (SELECT b.n FROM {{1}} WHERE {same}{inside})",
            f"a.k IN (SELECT b.k FROM {{1}}{alone})",
            f"a.n NOT IN (SELECT b.n FROM {{1}}{alone})",
            f"a.n IN (SELECT b.n FROM {{1}} WHERE b.k = a.k{inside})",
            f"a.n NOT IN (SELECT b.n FROM {{1}} WHERE b.k = a.k{inside})",
            f"a.n + 1 IN (SELECT b.n * 2 FROM {{1}}{alone})",
            "a.k NOT IN (SELECT b.k FROM {1} GROUP BY b.k HAVING count(*) > 2)",
            f"a.n < (SELECT {value} FROM {{1}}{alone})",
            f"a.n <= (SELECT {value} FROM {{1}} WHERE b.k = a.k{inside})",
        ]
    )
    if rng.random() < 0.3:
        told, condition = f"a.id AS c0, (SELECT {value} FROM {{1}} WHERE b.k = a.k{inside}) AS c1", "a.n IS NOT NULL"
    elif rng.random() < 0.15:
        told = "a.k AS c0, count(*) AS c1"
        tail = f" GROUP BY a.k HAVING count(*) > (SELECT {value} FROM {{1}})"
        text = f"SELECT {told} FROM {{0}}{{where}}{tail}"
        return RandomQuery(text, [("s1", "a"), ("s2", "b")], "state", where=_where(rng, ["a"]))
    where = [condition, *_where(rng, ["a"])]
    return RandomQuery(f"SELECT {told} FROM {{0}}{{where}}", [("s1", "a"), ("s2", "b")], "state", where=where)


def _looked_up(rng: random.Random, running: bool) -> RandomQuery:  # noqa: ARG001
    """The one value that a query has for each row, or null."""
    inside = f" AND {_condition(rng, 'b')}" if rng.random() < 0.5 else ""
    value = rng.choice(["b.k", "b.n", "b.n + 1", "b.k || '!'", "coalesce(b.n, 7)"])
    asked = f"(SELECT {value} FROM {{1}} WHERE b.id = a.id{inside})"
    told, where = f"a.id AS c0, {asked} AS c1", _where(rng, ["a"])
    if rng.random() < 0.3 and "n" in value[:3]:
        told, where = "a.id AS c0", [*where, f"a.n <= {asked}"]
    return RandomQuery(f"SELECT {told} FROM {{0}}{{where}}", [("s1", "a"), ("s2", "b")], "state", where=where)


def _above_groups(rng: random.Random, running: bool) -> RandomQuery:
    """Queries in HAVING and in SELECT of groups."""
    inside = f" AND {_condition(rng, 'b')}" if rng.random() < 0.5 else ""
    value = rng.choice(["max(b.n)", "count(*)", "sum(b.n) + 1", "count(b.v) * 2"])
    total = rng.choice(["count(*)", "max(a.n)", "min(a.n) + 1"])
    asked = rng.choice(
        [
            f"EXISTS (SELECT 1 FROM {{1}} WHERE b.k = a.k{inside})",
            f"a.k IN (SELECT b.k FROM {{1}}{inside.replace(' AND', ' WHERE', 1)})",
            f"a.k NOT IN (SELECT b.k FROM {{1}}{inside.replace(' AND', ' WHERE', 1)})",
            f"{total} IN (SELECT b.n FROM {{1}} WHERE b.k = a.k{inside})",
            f"{total} {rng.choice(['<', '>='])} {rng.choice(['ANY', 'ALL'])} (SELECT b.n FROM {{1}})",
            f"{total} <= (SELECT {value} FROM {{1}} WHERE b.k = a.k{inside})",
            f"{total} > (SELECT {value} FROM {{1}})",
        ]
    )
    told = f"a.k, {_aggregate(rng, 'a', running)} AS c0"
    tail = " GROUP BY a.k"
    if rng.random() < 0.4:
        told += f", {asked} AS c1"
    elif rng.random() < 0.3:
        told += f", (SELECT {value} FROM {{1}} WHERE b.k = a.k{inside}) AS c1"
    else:
        tail += f" HAVING {rng.choice(['', 'NOT '])}({asked}{rng.choice(['', ' OR count(*) > 3'])})"
    where = _where(rng, ["a"])
    text = f"SELECT {told} FROM {{0}}{{where}}{tail}"
    return RandomQuery(text, [("s1", "a"), ("s2", "b")], "state", where=where)


def _marked(rng: random.Random, running: bool) -> RandomQuery:  # noqa: ARG001
    """Queries with ANY and ALL, and those whose truth is one value among others."""
    operator = rng.choice(["=", "<>", "<", "<=", ">", ">="])
    alone = rng.choice(
        [f" WHERE {_condition(rng, 'b')}", "", " WHERE b.k = a.k", f" WHERE b.n > a.n AND {_condition(rng, 'b')}"]
    )
    negated = rng.choice(["", "NOT "])
    asked = rng.choice(
        [
            f"EXISTS (SELECT 1 FROM {{1}}{alone})",
            f"a.n IN (SELECT b.n FROM {{1}}{alone})",
            f"a.n NOT IN (SELECT b.n FROM {{1}}{alone})",
            f"a.n {operator} {rng.choice(['ANY', 'SOME', 'ALL'])} (SELECT b.n FROM {{1}}{alone})",
            f"a.n + 1 {operator} {rng.choice(['ANY', 'ALL'])} (SELECT b.n FROM {{1}}{alone})",
        ]
    )
    inputs = [("s1", "a"), (rng.choice(["s2", "s1"]), "b")]
    if "a." in alone and ("ALL" in asked or "NOT IN" in asked or negated) and "EXISTS" not in asked:
        inputs = [("s1", "a"), ("s2", "b")]
    where = _where(rng, ["a"])
    if rng.random() < 0.3:
        told = f"a.id AS c0, {negated}{asked} AS c1"
    elif rng.random() < 0.3:
        told, where = "a.id AS c0", [*where, f"{negated}({asked})"]
    else:
        told, where = "a.id AS c0", [*where, f"({_condition(rng, 'a')} OR {negated}{asked})"]
    return RandomQuery(f"SELECT {told} FROM {{0}}{{where}}", inputs, "state", where=where)


def _sets(rng: random.Random, running: bool) -> RandomQuery:
    """GROUPING SETS, ROLLUP and CUBE."""
    keys = rng.choice(["CUBE (a.k, a.n)", "ROLLUP (a.k, a.n)", "a.k, ROLLUP (a.n, a.v)",
                       "GROUPING SETS ((a.k, a.n), a.n, ())", "GROUPING SETS (a.k, a.n), GROUPING SETS (a.n, ())",
                       "ROLLUP ((a.k, a.n))",
                       "GROUPING SETS (CUBE (a.k, a.n), a.n)"])  # fmt: skip
    told = [
        "a.k",
        "a.n",
        "a.n + 1",
        "coalesce(a.k, 'all')",
        "grouping(a.k, a.n)",
        _aggregate(rng, "a", running),
        "count(*)",
    ]
    shown = _columns(rng.sample(told, rng.randrange(2, 6)))
    having = rng.choice(["", "", " HAVING count(*) > 1", " HAVING grouping(a.n) = 0 OR a.k = 'tea'"])
    if rng.random() < 0.3:
        text = f"SELECT {shown} FROM {{0}} JOIN {{1}} ON a.k = b.k{{where}}"
        return RandomQuery(
            text, [("s1", "a"), ("s2", "b")], "state", where=_where(rng, ["a"]), tail=f" GROUP BY {keys}{having}"
        )
    text = f"SELECT {shown} FROM {{0}}{{where}}"
    return RandomQuery(text, [("s1", "a")], "state", where=_where(rng, ["a"]), tail=f" GROUP BY {keys}{having}")


def _over(rng: random.Random, running: bool) -> RandomQuery:  # noqa: ARG001
    def call() -> str:
        by = rng.choice(["", "PARTITION BY a.k ", "PARTITION BY a.k, a.n > 1 "])
        order = f"ORDER BY a.n{rng.choice(['', ' DESC', ' NULLS FIRST'])}, a.id"
        low = rng.choice(["UNBOUNDED PRECEDING", "2 PRECEDING", "CURRENT ROW", "1 FOLLOWING"])
        high = rng.choice(["UNBOUNDED FOLLOWING", "3 FOLLOWING", "1 FOLLOWING"])
        frame = rng.choice(["", "", f" ROWS BETWEEN {low} AND {high}", " ROWS 2 PRECEDING"])
        if rng.random() < 0.15:
            order, frame = "ORDER BY a.n", f" GROUPS BETWEEN {low} AND {high}"
            told = rng.choice(["sum(a.n)", "count(*)", "max(a.k)", "count(a.v)"])
            return f"{told} OVER ({by}{order}{frame})"
        if rng.random() < 0.15:
            told = rng.choice(["last_value(a.v IGNORE NULLS)", "first_value(a.k IGNORE NULLS)", "lag(a.n IGNORE NULLS)",
                               "lead(a.k, 2 IGNORE NULLS)", "nth_value(a.n, 2 IGNORE NULLS)"])  # fmt: skip
            return f"{told} OVER ({by}{order}{'' if told[:4] in ('lag(', 'lead') else frame})"
        if rng.random() < 0.15:
            span = rng.choice(
                ["4 PRECEDING AND 1 FOLLOWING", "CURRENT ROW AND 5 FOLLOWING", "2 PRECEDING AND 1 PRECEDING"]
            )
            return f"{rng.choice(['sum(a.n)', 'count(*)', 'max(a.k)'])} OVER ({by}ORDER BY a.n RANGE BETWEEN {span})"
        placed = rng.choice(
            ["row_number()", "rank()", "dense_rank()", "percent_rank()", "cume_dist()", "ntile(3)", "lag(a.n)",
             "lead(a.k, 2, 'none')", "lag(a.id, 1, -1)"]
        )  # fmt: skip
        peers = rng.choice([order, "ORDER BY a.k"]) if "rank" in placed or "cume" in placed else order
        if rng.random() < 0.4:
            return f"{placed} OVER ({by}{peers})"
        valued = ["first_value(a.k)", "last_value(a.n)", "nth_value(a.v, 2)", "count(*)", "count(a.k)", "sum(a.n)",
                  "avg(a.n)", "min(a.k)", "max(a.v)", "sum(a.n * 0.5)", "median(a.n)", "stddev(a.n)",
                  "sum(a.n) FILTER (WHERE a.k = 'tea')"]  # fmt: skip
        return f"{rng.choice(valued)} OVER ({by}{order}{frame})"

    told = ["a.id", *(call() for _ in range(rng.randrange(1, 3)))]
    tail = " QUALIFY row_number() OVER (PARTITION BY a.k ORDER BY a.id DESC) <= 2" if rng.random() < 0.3 else ""
    if rng.random() < 0.2:
        told, tail = (
            ["a.k", "count(*)", "rank() OVER (ORDER BY count(*) DESC)", "sum(count(*)) OVER ()"],
            " GROUP BY a.k",
        )
    text = f"SELECT {_columns(told)} FROM {{0}}{{where}}"
    return RandomQuery(text, [("s1", "a")], "state", where=_where(rng, ["a"]), tail=tail)


def _top(rng: random.Random, running: bool) -> RandomQuery:
    """The first in an order that no two rows share."""
    many, past = rng.choice([1, 3, 10]), rng.choice(["", "", " OFFSET 2"])
    if rng.random() < 0.4:
        told = f"a.k, {_aggregate(rng, 'a', running)} AS c1"
        text = f"SELECT {told} FROM {{0}}{{where}} GROUP BY a.k ORDER BY a.k DESC NULLS LAST LIMIT {many}{past}"
        return RandomQuery(text, [("s1", "a")], "state", where=_where(rng, ["a"]))
    order = rng.choice(["a.n DESC, a.id", "a.k, a.id DESC", "a.id DESC"])
    rows = f"SELECT a.id, a.k, a.n FROM {{0}}{{where}} ORDER BY {order} LIMIT {many}{past}"
    if rng.random() < 0.5:
        rows = f"SELECT t.k, count(*) AS often FROM ({rows}) t GROUP BY t.k"
    return RandomQuery(rows, [("s1", "a")], "state", where=_where(rng, ["a"]))


def _distinct_on(rng: random.Random, running: bool) -> RandomQuery:  # noqa: ARG001
    """The first row of each key."""
    keys = rng.choice(["a.k", "a.k, a.n > 1", "a.n"])
    order = rng.choice(["a.n DESC, a.id", "a.id DESC", "a.v NULLS FIRST, a.id"])
    text = f"SELECT DISTINCT ON ({keys}) a.id, a.k, a.n + 1 AS more FROM {{0}}{{where}}"
    if rng.random() < 0.4:
        text = f"SELECT t.k, count(*) AS often FROM ({text} ORDER BY {order}) t GROUP BY t.k"
        return RandomQuery(text, [("s1", "a")], "state", where=_where(rng, ["a"]))
    text = f"SELECT * FROM ({text} ORDER BY {order}) t"
    return RandomQuery(text, [("s1", "a")], "state", where=_where(rng, ["a"]))


def _values(rng: random.Random, running: bool) -> RandomQuery:
    """Beside rows that the statement writes down."""
    listed = rng.choice(
        [
            "(VALUES ('tea', 1), ('cup', 2), ('cup', 3), (NULL, 4)) AS w(k, m)",
            "(SELECT 'tea' AS k, 7 AS m) AS w",
            "(SELECT CAST(NULL AS VARCHAR) AS k, m FROM generate_series(1, 3) AS g(m)) AS w",
        ]
    )
    kind = rng.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"])
    told = "a.id, a.k" if kind.startswith(("SEMI", "ANTI")) else "a.id, w.m"
    text = f"SELECT {told} FROM {{0}} {kind} {listed} ON w.k = a.k{{where}}"
    if rng.random() < 0.3 and not kind.startswith(("SEMI", "ANTI")):
        text = f"SELECT w.m, {_aggregate(rng, 'a', running)} AS c0 FROM {{0}} {kind} {listed} ON w.k = a.k{{where}}"
        return RandomQuery(text, [("s1", "a")], "state", where=_where(rng, ["a"]), tail=" GROUP BY w.m")
    return RandomQuery(text, [("s1", "a")], "state", where=_where(rng, ["a"]))


def _windowed(rng: random.Random, running: bool) -> RandomQuery:
    """Rows in windows of fixed bounds, and in sessions."""
    form = rng.choice([("hop", 5, 10), ("hop", 3, 7), ("hop", 4, 4), ("session", 3), ("session", 6), ("session", 30)])
    bounds = rng.choice(["a.window_start", "a.window_end", "a.window_start, a.window_end"])
    if rng.random() < 0.3:
        text, tail = f"SELECT a.id, {bounds}, {_value(rng, 'a')} AS c0 FROM {{0}}{{where}}", ""
    else:
        keys = bounds if form[0] == "hop" and rng.random() < 0.5 else f"a.k, {bounds}"
        text = f"SELECT {keys}, {_aggregate(rng, 'a', running)} AS c0, count(*) AS c1 FROM {{0}}{{where}}"
        tail = f" GROUP BY {keys}"
    made = RandomQuery(text, [("s1", "a")], "state", where=_where(rng, ["a"]), tail=tail, forms={"a": form})
    made.whole = rng.choice([3, 10, 30, 1000])
    return made


def _streamed(rng: random.Random, running: bool) -> RandomQuery:
    """Over streams of what comes into a window and of what leaves it."""
    made = rng.choice([_group, _over, _distinct, _top, _marked])(rng, True)
    if any(table not in ("s1", "s2") for table, _ in made.inputs):
        return _rows(rng, running)
    alias = made.inputs[0][1]
    made.forms = {alias: (rng.choice(["istream", "dstream"]), rng.choice([2, 6]), rng.choice([1, 4, 15]))}
    made.kind, made.whole = "state", rng.choice([5, 20]) if len(made.inputs) > 1 else None
    return made


def _with(rng: random.Random, running: bool) -> RandomQuery:
    inner = rng.choice([_rows, _group, _distinct, _outer])(rng, running)
    while inner.template.startswith(("SELECT list(", "SELECT array_agg(")):  # which is no key
        inner = _group(rng, running)
    first = inner.template.format(*(f"{{{at}}}" for at in range(len(inner.inputs))), where=(
        " WHERE " + " AND ".join(inner.where) if inner.where else ""))  # fmt: skip
    names = "x" if "c1" not in first else "x, y"
    text = f"WITH q({names}) AS ({first}{inner.tail}) SELECT p.x, count(*) AS often FROM q p GROUP BY p.x"
    return RandomQuery(text.replace("{where}", ""), inner.inputs, "state")


def cell(value: Any) -> Any:
    """A value as both engines' answers are compared: floats to 9 digits, NaN as text, -0.0 as 0."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value:.9g}") + 0.0
    if isinstance(value, list):
        return tuple(map(cell, value))
    return value
