"""Values for ? and $name: where they stand in a statement, and which is whose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nile.sql.places import Fault, listed, nearest
from nile.sql.tokens import Token

__all__ = ["Parameters", "place_parameters", "put_zeros"]

Parameters = Sequence[Any] | Mapping[str, Any] | None


def place_parameters(tokens: Sequence[Token], params: Parameters) -> dict[int, Any]:
    """The value of each parameter by the offset where it stands.

    params: a sequence for ? (in order) and $1, $2, ...; a mapping for $name.  Raises Fault for one that is missing,
    or given and not asked for.
    """
    if params is not None and (isinstance(params, str | bytes) or not isinstance(params, Sequence | Mapping)):
        raise Fault(f"needed params as a list or a dict; got {type(params).__name__}")
    values: dict[int, Any] = {}
    used: set[Any] = set()
    for at, token in enumerate(tokens):
        if token.word not in ("?", "$"):
            continue
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        if token.word == "?":
            key: Any = sum(1 for each in tokens[:at] if each.word == "?")
        elif following is None or following.start != token.end or following.kind in ("STRING", "IDENTIFIER"):
            raise Fault("needed a name or a number after $; got something else", token.start)
        else:
            key = int(following.text) - 1 if following.text.isdecimal() else following.text
        values[token.start] = _checked(_value(key, params, token.start), token.start)
        used.add(key)
    given = range(len(params)) if isinstance(params, Sequence) else params or ()
    unused = [key for key in given if key not in used]
    if unused:
        shown = listed(f"number {key + 1}" if isinstance(key, int) else f"${key}" for key in unused)
        raise Fault(f"needed as many parameters as the statement has; got {shown}, which it has not; leave it out")
    return values


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


def put_zeros(text: str, tokens: Sequence[Token], values: Mapping[int, Any]) -> str:
    """The text with a 0 where each parameter begins, so that what parses it finds a literal there."""
    pieces, begin = [], 0
    for at, token in enumerate(tokens):
        if token.start not in values:
            continue
        end = token.end if token.word == "?" else tokens[at + 1].end
        pieces += [text[begin : token.start], "0", " " * (end - token.start - 1)]
        begin = end
    return "".join([*pieces, text[begin:]])
