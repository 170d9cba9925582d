"""Groups by session: by whose it is and when it began, which a tuple that extends it leaves as they are."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nile.expressions.tree import Column, Constant, Node, columns_of, rename
from nile.sql import plan as ops
from nile.sql.over import SESSIONS
from nile.sql.plan import Field, Stream
from nile.summaries.heavy import pa

__all__ = ["Sessions", "sessions_of"]

START = "\0start"


@dataclass(frozen=True, slots=True)
class Sessions:
    """group: by beginning, in place of the bounds, with the last tuple's time among its aggregates (the last one).

    below: the rows of the sessions; by: whose each is; gap: ns; outputs: of the groups as they were asked for, each the
    place of a key or aggregate, -1 for the end.
    """

    group: ops.Group
    below: ops.Plan
    by: tuple[Node, ...]
    gap: int
    outputs: tuple[int, ...]


def sessions_of(node: ops.Group) -> Sessions | None:
    """A group that is a session of a stream without a window; None: it is something else."""
    over, named = node.input, None
    if isinstance(over, ops.Project):
        named, over = {item.name: item.node for item in over.items}, over.input
    if not isinstance(over, ops.Over) or any(item.function not in SESSIONS for item in over.items):
        return None
    if len({(item.by, item.order, item.arguments) for item in over.items}) > 1 or any(
        a.distinct for a in node.aggregates
    ):
        return None
    stream = over.input
    while isinstance(stream, ops.Filter):
        stream = stream.input
    (gap,), (key,), by = over.items[0].arguments, over.items[0].order, over.items[0].by
    if not isinstance(stream, Stream) or stream.window is not None or not isinstance(gap, Constant):
        return None
    if key.descending or not isinstance(key.node, Column) or key.node.name != f"{stream.alias}.{stream.time}":
        return None

    if any(each.order or each.where is not None for each in node.aggregates):
        return None

    def meant(each: Node) -> Node:
        return each if named is None else rename(each, lambda column: named[column.name])

    bounds = {item.name: item.function for item in over.items}
    keys = [meant(item.node) for item in node.by]
    arguments = [None if each.argument is None else meant(each.argument) for each in node.aggregates]
    own = [each for each in keys if not (isinstance(each, Column) and each.name in bounds)]
    used = {name for each in (*own, *(a for a in arguments if a is not None)) for name in columns_of(each)}
    if set(own) != set(by) or len(own) == len(keys) or used & bounds.keys():
        return None
    items = [
        ops.Item(Field(f"key{k}", item.field.type), each)
        for k, (item, each) in enumerate(zip(node.by, keys, strict=True))
        if each in own
    ]
    items.append(ops.Item(Field(START, pa.timestamp("us")), Column(START, "timestamp")))
    last = ops.AggregateItem(Field("\0last", _type_of(stream, key.node)), "max", key.node, False, None)
    aggregates = [replace(each, argument=argument) for each, argument in zip(node.aggregates, arguments, strict=True)]
    places, count = [], 0
    for each in keys:
        if each in own:
            places.append(count)
            count += 1
        else:
            assert isinstance(each, Column)
            places.append(len(items) - 1 if bounds[each.name] == "session_start" else -1)
    places += [len(items) + k for k in range(len(aggregates))]
    group = ops.Group(over.input, tuple(items), (*aggregates, last))
    return Sessions(group, over.input, by, 1_000 * int(gap.value or 0), tuple(places))


def _type_of(stream: Stream, node: Node) -> pa.DataType:
    assert isinstance(node, Column)
    return next(field.type for field in stream.fields if field.name == node.name)
