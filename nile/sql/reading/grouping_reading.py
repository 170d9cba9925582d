"""Reading GROUPING SETS, ROLLUP and CUBE: the groupings of a GROUP BY."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

from nile.expressions.places import Fault
from nile.expressions.taking import start_of
from nile.sql.parsed import Expression, GroupingSets
from nile.sql.reading.select_expressions import plain_only

__all__ = ["GROUPINGS", "read_sets"]

GROUPINGS = ("GroupingSets", "Rollup", "Cube", "Tuple")
"""What sqlglot calls them, and a list of keys in parentheses."""
MAX_SETS = 64
_MOST_IN_CUBE = 6

Read = Callable[[Any], Expression]
Sets = list[tuple[Expression, ...]]


def read_sets(node: Any, read: Read) -> GroupingSets:
    """The groupings of a GROUP BY: each of one part with each of the others.  Raises Fault."""
    sets: Sets = [()]
    for each in node.expressions:
        parts = _sets(each, read)
        if len(sets) * len(parts) > MAX_SETS:
            raise Fault(f"needed at most {MAX_SETS} groupings in GROUP BY; got more; leave some out", start_of(each))
        sets = [(*one, *other) for one in sets for other in parts]
    return GroupingSets(tuple(sets))


def _sets(node: Any, read: Read) -> Sets:
    name = type(node).__name__
    if name not in GROUPINGS or name == "Tuple":
        return [_keys(node, read)]
    plain_only(node, "expressions")
    if not node.expressions:
        raise Fault("needed columns in ROLLUP, CUBE or GROUPING SETS; got none", start_of(node))
    if name == "GroupingSets":
        return [one for each in node.expressions for one in _sets(each, read)]
    parts = [_keys(each, read) for each in node.expressions]
    if name == "Cube" and len(parts) > _MOST_IN_CUBE:
        raise Fault(
            f"needed at most {_MOST_IN_CUBE} columns in CUBE; got {len(parts)}; write GROUPING SETS", start_of(node)
        )
    if name == "Rollup":
        chosen = [parts[:count] for count in range(len(parts), -1, -1)]
    else:
        chosen = [list(some) for count in range(len(parts), -1, -1) for some in combinations(parts, count)]
    return [tuple(key for part in some for key in part) for some in chosen]


def _keys(node: Any, read: Read) -> tuple[Expression, ...]:
    if type(node).__name__ != "Tuple":
        return (read(node),)
    plain_only(node, "expressions")
    return tuple(read(each) for each in node.expressions)
