"""Preferences over what a summary is of that is no single column: WITH PREFERENCE desc COUNT(a, b)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nile.expressions.places import Fault, Parameter, listed
from nile.expressions.tree import Column, Node, rename
from nile.sql import plan as ops
from nile.sql.binding.scope import Scope
from nile.sql.catalog import Catalog
from nile.sql.expression_text import expression_text, identifier
from nile.sql.plan import Stream
from nile.sql.reading.selecting import read_fragment
from nile.sql.reading.terms import TermClause

__all__ = ["Reading", "attribute_term", "factor_of"]


@dataclass(frozen=True, slots=True)
class Reading:
    """A statement's text, what its parameters hold by offset, and the catalog it is bound against."""

    text: str
    values: Mapping[int, Parameter]
    catalog: Catalog


def attribute_term(clause: TermClause, scope: Scope, reading: Reading) -> ops.Term:
    """What a summary of one of the streams is of.  Raises Fault where none is."""
    parts: list[Node] = []
    owners: dict[str, Stream] = {}
    for span in clause.parts:
        part, of = _expression(span, scope, reading)
        parts.append(part)
        owners.update(of)
    if len(owners) > 1:
        raise Fault(f"needed attributes of one stream; got those of {listed(list(owners))}", clause.start)
    ((alias, stream),) = owners.items()
    if len(parts) == 1 and isinstance(parts[0], Column):
        return ops.Term(parts[0].name, "count")
    column = ", ".join(expression_text(part, lambda name: identifier(name.removeprefix(f"{alias}."))) for part in parts)
    known = [made.column for made in reading.catalog.summaries.values() if made.stream == stream.name and made.parts]
    if column not in known:
        raise Fault(
            f"needed what a summary of {stream.name} is of ({listed(known) or 'there is none'}); got {column}; "
            f"CREATE SUMMARY ... ON {stream.name} ({column}) first",
            clause.start,
        )
    return ops.Term(f"{alias}.{column}", "count", tuple(parts))


def factor_of(clause: TermClause, scope: Scope, reading: Reading) -> Node:
    """What a count is multiplied by: an expression over one of the streams.  Raises Fault."""
    assert clause.factor is not None
    node, owners = _expression(clause.factor, scope, reading)
    if len(owners) > 1:
        raise Fault(
            f"needed columns of one stream for what a count is multiplied by; got those of {listed(list(owners))}; "
            "write a term for each stream: their factors are multiplied",
            clause.factor[0],
        )
    return node


def _expression(span: tuple[int, int], scope: Scope, reading: Reading) -> tuple[Node, dict[str, Stream]]:
    """An expression over columns of streams, and the streams by alias."""
    begin, end = span
    told = read_fragment(reading.text, begin, end, reading.values)
    if told.aggregates or told.overs or told.nested or not told.references:
        raise Fault("needed expressions over columns in WITH PREFERENCE; got another one", begin)
    fields, owners = [scope.resolve(each) for each in told.references], {}
    for field in fields:
        source = next(each for each in scope.sources if field in each.columns.values())
        if not isinstance(source.plan, Stream):
            raise Fault(f"needed a column of a stream in WITH PREFERENCE; got {field.name}", begin)
        owners[source.plan.alias] = source.plan
    return _resolved(told.node, [field.name for field in fields]), owners


def _resolved(node: Node, names: Sequence[str]) -> Node:
    """A fragment, whose columns are numbers of references, over the columns that these are."""
    return rename(node, lambda column: Column(names[int(column.name[1:])]))
