"""What stands behind a comma or JOIN: kinds of joins, and unnest(list)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nile.expressions.places import NotYetFault
from nile.sql.parsed import Expression, JoinKind, Unnested
from nile.sql.reading.select_expressions import plain_only

__all__ = ["join_kind", "read_unnest"]

_JOINS: Mapping[str, JoinKind] = {
    **dict.fromkeys(("", "INNER", "CROSS"), "inner"),
    **dict.fromkeys(("LEFT", "LEFT OUTER"), "left"),
    **dict.fromkeys(("RIGHT", "RIGHT OUTER"), "right"),
    **dict.fromkeys(("FULL", "FULL OUTER"), "full"),
    **dict.fromkeys(("SEMI", "LEFT SEMI"), "semi"),
    **dict.fromkeys(("ANTI", "LEFT ANTI"), "anti"),
}
_ASOF = (
    "write JOIN relation FOR SYSTEM_TIME AS OF s.ts for a relation as it was, or for the last tuple of each key of a "
    "stream FROM s [NOW], other [PARTITION BY key ROWS 1] WHERE ..."
)


def join_kind(words: Sequence[str], start: int) -> JoinKind:
    """The kind of a join that is written with some words.  Raises Fault."""
    said = " ".join(filter(None, words))
    if said not in _JOINS:
        instead = _ASOF if "ASOF" in words else "write JOIN ... ON"
        raise NotYetFault(f"{said} JOIN is not there yet; {instead}", start)
    return _JOINS[said]


def read_unnest(
    node: Any, called: tuple[Any, tuple[str, ...]], read: Callable[[Any], Expression], start: int
) -> Unnested:
    """unnest(list) [AS name [(column)]].  called: its alias and the names of its columns.  Raises Fault."""
    if node.args.get("offset"):
        raise NotYetFault(
            "WITH ORDINALITY is not there yet; write row_number() OVER (PARTITION BY what the list is of)", start
        )
    if len(node.expressions) != 1:
        raise NotYetFault(
            "unnest() of several lists in FROM is not there yet; write SELECT unnest(a), unnest(b)", start
        )
    plain_only(node, "expressions", "alias")
    named, columns = called
    return Unnested(read(node.expressions[0]), "unnest" if named is None else str(named.this), start, columns)
