"""Text to tree: sqlglot parses one expression, `nile.expressions.taking` takes it apart.

sqlglot is used through `parse_one` and `tokenize` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nile.expressions.places import Fault
from nile.expressions.taking import Taker
from nile.expressions.tokens import DIALECT, MAX_DEPTH, MAX_LENGTH, tokens_of
from nile.expressions.tree import Column, Node
from nile.summaries.errors import ExpressionError
from nile.summaries.heavy import exp, sqlglot
from nile.summaries.heavy import sqlglot_errors as errors

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["Resolve", "place", "read_condition"]

Resolve = Callable[[str | None, str], str]
"""What a column that is written with or without a qualifier is called in the tree."""


def read_condition(text: str, *, where: str, resolve: Resolve | None = None) -> Node:
    """The tree of `text`. Raises ExpressionError that names `where` and shows the text.

    `resolve`: the name of a column that may be qualified, from (qualifier or None, column); None: columns stand
    alone.
    """
    if not isinstance(text, str):
        raise ExpressionError(f"{where}: needed a condition as text; got {text!r} ({type(text).__name__})")

    def column(qualifier: str | None, name: str, _: int | None) -> Column:
        if resolve is not None:
            return Column(resolve(qualifier, name))
        if qualifier is not None:
            raise Fault(f"'{qualifier}.{name}' names a table; write the column alone")
        return Column(name)

    try:
        return Taker(column).take(_parsed(text))
    except Fault as fault:
        raise ExpressionError(f"{place(text, where)}: {fault.reason}") from None


def place(text: str, where: str) -> str:
    """How messages about a condition begin."""
    return f"{where}: cannot use the condition {text if len(text) <= 120 else text[:117] + '...'!r}"


def _parsed(text: str) -> Any:
    if len(text) > MAX_LENGTH:
        raise Fault(f"it has {len(text)} characters, at most {MAX_LENGTH} are read")
    if not text.strip():
        raise Fault('it is empty; write one such as "vstore = 0", or leave it out')
    for token in tokens_of(text):
        if token.word in ("[", ";", "$", "?") or token.kind == "SELECT":
            raise Fault(f"'{token.text}' is not allowed in a condition")
    try:
        return sqlglot.parse_one(text, dialect=DIALECT, into=exp.Condition)
    except (errors.ParseError, errors.TokenError) as error:
        details = getattr(error, "errors", None) or [{}]
        reason = details[0].get("description") or "it is not a condition"
        at = details[0].get("col")
        raise Fault(reason.rstrip(".") + (f" near column {at}" if at else "")) from None
    except RecursionError:
        raise Fault(f"it is nested deeper than {MAX_DEPTH} levels; simplify it") from None
