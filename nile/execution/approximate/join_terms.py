"""What the windows and the preference of a statement ask of a join: one window or pairs of them, terms, worths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nile.execution.key_columns import one_key, shared_keys
from nile.expressions.conditions import Value
from nile.expressions.tree import Arithmetic, Column, Compare, Node, columns_of, conjuncts
from nile.operators.inputs.pair_conditions import own_tree
from nile.operators.inputs.pair_windows import PairWindows
from nile.sql.expression_text import expression_text
from nile.sql.plan import Join, Query, Stream
from nile.sql.windows import is_plain
from nile.summaries.errors import ConfigError, NotYet

__all__ = ["check_terms", "keys_of", "no_key", "value_of", "window_of", "windows_of", "worths_of"]


def value_of(name: str | None, node: Node) -> Value:
    """A tree as a Value, called `name` or as SQL writes it."""
    return Value(name or expression_text(node, str), columns_of(node), node)


def windows_of(join: Join) -> PairWindows | None:
    """The windows between pairs of streams; None where one is for all."""
    n = len(join.inputs)
    same = len({each.window for each in join.constraints}) == 1 and len(join.constraints) == n * (n - 1) // 2
    if not join.constraints or (same and not join.directed):
        return None
    given = join.constraints[: join.given] if join.given else join.constraints
    return PairWindows(n, tuple((each.left, each.right, each.window) for each in given), join.directed)


def window_of(join: Join, streams: tuple[Stream, ...]) -> int | None:
    """The one window of all streams."""
    if join.directed:
        raise NotYet("approximate join: DWINDOW has no operator yet; say WINDOW, or leave out the preference")
    given: set[Any] = {stream.window for stream in streams}
    if join.constraints:
        given = {each.window for each in join.constraints}
        if len(join.constraints) < len(streams) * (len(streams) - 1) // 2:
            given.add(None)
    if len(given) > 1 or not all(map(is_plain, given)):
        raise NotYet(
            "approximate join: needed one window of time for all its streams; got different ones; say WINDOW with one "
            "duration, or leave out the preference for the exact join"
        )
    only: int | None = given.pop()
    return only


def no_key(join: Join) -> NotYet:
    """What a join whose streams share no key came with, and what to do."""
    came, instead = "no equal columns", "leave out the preference for the exact join"
    if join.equal:
        came = "other pairs of equal columns"
    for node in () if join.condition is None else conjuncts(join.condition):
        if isinstance(node, Compare) and node.operator == "=":
            left, right = node.left, node.right
            if isinstance(left, Column) and isinstance(right, Column) and left.kind != right.kind:
                kind = {field.name: field.type for field in join.fields}
                types = f"{kind[left.name]} and {kind[right.name]}"
                came = f"{left.name} = {right.name}, of {types}, which compare converted"
                instead = f"register one stream with the type of the other's column, or {instead}"
    return NotYet(f"approximate join: needed one key that is equal in all streams; got {came}; {instead}")


def keys_of(query: Query, join: Join) -> tuple[list[tuple[str, ...]], list[tuple[str, str]]]:
    """The parts of a join's key that it goes by, and the pairs of columns that are left as conditions.

    All parts together; where the preference names some of them alone, the first of these.  Raises NotYet, ConfigError.
    """
    assert query.preference is not None
    named = frozenset(term.column for term in query.preference.terms)
    keys, rest = shared_keys(join, named)
    if not keys:
        raise no_key(join)
    asked = [key for key in keys if any(named & _class(join, name) for name in key)]
    if asked and len(asked) < len(keys):
        keys, rest = keys[:1], one_key(join, named)[1]
    check_terms(query, join, tuple(name for key in keys for name in key))
    return keys, rest


def check_terms(query: Query, join: Join, on: tuple[str, ...]) -> None:
    """A preference of a join looks at how often keys match, so its terms are over the key."""
    assert query.preference is not None
    for term in query.preference.terms:
        if term.column not in on and not any({term.column, key} <= _class(join, key) for key in on):
            raise ConfigError(
                f"WITH PREFERENCE: needed the join key ({', '.join(on)}), whose estimated count says how many matches "
                f"there are; got {term.column}; name the key"
            )


def worths_of(query: Query, aliases: Sequence[str]) -> tuple[Value | None, ...]:
    """Of each stream what its tuples are worth by the preference: the product of its terms' factors; (): nothing."""
    assert query.preference is not None
    worths: list[Node | None] = [None] * len(aliases)
    for term in query.preference.terms:
        factor = Column(term.column, "number") if term.by == "value" else term.factor
        if factor is None:
            continue
        (name, *_) = columns_of(factor)
        at = next(k for k, alias in enumerate(aliases) if name.startswith(f"{alias}."))
        own, held = own_tree(factor, aliases[at]), worths[at]
        worths[at] = own if held is None else Arithmetic("*", held, own)
    if not any(worths):
        return ()
    return tuple(None if node is None else value_of(None, node) for node in worths)


def _class(join: Join, key: str) -> set[str]:
    """All columns that must equal a key."""
    same = {key}
    while True:
        more = {name for pair in join.equal if same & set(pair) for name in pair}
        if more <= same:
            return same
        same |= more
