"""Values for ? and $name: where they occur in a statement, and which value belongs where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nile.expressions.places import Fault, Parameter, listed, nearest
from nile.expressions.tokens import Token
from nile.sql.reading.clauses import BEFORE_NAMES, CLAUSE_WORDS

__all__ = ["Parameters", "check_places", "place_parameters", "put_zeros"]

Parameters = Sequence[Any] | Mapping[str, Any] | None

_SQL = (
    "SELECT FROM JOIN ON USING WHERE HAVING LIMIT OFFSET UNION INTERSECT EXCEPT CREATE DROP SHOW DESCRIBE LATENESS "
    "GRANULARITY COLLAPSE"
)
_CLAUSES = frozenset(_SQL.split()) | {"GROUP BY", "ORDER BY"}
_PAIRS = ("WITH PREFERENCE", "FADE FACTOR", "TIMESTAMP BY")
_NO_VALUE_AFTER = re.compile(
    r"(?:\b(?:AS|IN|INTERVAL|IS|IS\s+NOT|ESCAPE)|\b(?:EXTRACT|DATE_TRUNC)\s*\(|\.)\s*\Z", re.IGNORECASE
)
_LOOKS_BACK = 64


def place_parameters(tokens: Sequence[Token], params: Parameters) -> dict[int, Parameter]:
    """Each parameter by the offset where it stands.  O(tokens).

    params: a sequence for ? (in order) and $1, $2, ...; a mapping for $name.  Raises Fault for one that is missing,
    or given and not asked for.
    """
    if params is not None and (isinstance(params, str | bytes) or not isinstance(params, Sequence | Mapping)):
        raise Fault(f"needed params as a list or a dict; got {type(params).__name__}")
    values: dict[int, Parameter] = {}
    used: set[Any] = set()
    marks = 0
    for at, (token, clause) in enumerate(zip(tokens, _clauses(tokens), strict=True)):
        if token.word not in ("?", "$"):
            continue
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        if token.word == "?":
            key: Any = marks
            marks += 1
        elif following is None or following.start != token.end or following.kind in ("STRING", "IDENTIFIER"):
            raise Fault("needed a name or a number after $; got something else", token.start)
        else:
            key = int(following.text) - 1 if following.text.isdecimal() else following.text
        text = "?" if token.word == "?" or following is None else f"${following.text[:40]}"
        values[token.start] = Parameter(_checked(_value(key, params, token.start), token.start), text, clause)
        used.add(key)
    given = range(len(params)) if isinstance(params, Sequence) else params or ()
    unused = [key for key in given if key not in used]
    if unused:
        shown = listed(f"number {key + 1}" if isinstance(key, int) else f"${key}" for key in unused)
        raise Fault(f"needed as many parameters as the statement has; got {shown}, which it has not; leave it out")
    return values


def _clauses(tokens: Sequence[Token]) -> Iterator[str]:
    """The clause that each token stands in."""
    around = ["the statement"]
    before = ""
    for at, token in enumerate(tokens):
        pair = f"{before} {token.word}"
        if token.word in ("(", "["):
            around.append(around[-1])
        elif token.word in (")", "]") and len(around) > 1:
            around.pop()
        elif pair in _PAIRS:
            around[-1] = pair
        elif token.word in _CLAUSES or (token.word in CLAUSE_WORDS and at and before not in BEFORE_NAMES):
            around[-1] = token.word
        before = token.word
        yield around[-1]


def check_places(text: str, values: Mapping[int, Parameter], begin: int, end: int) -> None:
    """Whether values can stand where the parameters from offset to offset stand.  Raises Fault.

    Only where the words beside tell, which a parser would read in another way.  text: with zeros for them.
    """
    for start, parameter in values.items():
        if not begin <= start < end or text[start] != "0":
            continue
        behind = text[start + 1 : start + _LOOKS_BACK].lstrip()
        if _NO_VALUE_AFTER.search(text[max(begin, start - _LOOKS_BACK) : start]) or behind[:1] in (".", "("):
            raise parameter.misplaced(start)


def _value(key: int | str, params: Parameters, start: int) -> Any:
    if isinstance(key, str):
        if not isinstance(params, Mapping):
            raise Fault(f"needed params={{'{key}': ...}} for ${key}; got {_got(params)}", start)
        if key not in params:
            near = nearest(key, map(str, params))
            hint = f"; did you mean ${near}?" if near else ""
            raise Fault(f"needed a value for ${key}; got {listed(map(str, params)) or 'none'}{hint}", start)
        return params[key]
    if isinstance(params, Mapping) or params is None:
        raise Fault(f"needed params=[...] with {key + 1} or more values; got {_got(params)}", start)
    if not 0 <= key < len(params):
        raise Fault(f"needed a value for parameter {key + 1}; got {len(params)} of them", start)
    return params[key]


def _checked(value: Any, start: int) -> Any:
    """A value; text must be text that Arrow can hold.  Raises Fault."""
    if isinstance(value, str) and any("\ud800" <= sign <= "\udfff" for sign in value):
        raise Fault("needed Unicode text as the parameter; got half of a surrogate pair in it; take it out", start)
    return value


def _got(params: Parameters) -> str:
    return "none" if params is None else "a list" if isinstance(params, Sequence) else "a dict"


def put_zeros(text: str, tokens: Sequence[Token], values: Mapping[int, Parameter]) -> str:
    """The text with a 0 where each parameter begins, so that what parses it finds a literal there."""
    pieces, begin = [], 0
    for at, token in enumerate(tokens):
        if token.start not in values:
            continue
        end = token.end if token.word == "?" else tokens[at + 1].end
        pieces += [text[begin : token.start], "0", " " * (end - token.start - 1)]
        begin = end
    return "".join([*pieces, text[begin:]])
