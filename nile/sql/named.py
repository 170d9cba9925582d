"""What statements other than queries have in common: a new name, a known one, a condition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nile.expressions.places import Fault, listed, nearest
from nile.sql.binding.scope import find
from nile.sql.cursor import Cursor
from nile.sql.expression_text import expression_text, identifier
from nile.sql.parameters import put_zeros
from nile.sql.reading.selecting import read_fragment

__all__ = ["known_name", "new_name", "read_condition", "read_expression"]


def new_name(cursor: Cursor, what: str) -> str:
    """A name that is to be one.  Raises Fault for what is no plain name."""
    start = cursor.start
    name = cursor.name(f"a name for the {what}").text
    if not name.isidentifier():
        raise Fault(f"needed a plain name such as store1 for the {what}; got {name[:40]!r}; rename it", start)
    return name


def known_name(cursor: Cursor, known: Iterable[str], what: str) -> str:
    """A name that is registered, in its own spelling."""
    names, start = list(known), cursor.start
    name = cursor.name(f"the name of {what}").text
    found = find(name, names)
    if len(found) == 1:
        return found[0]
    near = nearest(name, names)
    hint = f"; did you mean {near}?" if near else ""
    if found:
        hint = "; write it exactly"
    raise Fault(f"needed {what} ({listed(names) or 'there is none'}); got '{name[:40]}'{hint}", start)


def read_condition(cursor: Cursor, text: str) -> str:
    """The rest of the statement as a condition, in its canonical text."""
    if cursor.peek() is None:
        raise cursor.fault("a condition after WHERE")
    return read_expression(cursor, text, len(cursor.tokens), "WHERE")


def read_expression(cursor: Cursor, text: str, end: int, where: str, columns: Sequence[str] | None = None) -> str:
    """The tokens up to `end` as an expression over single rows, in its canonical text.  columns: that there are."""
    tokens = cursor.tokens[cursor.at : end]
    fragment = put_zeros(text, tokens, cursor.values)
    expression = read_fragment(fragment, tokens[0].start, tokens[-1].end, cursor.values)
    for each in expression.aggregates + expression.overs:
        raise Fault(f"needed single rows in {where}; got an aggregate", each.start)
    if expression.nested:
        raise Fault(f"needed single rows in {where}; got a query in it", expression.nested[0].start)
    for reference in expression.references:
        if reference.qualifier is not None:
            written = f"{reference.qualifier}.{reference.name}"
            raise Fault(f"needed a column alone; got '{written}'; leave the first part out", reference.start)
        if columns is not None and not find(reference.name, columns):
            raise Fault(f"needed a column ({listed(columns)}); got '{reference.name}'", reference.start)
    cursor.at = end
    return expression_text(expression.node, lambda name: identifier(expression.references[int(name[1:])].name))
