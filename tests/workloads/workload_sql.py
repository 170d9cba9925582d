"""Random statements over the catalog that SQL tests share, most of them valid, and mutations of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

__all__ = ["mutated", "random_query", "random_statement"]

NUMBERS = {
    "store1": ("price", "quantity", "seq", "store_id", "customer_id"),
    "store2": ("price", "quantity", "seq", "store_id", "customer_id"),
    "sensors": ("at", "sensor_id", "temperature"),
    "items": ("weight",),
    "rooms": ("floor",),
}
TEXTS = {
    "store1": ("item_id",),
    "store2": ("item_id",),
    "sensors": ("room",),
    "items": ("item_id", "category"),
    "rooms": ("room",),
}
STREAMS = ("store1", "store2", "sensors")
ALIASES = ("a", "b", "S1", "t", '"odd name"', "x1")
DURATIONS = ("3600", "'1 hour'", "90 SECONDS", "INTERVAL '5 minutes'", "0.5", "2 h 30 min")

Sources = Sequence[tuple[str, str]]
"""(alias, stream)."""


def random_statement(chance: random.Random) -> str:
    """Any statement."""
    kind = chance.random()
    if kind < 0.85:
        return random_query(chance)
    if kind < 0.9:
        return f"EXPLAIN {chance.choice(['', 'ANALYZE '])}{random_query(chance)}"
    replace = chance.choice(["", "OR REPLACE "])
    return chance.choice(
        [
            f"CREATE {replace}STREAM s FROM 'data/*.csv' TIMESTAMP BY ts LATENESS {chance.choice(DURATIONS)}",
            f"CREATE {replace}STREAM s FROM object WHERE price > 2 AND item_id LIKE 'a%'",
            f"CREATE {replace}RELATION r FROM 'items.parquet' WHERE weight IN (1, 2.5)",
            f"CREATE {replace}SUMMARY s ON store1 (item_id) WITH GRANULARITY {chance.choice(DURATIONS)} "
            "AND COLLAPSE (4, 3) USING buckets = 8, structure = 'T3', forgetting = true",
            "SHOW STREAMS",
            "DESCRIBE store1",
            "DROP SUMMARY IF EXISTS s9",
        ]
    )


def random_query(chance: random.Random) -> str:
    """A SELECT or a set operation, with Nile's clauses."""
    if chance.random() < 0.12:
        word = chance.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "EXCEPT ALL"])
        sides = [_select(chance, _sources(chance)[:2], 1, plain=True) for _ in range(2)]
        window = (
            f" WINDOW {chance.choice(DURATIONS)}" if all("store" in side or "sensors" in side for side in sides) else ""
        )
        return f"{sides[0]} {word} {sides[1]}{window}"
    sources = _sources(chance)
    return _select(chance, sources, chance.randint(1, 3)) + _clauses(chance, sources)


def _sources(chance: random.Random) -> list[tuple[str, str]]:
    count = chance.choice([1, 1, 1, 2, 2, 3])
    names = [chance.choice(STREAMS)] + [chance.choice(tuple(NUMBERS)) for _ in range(count - 1)]
    return list(zip(chance.sample(ALIASES, count), names, strict=True))


