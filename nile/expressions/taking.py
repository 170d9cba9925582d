"""sqlglot's expressions taken apart: an allow-list of its node classes decides what may be said.

A node that has no reader here, or an argument that its reader does not name, is refused; nothing of sqlglot's tree is
kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from nile.expressions import tree as nodes
from nile.expressions.allowed import (
    ALLOWED,
    ARGUMENTS,
    COMPARISONS,
    FUNCTIONS,
    NAMED,
    OPERATORS,
    PARTS,
    SPELLING,
    TYPES,
    UNITS,
)
from nile.expressions.functions import PLAIN
from nile.expressions.lists.functions import LISTS
from nile.expressions.lists.values import list_of
from nile.expressions.literals import read_interval, read_number, read_parameter, read_pattern, read_time
from nile.expressions.named_functions import called, check_literal
from nile.expressions.places import Fault, Parameter
from nile.expressions.spellings import SPELLINGS, Takes, called_by_name
from nile.expressions.tokens import MAX_DEPTH, own_start, sql_of, start_of
from nile.expressions.tree import Column, Node, children_of, parts_of

__all__ = ["Taker", "start_of"]

_MOST_DIGITS = 15
_CALLED = re.compile(r"(\w+)\(")
_INSTEAD = {
    "GroupConcat": "the function string_agg()",
    "ToChar": "the function to_char()",
}
"""What is refused under another name than the parser's, and what is written in its place."""
_MOST_OPERAND = 16

TakeColumn = Callable[[str | None, str, int | None], Column]
"""From (qualifier or None, name, offset in the text)."""


