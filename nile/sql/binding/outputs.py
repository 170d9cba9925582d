"""What a SELECT returns: its columns, their names, and which of them a key refers to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from nile.expressions.places import Fault, listed
from nile.expressions.tree import Column, Constant
from nile.sql.binding.scope import Scope, find
from nile.sql.parsed import Block, Expression, Ordered, Reference, Star
from nile.sql.plan import Field

__all__ = ["Output", "alias", "aliases", "expanded", "few", "named", "of_rows", "position", "spread"]

MAX_COLUMNS = 2_000
MAX_KEYS = 200
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Output:
    """An output column: its name as wished, and what it is of."""

    name: str
    value: Field | Expression
    start: int
    aliased: bool


def expanded(block: Block, scope: Scope) -> list[Output]:
    """The items with every * replaced by the columns that it stands for."""
    outputs: list[Output] = []
    for item in block.items:
        if isinstance(item.value, Star):
            outputs += _all(item.value, scope)
        else:
            name = item.alias if item.alias is not None else default_name(item.value)
            outputs.append(Output(name, item.value, item.value.start, item.alias is not None))
    if not outputs:
        raise Fault("needed columns to return; got none", block.start)
    if len(outputs) > MAX_COLUMNS:
        raise Fault(f"needed at most {MAX_COLUMNS} columns to return; got {len(outputs)}", block.start)
    return outputs


def _all(star: Star, scope: Scope) -> list[Output]:
    """The columns of a *: without some, others in place of some, under other names.  Raises Fault."""
    columns = scope.star(star)
    known = {name.lower() for name, _ in columns}
    said = [*star.without, *(name for name, _ in star.replaced), *(name for name, _ in star.renamed)]
    for name in said:
        if name.lower() not in known:
            raise Fault(f"needed a column of * ({listed([each for each, _ in columns])}); got '{name}'", star.start)
    without = {name.lower() for name in star.without}
    replaced = {name.lower(): value for name, value in star.replaced}
    renamed = {old.lower(): new for old, new in star.renamed}
    outputs = []
    for name, field in columns:
        if name.lower() not in without:
            value = replaced.get(name.lower(), field)
            outputs.append(Output(renamed.get(name.lower(), name), value, star.start, False))
    return outputs


def few(keys: Sequence[Key], clause: str, start: int) -> Sequence[Key]:
    """The keys, which are not too many."""
    if len(keys) > MAX_KEYS:
        raise Fault(f"needed at most {MAX_KEYS} columns after {clause}; got {len(keys)}", start)
    return keys


def default_name(expression: Expression) -> str:
    """What an output without AS is called: its column, or its text."""
    node = expression.node
    if isinstance(node, Column) and node.name.startswith("#"):
        return expression.references[int(node.name[1:])].name
    return expression.text


def named(wished: Sequence[str]) -> list[str]:
    names: dict[str, None] = {}
    often: dict[str, int] = {}
    for name in wished:
        count = often.get(name, 0)
        candidate = f"{name}_{count}" if count else name
        while candidate in names:
            count += 1
            candidate = f"{name}_{count}"
        often[name] = count + 1
        names[candidate] = None
    return list(names)


def aliases(items: Sequence[Output]) -> dict[str, Expression]:
    return {item.name: item.value for item in items if item.aliased and isinstance(item.value, Expression)}


def _bare(key: Expression) -> Reference | None:
    """The column without qualifier that a key is, if it is one."""
    if isinstance(key.node, Column) and key.node.name.startswith("#"):
        reference = key.references[int(key.node.name[1:])]
        return reference if reference.qualifier is None else None
    return None


def alias(key: Expression, items: Sequence[Output], scope: Scope | None) -> int | None:
    """The item that a key names by its alias.  scope: where a column of that name goes before."""
    reference = _bare(key)
    if reference is None:
        return None
    if scope is not None and any(find(reference.name, source.columns) for source in scope.sources):
        return None
    names = [item.name for item in items if item.aliased or scope is None]
    found = find(reference.name, names)
    if len(set(found)) != 1 or names.count(found[0]) != 1:
        return None
    return next(at for at, item in enumerate(items) if item.name == found[0] and (item.aliased or scope is None))


def position(key: Expression, count: int, clause: str) -> int | None:
    """Which output a key such as ORDER BY 2 is, from 0."""
    node = key.node
    if not isinstance(node, Constant) or node.kind != "integer":
        return None
    assert isinstance(node.value, int)
    if not 1 <= node.value <= count:
        raise Fault(f"needed a column from 1 to {count} after {clause}; got {node.value}", key.start)
    return node.value - 1


def of_rows(block: Block) -> dict[str, Expression]:
    """What WHERE may name by its alias: values of single rows."""
    named = {item.alias: item.value for item in block.items if item.alias is not None}
    return {
        name: value
        for name, value in named.items()
        if isinstance(value, Expression) and not (value.aggregates or value.overs or value.nested or value.unnests)
    }


def spread(order: Sequence[Ordered], count: int) -> Sequence[Ordered]:
    """The keys, ORDER BY ALL as the numbers of the columns."""
    if all(each.key is not None for each in order):
        return order
    return [
        replace(each, key=Expression(Constant(at, "integer"), (), (), 0, str(at)))
        for each in order
        for at in range(1, count + 1)
    ]