def _select(chance: random.Random, sources: Sources, count: int, *, plain: bool = False) -> str:
    grouped = chance.random() < 0.3
    keys = [_column(chance, sources, chance.choice(["number", "text"])) for _ in range(chance.choice([0, 1, 2]))]
    items = []
    for at in range(count):
        if plain:
            item = _number(chance, sources, 1)
        elif grouped:
            item = chance.choice([*keys, _aggregate(chance, sources)])
        else:
            item = _value(chance, sources)
        items.append(f"{item} AS c{at}" if chance.random() < 0.4 else item)
    if not plain and not grouped and chance.random() < 0.1:
        items.append(chance.choice(["*", f"{sources[0][0]}.*"]))
    tables = []
    for alias, stream in sources:
        own = ""
        if stream in STREAMS and chance.random() < 0.1:
            inside = f"RANGE {chance.choice(DURATIONS)}" if chance.random() < 0.5 else f"ROWS {chance.randint(1, 9)}"
            own = f" [{inside}]"
        if chance.random() < 0.1:
            tables.append(f"(SELECT * FROM {stream}{own}) AS {alias}")
        else:
            tables.append(f"{stream} AS {alias}{own}")
    if not plain and chance.random() < 0.06:
        tables.append(f"unnest([{_number(chance, sources, 1)}, {_column(chance, sources[:1], 'number')}]) AS u(v)")
        items.append(chance.choice(["max(u.v)", "count(v)"]) if grouped else "u.v")
    elif not plain and not grouped and chance.random() < 0.04:
        items.append(f"unnest([{_number(chance, sources, 1)}, 2])")
    parts = [f"SELECT {chance.choice(['', '', 'DISTINCT ']) if not plain else ''}{', '.join(items)}"]
    parts.append(f"FROM {', '.join(tables)}")
    conditions = [_condition(chance, sources, 2) for _ in range(chance.choice([0, 1, 2]))]
    conditions += [
        f"{_column(chance, [sources[at]], 'text')} = {_column(chance, [sources[at + 1]], 'text')}"
        for at in range(len(sources) - 1)
    ]
    if conditions:
        parts.append(f"WHERE {' AND '.join(conditions)}")
    if grouped and not plain:
        if keys:
            parts.append(f"GROUP BY {', '.join(keys)}")
        if chance.random() < 0.3:
            parts.append(f"HAVING {_aggregate(chance, sources)} > {chance.randint(-2, 9)}")
    if not plain and "DISTINCT" not in parts[0] and chance.random() < 0.2:
        key = str(chance.randint(1, count)) if grouped or chance.random() < 0.5 else _value(chance, sources)
        parts.append(f"ORDER BY {key}{chance.choice(['', ' DESC', ' NULLS FIRST'])} LIMIT {chance.randint(0, 9)}")
    return " ".join(parts)


def _clauses(chance: random.Random, sources: Sources) -> str:
    clauses = []
    alias, stream = sources[0]
    if chance.random() < 0.4:
        clauses.append(f"WINDOW {chance.choice(['', '= '])}{chance.choice(DURATIONS)}")
    elif len(sources) == 2 and sources[1][1] in STREAMS and chance.random() < 0.5:
        word = chance.choice(["WINDOW", "DWINDOW"])
        clauses.append(f"{word} ({alias}, {sources[1][0]}) = {chance.choice(DURATIONS)}")
    if chance.random() < 0.3:
        term = f"{alias}.{TEXTS[stream][0]}"
        term = chance.choice([term, f"COUNT({term})", f"SUMMARY.Estimate.Count({term})"])
        clauses.append(f"WITH PREFERENCE {chance.choice(['asc', 'desc', 'weighted'])} {term}")
        if chance.random() < 0.5:
            clauses.append("FADE FACTOR 0.8")
        if chance.random() < 0.5:
            clauses.append(f"BUDGET {chance.choice(['0.1', '10 %', '1000 OUTPUTS', '2 SECONDS'])}")
    chance.shuffle(clauses)
    return "".join(f" {clause}" for clause in clauses)


def _column(chance: random.Random, sources: Sources, kind: str) -> str:
    alias, stream = chance.choice(list(sources))
    return f"{alias}.{chance.choice((NUMBERS if kind == 'number' else TEXTS)[stream])}"


def _value(chance: random.Random, sources: Sources) -> str:
    return chance.choice([_number(chance, sources, 2), _column(chance, sources, "text")])


def _number(chance: random.Random, sources: Sources, depth: int) -> str:
    how = chance.random()
    if depth == 0 or how < 0.4:
        return _column(chance, sources, "number")
    if how < 0.55:
        return chance.choice(["0", "1", "2.5", "-3", "1e3", "9223372036854775807"])
    inner = [_number(chance, sources, depth - 1) for _ in range(2)]
    return chance.choice(
        [
            f"({inner[0]} {chance.choice('+-*/%')} {inner[1]})",
            f"abs({inner[0]})",
            f"coalesce({inner[0]}, {inner[1]})",
            f"CAST({inner[0]} AS {chance.choice(['BIGINT', 'DOUBLE', 'SMALLINT'])})",
            f"length({_column(chance, sources, 'text')})",
            f"-{inner[0]}",
            f"list_{chance.choice(['sum', 'max', 'median', 'count'])}([{inner[0]}, {inner[1]}, NULL])",
            f"len(list_sort([{inner[0]}, {inner[1]}])[{chance.choice(['1:', ':-1', '2:2', '-2:'])}])",
            f"[{inner[0]}, {inner[1]}][{chance.choice(['1', '-1', '0', '7'])}]",
            f"{inner[0]} - {inner[1]} * 2",
            f"CASE WHEN {inner[0]} > 1 THEN {inner[1]} ELSE 2 END",
            f"CASE {inner[0]} WHEN 1 THEN {inner[1]} WHEN 2.5 THEN 0 END",
            f"round({inner[0]}, 2)",
            f"{chance.choice(['floor', 'ceil', 'sqrt', 'round'])}({inner[0]})",
            f"{chance.choice(['greatest', 'least', 'nullif'])}({inner[0]}, {inner[1]})",
            f"length(substring({_column(chance, sources, 'text')} || 'x', 2, 3))",
            "extract(hour FROM date_trunc('day', TIMESTAMP '2011-12-09 08:00:00'))",
        ]
    )