class Taker:
    """Takes expressions of one text apart.

    column: what a column that is written with or without a qualifier becomes.  parameters: by the offset of the
    literals that stand for them in the text.  extra: readers of further classes of nodes.
    places: the offset in the text of each node made, by id, for as long as it lives.
    """

    def __init__(
        self,
        column: TakeColumn,
        *,
        parameters: Mapping[int, Parameter] | None = None,
        extra: Mapping[str, Callable[[Any, int], Node]] | None = None,
    ) -> None:
        self._column_of = column
        self._parameters = parameters or {}
        self.places: dict[int, int] = {}
        self.used: set[int] = set()
        self._readers: dict[str, Callable[[Any, int], Node]] = {
            "Column": self._column,
            "Literal": self._literal,
            "Boolean": lambda node, _: nodes.Constant(bool(node.this), "boolean"),
            "Null": lambda _, __: nodes.Constant(None, "null"),
            "Paren": lambda node, depth: self.take(self.only(node, "this"), depth - 1),
            "Not": lambda node, depth: nodes.Not(self.take(self.only(node, "this"), depth)),
            "And": self._logic,
            "Or": self._logic,
            "Between": self._between,
            "In": self.listed,
            "Like": self._like,
            "ILike": self._like,
            "Escape": self._like,
            "Neg": self._negative,
            "Cast": self._cast,
            "TryCast": self._cast,
            "Interval": self._interval,
            "DPipe": self._concat,
            "Case": self._case,
            "If": self._if,
            "Round": self._round,
            "Substring": self._substring,
            "Extract": self._extract,
            "TimestampTrunc": self._truncated,
            "DateTrunc": self._truncated,
            **dict.fromkeys(COMPARISONS, self.compared),
            **dict.fromkeys(OPERATORS, self._arithmetic),
            **dict.fromkeys(FUNCTIONS, self._call),
            **dict.fromkeys((*NAMED, "Log"), self._plain),
            **{name: self._spelt(reader) for name, reader in SPELLINGS.items()},
            "Anonymous": self._by_name,
            **(extra or {}),
        }

    def take(self, node: Any, depth: int = 0) -> Node:
        """The tree of a node.  Raises Fault for what is not allowed, or nested deeper than MAX_DEPTH."""
        if depth > MAX_DEPTH:
            raise Fault(f"it is nested deeper than {MAX_DEPTH} levels; simplify it", start_of(node))
        name = type(node).__name__
        reader = self._readers.get(name)
        if reader is None:
            raise self.refused(self._spelling(node, name), node)
        try:
            tree = reader(node, depth + 1)
        except Fault as fault:
            if fault.start is None:
                fault.start = start_of(node)
            raise
        start = own_start(node)
        if start is None:
            start = min((self.places[id(child)] for child in children_of(tree) if id(child) in self.places), default=-1)
        if start >= 0:
            self.places[id(tree)] = start
        return tree

    def only(self, node: Any, *allowed: str) -> Any:
        """The node's first allowed argument, once it is sure that it has no others."""
        for argument, value in node.args.items():
            if value and argument not in allowed and argument not in SPELLING:
                raise self.refused("a query in IN" if argument == "query" else sql_of(node), node)
        return node.args.get(allowed[0])

    def refused(self, what: str, node: Any) -> Fault:
        return Fault(f"{what} is not allowed; a condition is made of {ALLOWED}", start_of(node))

    def text_literal(self, node: Any, of: str) -> str:
        """The value of a text literal.  Raises Fault."""
        if type(node).__name__ == "Literal":
            value = self._parameter(node)
            if value is not None and isinstance(value.value, str):
                return value.value
            if value is None and node.is_string:
                return str(node.this)
        given = self._parameters.get(own_start(node) or -1)
        got = sql_of(node) if given is None else f"{given.value!r:.40} as {given}"
        raise Fault(f"{of} needs a text literal such as '%a%', got {got}", start_of(node))

    def _parameter(self, node: Any) -> nodes.Constant | None:
        start = own_start(node)
        if start is None or start not in self._parameters:
            return None
        self.used.add(start)
        return read_parameter(self._parameters[start].value)

    def _column(self, node: Any, _: int) -> Node:
        identifier = self.only(node, "this", "table")
        qualifier = node.args.get("table")
        if type(identifier).__name__ != "Identifier":
            raise self.refused(sql_of(node), node)
        return self._column_of(None if qualifier is None else str(qualifier.this), identifier.this, start_of(node))

    def _literal(self, node: Any, _: int) -> Node:
        given = self._parameter(node)
        if given is not None:
            return nodes.Constant(given.value, given.kind)
        return nodes.Constant(node.this, "text") if node.is_string else read_number(node.this)

    def _negative(self, node: Any, depth: int) -> Node:
        operand = self.only(node, "this")
        if type(operand).__name__ == "Literal" and operand.this == str(2**63):
            return nodes.Constant(-(2**63), "integer")
        item = self.take(operand, depth)
        if isinstance(item, nodes.Constant) and item.kind in ("integer", "number", "interval"):
            assert isinstance(item.value, (int, float))
            if item.value != -(2**63):
                return nodes.Constant(-item.value, item.kind)
        return nodes.Arithmetic("-", nodes.Constant(0, "integer"), item)

    def _logic(self, node: Any, depth: int) -> Node:
        """A chain of ANDs is one node, however long: sqlglot nests it to the left."""
        items, name = [], type(node).__name__
        while type(node).__name__ == name:
            self.only(node, "this", "expression")
            items.append(self.take(node.expression, depth))
            node = node.this
        items.append(self.take(node, depth))
        return nodes.Logic("AND" if name == "And" else "OR", tuple(reversed(items)))

    def compared(self, node: Any, depth: int) -> Node:
        """Two values compared."""
        left = self.take(self.only(node, "this", "expression"), depth)
        return nodes.Compare(COMPARISONS[type(node).__name__], left, self.take(node.expression, depth))

    def _arithmetic(self, node: Any, depth: int) -> Node:
        left = self.take(self.only(node, "this", "expression"), depth)
        return nodes.Arithmetic(OPERATORS[type(node).__name__], left, self.take(node.expression, depth))

    def _between(self, node: Any, depth: int) -> Node:
        item = self.take(self.only(node, "this", "low", "high"), depth)
        return nodes.Between(item, self.take(node.args["low"], depth), self.take(node.args["high"], depth))

    def listed(self, node: Any, depth: int) -> Node:
        """IN of values, or of one that is a list."""
        if node.args.get("field") is not None:
            item = self.take(self.only(node, "this", "field"), depth)
            return nodes.Call("list_contains", (self.take(node.args["field"], depth), item))
        item = self.take(self.only(node, "this", "expressions"), depth)
        choices = tuple(self.take(choice, depth) for choice in node.expressions)
        if not choices:
            raise Fault("IN needs a list such as (1, 2)", start_of(node))
        return nodes.In(item, choices)

    def _spelt(self, reader: Callable[[Takes, Any, int], Node]) -> Callable[[Any, int], Node]:
        return lambda node, depth: reader(self, node, depth)

    def _by_name(self, node: Any, depth: int) -> Node:
        tree = called_by_name(self, node, depth)
        if tree is None:
            raise self.refused(self._spelling(node, "Anonymous"), node)
        return tree

    def _call(self, node: Any, depth: int) -> Node:
        function = FUNCTIONS[type(node).__name__]
        allowed = ARGUMENTS.get(function, ("this",))
        arguments = [self.only(node, *allowed)]
        for name in allowed[1:]:
            value = node.args.get(name)
            arguments += value if isinstance(value, list) else [value]
        return nodes.Call(function, tuple(self.take(argument, depth) for argument in arguments))

    def _plain(self, node: Any, depth: int) -> Node:
        """A function of the table, its literals checked."""
        name, given = called(node, lambda *allowed: self.only(node, *allowed))
        rule = PLAIN[name]
        count = len(rule.takes)
        least = count + sum(not each.optional for each in rule.literals)
        if not least <= len(given) <= count + len(rule.literals):
            raise Fault(f"needed {name}() with {least} arguments; got {len(given)}", start_of(node))
        taken = [self.take(each, depth) for each in given]
        for each, value, wanted in zip(rule.split(given)[1], rule.split(taken)[1], rule.literals, strict=False):
            check_literal(name, each, value, wanted)
        return nodes.Call(name, tuple(taken))

    def _concat(self, node: Any, depth: int) -> Node:
        """A chain of || is one node, as a chain of ANDs."""
        items = []
        while type(node).__name__ == "DPipe":
            self.only(node, "this", "expression")
            items.append(self.take(node.expression, depth))
            node = node.this
        items.append(self.take(node, depth))
        return nodes.Call("concat", tuple(reversed(items)))

    def _case(self, node: Any, depth: int) -> Node:
        self.only(node, "ifs", "this", "default")
        operand = node.args.get("this")
        item = None if operand is None else self.take(operand, depth)
        if item is not None and sum(1 for _ in parts_of(item)) > _MOST_OPERAND:
            raise Fault("CASE needs a simple value before WHEN; write CASE WHEN value = ... THEN", start_of(node))
        branches = []
        for branch in node.args["ifs"]:
            self.only(branch, "this", "true")
            condition = self.take(branch.this, depth)
            if item is not None:
                condition = nodes.Compare("=", item, condition)
            branches.append((condition, self.take(branch.args["true"], depth)))
        return nodes.Case(tuple(branches), self._default(node.args.get("default"), depth))

    def _if(self, node: Any, depth: int) -> Node:
        condition = self.take(self.only(node, "this", "true", "false"), depth)
        value = self.take(node.args["true"], depth)
        return nodes.Case(((condition, value),), self._default(node.args.get("false"), depth))

    def _default(self, node: Any, depth: int) -> Node:
        return nodes.Constant(None, "null") if node is None else self.take(node, depth)

    def _round(self, node: Any, depth: int) -> Node:
        item = self.take(self.only(node, "this", "decimals"), depth)
        digits = node.args.get("decimals")
        if digits is None:
            return nodes.Call("round", (item,))
        return nodes.Call("round", (item, self._whole(digits, depth, "round() digits", -_MOST_DIGITS, _MOST_DIGITS)))

    def _substring(self, node: Any, depth: int) -> Node:
        item = self.take(self.only(node, "this", "start", "length"), depth)
        if node.args.get("start") is None:
            raise Fault(
                "needed for substring() a text and a start; got one of them; write substring(text, 1)", start_of(node)
            )
        begin = self._whole(node.args["start"], depth, "substring() a start", 1, 2**31)
        length = node.args.get("length")
        if length is None:
            return nodes.Call("substring", (item, begin))
        return nodes.Call("substring", (item, begin, self._whole(length, depth, "substring() a length", 0, 2**31)))

    def _whole(self, node: Any, depth: int, what: str, least: int, most: int) -> nodes.Constant:
        value = self.take(node, depth)
        if isinstance(value, nodes.Constant) and value.kind == "integer" and value.value is not None:
            assert isinstance(value.value, int)
            if least <= value.value <= most:
                return value
        raise Fault(f"needed for {what} as a whole number from {least} to {most}; got something else", start_of(node))

    def _extract(self, node: Any, depth: int) -> Node:
        unit = _unit(self.only(node, "this", "expression"))
        part = PARTS.get(unit)
        if part is None:
            raise Fault(f"extract needs one of {', '.join(PARTS)}, got {unit!r:.40}", start_of(node))
        return nodes.Call(part, (self.take(node.expression, depth),))

    def _truncated(self, node: Any, depth: int) -> Node:
        item = self.take(self.only(node, "this", "unit"), depth)
        unit = _unit(node.args.get("unit"))
        if unit not in UNITS:
            raise Fault(f"date_trunc needs one of {', '.join(UNITS)}, got {unit!r:.40}", start_of(node))
        return nodes.Call("date_trunc", (nodes.Constant(unit, "text"), item))

    def _like(self, node: Any, depth: int) -> Node:
        escape = None
        if type(node).__name__ == "Escape":
            self.only(node, "this", "expression")
            escape = self.text_literal(node.expression, "ESCAPE")
            if len(escape) != 1:
                raise Fault(f"ESCAPE needs one character, got {escape[:40]!r}", start_of(node))
            node = node.this
        if type(node).__name__ not in ("Like", "ILike"):
            raise self.refused("ESCAPE without LIKE", node)
        item = self.take(self.only(node, "this", "expression", "negate"), depth)
        pattern = read_pattern(self.text_literal(node.expression, "LIKE"), escape)
        like = nodes.Like(item, pattern, ignore_case=type(node).__name__ == "ILike")
        return nodes.Not(like) if node.args.get("negate") else like

    def _cast(self, node: Any, depth: int) -> Node:
        item = self.take(self.only(node, "this", "to"), depth)
        wanted = node.args["to"]
        listed = getattr(wanted.this, "name", "") == "ARRAY" and len(wanted.expressions) == 1
        inner = wanted.expressions[0] if listed else wanted
        kind, bits = TYPES.get(getattr(getattr(inner, "this", None), "name", ""), ("other", 0))
        if kind != "other" and listed and not inner.expressions:
            return nodes.Cast(item, list_of(kind), bits)
        if kind == "other" or wanted.expressions:
            raise Fault(
                f"cannot cast to {sql_of(wanted).upper()}; the types are BIGINT (and smaller), DOUBLE, VARCHAR, "
                "BOOLEAN, TIMESTAMP, DATE",
                start_of(node),
            )
        if isinstance(item, nodes.Constant) and isinstance(item.value, str) and kind in ("timestamp", "date"):
            return read_time(item.value, kind)
        if isinstance(item, nodes.Constant) and item.kind == "interval":
            raise Fault(f"an interval cannot be cast to {sql_of(wanted).upper()}", start_of(node))
        return nodes.Cast(item, kind, bits)

    def _interval(self, node: Any, _: int) -> Node:
        amount, unit = self.only(node, "this", "unit"), node.args.get("unit")
        if type(amount).__name__ != "Literal" or (unit is not None and type(unit).__name__ != "Var"):
            raise self.refused(sql_of(node), node)
        given = self._parameter(amount)
        return read_interval(str(amount.this if given is None else given.value), "" if unit is None else unit.name)

    def _spelling(self, node: Any, name: str) -> str:
        if name == "Anonymous":
            function = str(node.this)
            known = [each for each in (*PLAIN, *LISTS, *nodes.SPECIAL) if each != "concat"]  # which is ||
            near = get_close_matches(function.lower(), known, n=1)
            return f"the function {function[:40]}()" + (f" (did you mean {near[0]}()?)" if near else "")
        if name in _INSTEAD:
            return _INSTEAD[name]
        called = _CALLED.match(sql_of(node))
        return f"the function {called[1].lower()}()" if called else sql_of(node)


def _unit(node: Any) -> str:
    """The name of a unit of time, as a word or a text."""
    return str(getattr(node, "name", "") or getattr(node, "this", "")).lower()
