"""The columns of a plan's nodes: their names, types and origins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from nile.expressions.tree import Node
from nile.sql.over import Frame
from nile.summaries.heavy import pa

__all__ = ["AggregateItem", "Field", "Item", "OverItem", "SortKey"]


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a node's output: its name inside the plan and its Arrow type."""

    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Item:
    """A named expression; its values are cast to the field's type where they have another of the same kind."""

    field: Field
    node: Node

    @property
    def name(self) -> str:
        return self.field.name


@dataclass(frozen=True, slots=True)
class SortKey:
    """ORDER BY node, over the columns of the Sort's input; nulls_last: where nulls go (DuckDB: last)."""

    node: Node
    descending: bool = False
    nulls_last: bool = True


@dataclass(frozen=True, slots=True)
class AggregateItem:
    """An aggregate.  function: its name in `nile.aggregates.catalogue`; argument None is count(*).

    distinct: of different values; fraction: of a quantile.  Of rows in an order: order, what they are ordered by (of
    arg_max its other value); where: which rows count; separator: of texts.
    """

    field: Field
    function: str
    argument: Node | None
    distinct: bool = False
    fraction: float | None = None
    order: tuple[SortKey, ...] = ()
    where: Node | None = None
    separator: str | None = None

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every expression in it."""
        return tuple(n for n in (self.argument, self.where, *(key.node for key in self.order)) if n is not None)

    def over(self, change: Callable[[Node], Node]) -> AggregateItem:
        """The same of other expressions."""
        return replace(
            self,
            argument=None if self.argument is None else change(self.argument),
            where=None if self.where is None else change(self.where),
            order=tuple(replace(key, node=change(key.node)) for key in self.order),
        )


@dataclass(frozen=True, slots=True)
class OverItem:
    """A window function.

    function: a name of `nile.sql.over.FUNCTIONS` or of the catalogue of aggregates; arguments: of the call, none for
    count(*); frame None: up to the last peer where there is an order, else the whole partition; without_nulls: IGNORE
    NULLS, of functions that take the value of another row.
    """

    field: Field
    function: str
    arguments: tuple[Node, ...]
    by: tuple[Node, ...] = ()
    order: tuple[SortKey, ...] = ()
    frame: Frame | None = None
    fraction: float | None = None
    without_nulls: bool = False

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every expression in it."""
        return (*self.arguments, *self.by, *(key.node for key in self.order))