def _aggregate(chance: random.Random, sources: Sources) -> str:
    number = _number(chance, sources, 1)
    function = chance.choice(["sum", "avg", "min", "max", "count", "median", "stddev", "variance"])
    return chance.choice(
        [
            "count(*)",
            f"{function}({number})",
            f"count(DISTINCT {_column(chance, sources, 'text')})",
            f"quantile_cont({number}, 0.5)",
            f"sum({number}) / count(*)",
        ]
    )


def _condition(chance: random.Random, sources: Sources, depth: int) -> str:
    if depth and chance.random() < 0.35:
        sides = [_condition(chance, sources, depth - 1) for _ in range(2)]
        return chance.choice([f"({sides[0]} AND {sides[1]})", f"({sides[0]} OR {sides[1]})", f"NOT ({sides[0]})"])
    number, text = _number(chance, sources, 1), _column(chance, sources, "text")
    return chance.choice(
        [
            f"{number} {chance.choice(['=', '<>', '<', '<=', '>', '>='])} {_number(chance, sources, 1)}",
            f"{number} BETWEEN 1 AND {_number(chance, sources, 1)}",
            f"{number} {chance.choice(['', 'NOT '])}IN (1, 2.5, NULL)",
            f"{text} {chance.choice(['LIKE', 'ILIKE', 'NOT LIKE'])} {chance.choice(['%a%', 'a!_%'])!r} ESCAPE '!'",
            f"{text} IS {chance.choice(['', 'NOT '])}NULL",
            f"{text} = 'it''s'",
            "TRUE",
            f"list_contains([{number}, 1], {_number(chance, sources, 1)})",
            f"{text} IN string_split({text} || '/x', '/')",
        ]
    )


_PIECES = (
    *"()[],.;=<>+-*/%?$'\"`{}:|&@#!~^\\",
    *(
        "SELECT",
        "FROM",
        "WHERE",
        "WINDOW",
        "DWINDOW",
        "WITH",
        "PREFERENCE",
        "FADE",
        "FACTOR",
        "BUDGET",
        "ERROR",
        "GROUP",
    ),
    *("BY", "ORDER", "UNION", "ALL", "NOT", "AND", "OR", "NULL", "CASE", "WHEN", "END", "JOIN", "ON", "USING", "AS"),
    *("LIMIT", "DISTINCT", "HAVING", "RANGE", "ROWS", "EXISTS", "IN", "IS", "LIKE", "BETWEEN", "INTERVAL", "CAST"),
    *(
        "CREATE",
        "SUMMARY",
        "STREAM",
        "DROP",
        "SHOW",
        "EXPLAIN",
        "COLLAPSE",
        "LATERAL",
        "PIVOT",
        "OVER",
        "FILTER",
        "unnest",
        "VALUES",
    ),
    *("1", "0", "-1", "1e999", "99999999999999999999", "''", "'x'", '"x"', "store1", "price", "read_csv('x')"),
    *("--", "/*", "*/", "\n", "\t", "\0", "\ud800", "é", "×", "🤦", " ", "::", "||", "->", "$x", "$1", "\u2028"),
)


def mutated(chance: random.Random, text: str) -> str:
    """The text with some pieces dropped, doubled, swapped, put in or cut."""
    words = text.split(" ")
    for _ in range(chance.choice([1, 1, 2, 3, 5])):
        at = chance.randrange(len(words))
        other = chance.randrange(len(words))
        how = chance.randrange(6)
        if how == 0 and len(words) > 1:
            del words[at]
        elif how == 1:
            words.insert(at, words[other])
        elif how == 2:
            words[at], words[other] = words[other], words[at]
        elif how == 3:
            words.insert(at, chance.choice(_PIECES))
        elif how == 4 and words[at]:
            cut = chance.randrange(len(words[at]))
            words[at] = words[at][:cut] + chance.choice(_PIECES) + words[at][cut + chance.randrange(2) :]
        else:
            words[at] = chance.choice(_PIECES)
    return " ".join(words)
