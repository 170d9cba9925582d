"""Text to tree: sqlglot parses, an allow-list of its node classes decides what may be said.

sqlglot is used through `parse_one` and `tokenize` alone. Each of its nodes is taken apart by name, and a
node or an argument of a node that is not listed here is refused; nothing of sqlglot's tree is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

from nile.durations import NS_PER_SECOND, parse_duration
from nile.sql.tree import (
    Arithmetic,
    Between,
    Call,
    Cast,
    Column,
    Compare,
    Comparison,
    Constant,
    Function,
    In,
    IsNull,
    Kind,
    Like,
    Logic,
    Node,
    Not,
    Operator,
    Piece,
)
from nile.streams.cells import parse_instant
from summaries.errors import ConfigError, ExpressionError
from summaries.lazy import lazy

if TYPE_CHECKING:
    import sqlglot
    from sqlglot import errors, exp
else:
    sqlglot = lazy("sqlglot")
    errors = lazy("sqlglot.errors")
    exp = lazy("sqlglot.expressions")

MAX_LENGTH = 64 * 1024
MAX_DEPTH = 64
MAX_PATTERN = 1_000
_MAX_PREFIXES = 256

Resolve = Callable[[str | None, str], str]
"""What a column that is written with or without a qualifier is called in the tree."""

_DAY = 86_400 * NS_PER_SECOND
_FIRST_INSTANT = -719_162 * _DAY  # 1 January of year 1
_LAST_INSTANT = 2_932_897 * _DAY  # 1 January of year 10000

_DIALECT = "duckdb"
_REFUSED_TOKENS = ("L_BRACKET", "L_BRACE", "SEMICOLON", "SELECT", "CASE")
_SIGNS = ("DASH", "PLUS", "TILDE", "INTERVAL")
_COMPARISONS: Mapping[str, Comparison] = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_OPERATORS: Mapping[str, Operator] = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%"}
_FUNCTIONS: Mapping[str, Function] = {
    "Lower": "lower",
    "Upper": "upper",
    "Length": "length",
    "Abs": "abs",
    "Coalesce": "coalesce",
}
_TYPES: Mapping[str, tuple[Kind, int]] = {
    "TINYINT": ("integer", 8),
    "SMALLINT": ("integer", 16),
    "INT": ("integer", 32),
    "BIGINT": ("integer", 64),
    "DOUBLE": ("number", 64),
    "TEXT": ("text", 0),
    "VARCHAR": ("text", 0),
    "BOOLEAN": ("boolean", 0),
    "TIMESTAMP": ("timestamp", 0),
    "TIMESTAMPNTZ": ("timestamp", 0),
    "TIMESTAMPTZ": ("timestamp", 0),
    "DATE": ("date", 0),
}
# Arguments that only say how the text was spelt, or how another engine would divide.
_SPELLING = {"typed", "safe", "is_nvl", "is_null", "binary", "encoding"}
_ALLOWED = (
    "comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, ILIKE, IS NULL, + - * / %, CAST, "
    f"{', '.join(get_args(Function))}, and literals"
)


def read_condition(text: str, *, where: str, resolve: Resolve | None = None) -> Node:
    """The tree of `text`. Raises ExpressionError that names `where` and shows the text.

    `resolve`: the name of a column that may be qualified, from (qualifier or None, column); None: columns stand
    alone.
    """
    if not isinstance(text, str):
        raise ExpressionError(f"{where}: needed a condition as text; got {text!r} ({type(text).__name__})")
    return _Reader(text, where, resolve).read()


def read_time(text: str, kind: Kind, *, where: str) -> Constant:
    """ISO text as a timestamp or date constant: years 1 to 9999, no finer than a microsecond.

    Without zone it is UTC. Raises ExpressionError.
    """
    instant = parse_instant(text.strip())
    step = _DAY if kind == "date" else 1_000
    if instant is None or instant % step or not _FIRST_INSTANT <= instant < _LAST_INSTANT:
        form = "'2011-12-09'" if kind == "date" else "'2011-12-09 08:01:00' (with zone or in UTC)"
        raise ExpressionError(f"{where}: {text[:40]!r} is no {kind}; write it as {form}")
    return Constant(instant // 1_000, kind)


def place(text: str, where: str) -> str:
    """How messages about a condition begin."""
    return f"{where}: cannot use the condition {text if len(text) <= 120 else text[:117] + '...'!r}"


class _Reader:
    def __init__(self, text: str, where: str, resolve: Resolve | None) -> None:
        self._text = text
        self._where = where
        self._resolve = resolve
        self._readers: dict[str, Callable[[Any, int], Node]] = {
            "Column": self._column,
            "Literal": self._literal,
            "Boolean": lambda node, _: Constant(bool(node.this), "boolean"),
            "Null": lambda _, __: Constant(None, "null"),
            "Paren": lambda node, depth: self._node(self._only(node, "this"), depth),
            "Not": lambda node, depth: Not(self._node(self._only(node, "this"), depth)),
            "And": self._logic,
            "Or": self._logic,
            "Between": self._between,
            "In": self._in,
            "Is": self._is,
            "Like": self._like,
            "ILike": self._like,
            "Escape": self._like,
            "Neg": self._negative,
            "Cast": self._cast,
            "TryCast": self._cast,
            "Interval": self._interval,
            **dict.fromkeys(_COMPARISONS, self._comparison),
            **dict.fromkeys(_OPERATORS, self._arithmetic),
            **dict.fromkeys(_FUNCTIONS, self._call),
        }

    def read(self) -> Node:
        if len(self._text) > MAX_LENGTH:
            raise self._error(f"it has {len(self._text)} characters, at most {MAX_LENGTH} are read")
        if not self._text.strip():
            raise self._error('it is empty; write one such as "vstore = 0", or leave it out')
        try:
            self._check_nesting()
            tree = sqlglot.parse_one(self._text, dialect=_DIALECT, into=exp.Condition)
        except (errors.ParseError, errors.TokenError) as error:
            details = getattr(error, "errors", None) or [{}]
            reason = details[0].get("description") or "it is not a condition"
            column = details[0].get("col")
            raise self._error(reason.rstrip(".") + (f" near column {column}" if column else "")) from None
        except RecursionError:
            raise self._error(f"it is nested deeper than {MAX_DEPTH} levels; simplify it") from None
        return self._node(tree, 0)

    def _check_nesting(self) -> None:
        """Refuses what could overflow the parser's stack, before parsing."""
        tokens = sqlglot.tokenize(self._text, dialect=_DIALECT)
        kinds = [token.token_type.name for token in tokens]
        depth = prefixes = 0
        for token, kind, following in zip(tokens, kinds, [*kinds[1:], ""], strict=False):
            if kind in _REFUSED_TOKENS:
                raise self._refused(f"'{token.text}'")
            depth += (kind == "L_PAREN") - (kind == "R_PAREN")
            # NOT as in NOT IN is no prefix of its own, and a list of such conditions may be long.
            negation = kind == "NOT" and following not in ("IN", "LIKE", "ILIKE", "BETWEEN", "NULL")
            repeated = kind == following and kind not in ("L_PAREN", "R_PAREN")
            prefixes += negation or repeated or (kind in _SIGNS and following in _SIGNS)
            if depth > MAX_DEPTH or prefixes > _MAX_PREFIXES:
                raise self._error(f"it is nested deeper than {MAX_DEPTH} levels; simplify it")

    def _node(self, node: Any, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self._error(f"it is nested deeper than {MAX_DEPTH} levels; simplify it")
        name = type(node).__name__
        reader = self._readers.get(name)
        if reader is None:
            raise self._refused(self._spelling(node, name))
        return reader(node, depth + 1)

    def _only(self, node: Any, *allowed: str) -> Any:
        """The node's first allowed argument, once it is sure that it has no others."""
        for argument, value in node.args.items():
            if value and argument not in allowed and argument not in _SPELLING:
                raise self._refused(f"{argument.upper()} in {type(node).__name__.upper()}")
        return node.args.get(allowed[0])

    def _column(self, node: Any, _: int) -> Node:
        qualifier = node.args.get("table")
        if qualifier is not None and self._resolve is None:
            raise self._error(f"'{node.sql()}' names a table; write the column alone")
        identifier = self._only(node, "this", "table")
        if type(identifier).__name__ != "Identifier":
            raise self._refused(node.sql())
        if self._resolve is None:
            return Column(identifier.this)
        return Column(self._resolve(None if qualifier is None else str(qualifier.this), identifier.this))

    def _literal(self, node: Any, _: int) -> Node:
        return Constant(node.this, "text") if node.is_string else self._number(node.this)

    def _number(self, digits: str) -> Constant:
        if digits.isdecimal():
            if len(digits) > 100 or int(digits) >= 2**63:
                raise self._error(f"the whole number {digits[:40]} is beyond 64 bits; write {digits[:40]}.0")
            return Constant(int(digits), "integer")
        try:
            value = float(digits)
        except ValueError:
            raise self._error(f"'{digits[:40]}' is no number") from None
        if math.isinf(value):
            raise self._error(f"the number {digits[:40]} is beyond a double; write CAST('inf' AS DOUBLE)")
        return Constant(value, "number")

    def _negative(self, node: Any, depth: int) -> Node:
        operand = self._only(node, "this")
        if type(operand).__name__ == "Literal" and operand.this == str(2**63):
            return Constant(-(2**63), "integer")
        item = self._node(operand, depth)
        if isinstance(item, Constant) and item.kind in ("integer", "number", "interval"):
            assert isinstance(item.value, (int, float))
            if item.value != -(2**63):
                return Constant(-item.value, item.kind)
        return Arithmetic("-", Constant(0, "integer"), item)

    def _logic(self, node: Any, depth: int) -> Node:
        """A chain of ANDs is one node, however long: sqlglot nests it to the left."""
        items, name = [], type(node).__name__
        while type(node).__name__ == name:
            self._only(node, "this", "expression")
            items.append(self._node(node.expression, depth))
            node = node.this
        items.append(self._node(node, depth))
        return Logic("AND" if name == "And" else "OR", tuple(reversed(items)))

    def _comparison(self, node: Any, depth: int) -> Node:
        left = self._node(self._only(node, "this", "expression"), depth)
        return Compare(_COMPARISONS[type(node).__name__], left, self._node(node.expression, depth))

    def _arithmetic(self, node: Any, depth: int) -> Node:
        left = self._node(self._only(node, "this", "expression"), depth)
        return Arithmetic(_OPERATORS[type(node).__name__], left, self._node(node.expression, depth))

    def _between(self, node: Any, depth: int) -> Node:
        item = self._node(self._only(node, "this", "low", "high"), depth)
        return Between(item, self._node(node.args["low"], depth), self._node(node.args["high"], depth))

    def _in(self, node: Any, depth: int) -> Node:
        item = self._node(self._only(node, "this", "expressions"), depth)
        choices = tuple(self._node(choice, depth) for choice in node.expressions)
        if not choices:
            raise self._error("IN needs a list such as (1, 2)")
        return In(item, choices)

    def _is(self, node: Any, depth: int) -> Node:
        item = self._node(self._only(node, "this", "expression"), depth)
        if type(node.expression).__name__ != "Null":
            raise self._refused(f"IS {node.expression.sql()}")
        return IsNull(item)

    def _call(self, node: Any, depth: int) -> Node:
        function = _FUNCTIONS[type(node).__name__]
        allowed = ("this", "expressions") if function == "coalesce" else ("this",)
        arguments = [self._only(node, *allowed), *(node.expressions if function == "coalesce" else ())]
        return Call(function, tuple(self._node(argument, depth) for argument in arguments))

    def _like(self, node: Any, depth: int) -> Node:
        escape = None
        if type(node).__name__ == "Escape":
            self._only(node, "this", "expression")
            escape = self._text_literal(node.expression, "ESCAPE")
            if len(escape) != 1:
                raise self._error(f"ESCAPE needs one character, got {escape!r}")
            node = node.this
        if type(node).__name__ not in ("Like", "ILike"):
            raise self._refused("ESCAPE without LIKE")
        item = self._node(self._only(node, "this", "expression", "negate"), depth)
        pattern = self._pattern(self._text_literal(node.expression, "LIKE"), escape)
        like = Like(item, pattern, ignore_case=type(node).__name__ == "ILike")
        return Not(like) if node.args.get("negate") else like

    def _text_literal(self, node: Any, of: str) -> str:
        if type(node).__name__ == "Literal" and node.is_string:
            return str(node.this)
        raise self._error(f"{of} needs a text literal such as '%a%', got {node.sql()[:80]}")

    def _pattern(self, pattern: str, escape: str | None) -> tuple[Piece, ...]:
        if len(pattern) > MAX_PATTERN:
            raise self._error(f"a LIKE pattern has at most {MAX_PATTERN} characters, this one {len(pattern)}")
        pieces: list[Piece] = []
        characters = iter(pattern)
        for character in characters:
            wildcard = character in "%_"
            if character == escape:
                wildcard = False
                character = next(characters, "")
                if character not in ("%", "_", escape):
                    raise self._error(
                        f"in LIKE {pattern!r} the escape character {escape!r} must stand before "
                        f"'%', '_' or itself, and not at the end"
                    )
            if wildcard:
                piece = Piece(None, any_length=character == "%")
                if not (piece.any_length and pieces and pieces[-1] == piece):
                    pieces.append(piece)
            elif pieces and pieces[-1].text is not None:
                pieces[-1] = Piece(pieces[-1].text + character)
            else:
                pieces.append(Piece(character))
        return tuple(pieces)

    def _cast(self, node: Any, depth: int) -> Node:
        item = self._node(self._only(node, "this", "to"), depth)
        wanted = node.args["to"].sql(dialect=_DIALECT).upper()
        kind, bits = _TYPES.get(node.args["to"].this.name, ("other", 0))
        if kind == "other" or node.args["to"].expressions:
            raise self._error(
                f"cannot cast to {wanted}; the types are BIGINT (and smaller), DOUBLE, VARCHAR, BOOLEAN, "
                "TIMESTAMP, DATE"
            )
        if isinstance(item, Constant) and isinstance(item.value, str) and kind in ("timestamp", "date"):
            return read_time(item.value, kind, where=self._place())
        if isinstance(item, Constant) and item.kind == "interval":
            raise self._error(f"an interval cannot be cast to {wanted}")
        return Cast(item, kind, bits)

    def _interval(self, node: Any, _: int) -> Node:
        amount = self._only(node, "this", "unit")
        unit = node.args.get("unit")
        if type(amount).__name__ != "Literal" or (unit is not None and type(unit).__name__ != "Var"):
            raise self._refused(node.sql()[:80])
        text = f"{amount.this} {unit.name if unit is not None else ''}".strip()
        sign, magnitude = (-1, text[1:]) if text.startswith("-") else (1, text)
        try:
            if unit is None and magnitude.replace(".", "").isdecimal():
                raise ConfigError(f"the interval {text!r} has no unit; write INTERVAL '{text} seconds'")
            nanoseconds = parse_duration(magnitude, where="the interval")
        except ConfigError as error:
            raise self._error(str(error)) from None
        if nanoseconds % 1_000:
            raise self._error(f"the interval {text!r} is finer than a microsecond")
        return Constant(sign * nanoseconds // 1_000, "interval")

    def _spelling(self, node: Any, name: str) -> str:
        if name == "Anonymous":
            function = str(node.this)
            near = get_close_matches(function.lower(), get_args(Function), n=1)
            return f"the function {function[:40]}()" + (f" (did you mean {near[0]}()?)" if near else "")
        return name.upper()

    def _refused(self, what: str) -> ExpressionError:
        return self._error(f"{what} is not allowed; a condition is made of {_ALLOWED}")

    def _place(self) -> str:
        return place(self._text, self._where)

    def _error(self, reason: str) -> ExpressionError:
        return ExpressionError(f"{self._place()}: {reason}")
