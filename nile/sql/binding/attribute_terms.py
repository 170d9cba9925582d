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
from nile.sql.reading.clauses import TermClause
from nile.sql.reading.selecting import read_fragment

__all__ = ["Reading", "attribute_term"]


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
    for begin, end in clause.parts:
        told = read_fragment(reading.text, begin, end, reading.values)
        if told.aggregates or told.overs or told.nested or not told.references:
            raise Fault("needed expressions over columns in WITH PREFERENCE; got another one", begin)
        fields = [scope.resolve(each) for each in told.references]
        for field in fields:
            source = next(each for each in scope.sources if field in each.columns.values())
            if not isinstance(source.plan, Stream):
                raise Fault(f"needed a column of a stream in WITH PREFERENCE; got {field.name}", begin)
            owners[source.plan.alias] = source.plan
        parts.append(_resolved(told.node, [field.name for field in fields]))
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


def _resolved(node: Node, names: Sequence[str]) -> Node:
    """A fragment, whose columns are numbers of references, over the columns that these are."""
    return rename(node, lambda column: Column(names[int(column.name[1:])]))
