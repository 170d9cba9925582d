"""The plain functions: a row of one table each, which feeds reading, types, evaluation and tests.

A plain function is null where an argument is; its arguments beyond the first are literals where the table says so.
Values are DuckDB's.  Functions with rules of their own (coalesce, round, date_trunc ...) are in `binding`, `evaluate`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nile.expressions.number_functions import NUMBERS
from nile.expressions.rules import Array, Literal, Plain
from nile.expressions.time_functions import TIMES
from nile.summaries.errors import MemoryRefused
from nile.summaries.heavy import pa, pc

__all__ = ["PLAIN", "Literal", "Plain", "regex_fault"]

_MOST_TEXT = 1 << 28


def _split_part(value: Array, separator: str, index: int) -> Array:
    """The index-th piece, from 1, or of those below 0 from the end; '' where there are not so many."""
    pieces = pc.split_pattern(value, separator)
    often = pc.fill_null(pc.list_value_length(pieces), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    begin = np.cumsum(often) - often
    there = often >= abs(index)
    place = begin + (index - 1 if index > 0 else often + index)
    found = pc.list_flatten(pieces).take(pa.array(np.where(there, place, 0), mask=~there))
    return _where_valid(value, pc.fill_null(found, ""))


def _position(value: Array, part: str) -> Array:
    """Where a text begins, in characters from 1; 0: nowhere."""
    pieces = pc.split_pattern(value, part, max_splits=1)
    first = pc.list_element(pieces, 0)
    there = pc.equal(pc.list_value_length(pieces), 2)
    return pc.if_else(there, pc.add(pc.cast(pc.utf8_length(first), pa.int64()), 1), pa.scalar(0, pa.int64()))


def _padded(pad: Callable[..., Array]) -> Callable[[Array, int, str], Array]:

    def kernel(value: Array, width: int, fill: str) -> Array:
        _refuse_growth(value.nbytes + 4 * width * len(value), "lpad, rpad")
        return pc.utf8_slice_codeunits(pad(value, width, fill), 0, width)

    return kernel


def _regexp_extract(value: Array, pattern: str, group: int = 0) -> Array:
    """The group of the first match, '' where there is none."""
    named, groups = _with_names(pattern)
    if group > groups:
        return _where_valid(value, pa.array([""] * len(value), pa.string()))
    found = pc.struct_field(pc.extract_regex(value, f"(?P<g0>{named})"), f"g{group}")
    return _where_valid(value, pc.fill_null(found, ""))


def _with_names(pattern: str) -> tuple[str, int]:
    """A pattern whose groups have names g1, g2 ..., as Arrow wants them, and how many there are."""
    out, groups, at, inside = [], 0, 0, False
    while at < len(pattern):
        sign = pattern[at]
        out.append(sign)
        if sign == "\\" and at + 1 < len(pattern):
            at += 1
            out.append(pattern[at])
        elif sign == "[" and not inside:
            inside = True
            if pattern[at + 1 : at + 2] in ("]", "^"):
                at += 1
                out.append(pattern[at])
                if out[-1] == "^" and pattern[at + 1 : at + 2] == "]":
                    at += 1
                    out.append("]")
        elif sign == "]":
            inside = False
        elif sign == "(" and not inside and pattern[at + 1 : at + 2] != "?":
            groups += 1
            out.append(f"?P<g{groups}>")
        at += 1
    return "".join(out), groups


def regex_fault(pattern: str) -> str | None:
    """What is wrong with a regular expression; None: nothing.  Groups with names of their own are refused."""
    if "(?P<" in pattern or "(?<" in pattern:
        return "groups with names; leave the names out"
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
        pc.extract_regex(pa.array([""]), f"(?P<g0>{_with_names(pattern)[0]})")
    except pa.ArrowInvalid as error:
        return str(error).split(": ")[-1][:60]
    return None


def _where_valid(value: Array, found: Array) -> Array:
    return pc.if_else(pc.is_valid(value), found, pa.scalar(None, found.type))


def _refuse_growth(size: int, name: str) -> None:
    """Raises MemoryRefused where a batch of text would become too long."""
    if size > _MOST_TEXT:
        raise MemoryRefused(
            f"{name}(): needed at most {_MOST_TEXT:,} bytes of text for one batch of rows; got up to {size:,}; repeat "
            "or replace less of it"
        )


def _repeated(value: Array, count: int) -> Array:
    _refuse_growth(value.nbytes * count, "repeat")
    return pc.binary_repeat(value, count)


def _replaced(value: Array, old: str, new: str) -> Array:
    often = pc.sum(pc.count_substring(value, old)).as_py() or 0
    _refuse_growth(value.nbytes + often * len(new.encode()), "replace")
    return pc.replace_substring(value, old, new)


def _regexp_replace(value: Array, pattern: str, new: str, every: str = "") -> Array:
    often = pc.sum(pc.count_substring_regex(value, pattern)).as_py() or 0
    _refuse_growth(value.nbytes * (1 + new.count("\\")) + often * len(new.encode()), "regexp_replace")
    return pc.replace_substring_regex(value, pattern, new, max_replacements=-1 if every else 1)


def _each(function: Callable[[Any], Any], kind: Callable[[], Any]) -> Callable[[Array], Array]:
    """A function of one value, of each different value once."""

    def kernel(value: Array) -> Array:
        coded = pc.dictionary_encode(value)
        found = pa.array([function(each) for each in coded.dictionary.to_pylist()], kind())
        return found.take(coded.indices)

    return kernel


def _hashed(function: Callable[..., Any]) -> Callable[[Array], Array]:
    return _each(lambda text: function(text.encode(), usedforsecurity=False).hexdigest(), lambda: pa.string())


_code_point = _each(lambda text: ord(text[0]) if text else -1, lambda: pa.int64())
_character = _each(
    lambda code: chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else None, lambda: pa.string()
)


def _translated(value: Array, old: str, new: str) -> Array:
    """Characters of `old` replaced by those of `new` at their places; without one there they go."""
    table: dict[int, str | None] = {}
    for at, sign in enumerate(old):
        table.setdefault(ord(sign), new[at] if at < len(new) else None)
    return _each(lambda text: text.translate(table), lambda: pa.string())(value)


def _whole(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda value: pc.cast(function(value), pa.int64())


_TEXT = Literal("text", 1)
_ANY = Literal("text")
_COUNT = Literal("integer", -(2**31))
_FILL = Literal("text", 1, 1)
_REGEX = Literal("text", regex=True)

PLAIN: Mapping[str, Plain] = {
    "lower": Plain(("text",), "text", lambda value: pc.utf8_lower(value), (), ("lower(t)",)),
    "upper": Plain(("text",), "text", lambda value: pc.utf8_upper(value), (), ("upper(t)",)),
    "length": Plain(("text",), "integer", _whole(lambda v: pc.utf8_length(v)), (), ("length(t)", "len(t)")),
    "reverse": Plain(("text",), "text", lambda value: pc.utf8_reverse(value), (), ("reverse(t)",)),
    "trim": Plain(
        ("text",), "text", lambda value, signs=" ": pc.utf8_trim(value, signs), (Literal("text", 1, optional=True),),
        ("trim(t)", "trim(t, 'a/')"),
    ),
    "ltrim": Plain(
        ("text",), "text", lambda value, signs=" ": pc.utf8_ltrim(value, signs), (Literal("text", 1, optional=True),),
        ("ltrim(t)", "ltrim(t, 'xé')"),
    ),
    "rtrim": Plain(
        ("text",), "text", lambda value, signs=" ": pc.utf8_rtrim(value, signs), (Literal("text", 1, optional=True),),
        ("rtrim(t)", "rtrim(t, 'b')"),
    ),
    "replace": Plain(
        ("text",), "text", _replaced, (_TEXT, _ANY),
        ("replace(t, 'a', 'bb')", "length(replace(t, '/', ''))"),
    ),
    "split_part": Plain(
        ("text",), "text", _split_part, (_TEXT, Literal("integer", -(2**31), zero=False)),
        ("split_part(t, '/', 2)", "split_part(t, '/', 9)", "split_part(t, 'a', -1)"),
    ),
    "string_split": Plain(
        ("text",), "text[]", lambda value, separator: pc.split_pattern(value, separator), (_TEXT,),
        ("string_split(t, '/')", "split(t, 'a')", "len(string_split(t, '='))"),
    ),
    "strpos": Plain(
        ("text",), "integer", _position, (_TEXT,), ("strpos(t, 'b')", "position('/' IN t)", "instr(t, 'é')"),
    ),
    "starts_with": Plain(
        ("text",), "boolean", lambda v, part: pc.starts_with(v, part), (_ANY,), ("starts_with(t, 'a')",),
    ),
    "ends_with": Plain(("text",), "boolean", lambda v, part: pc.ends_with(v, part), (_ANY,), ("ends_with(t, 'b')",)),
    "contains": Plain(
        ("text",), "boolean", lambda v, part: pc.match_substring(v, part), (_TEXT,), ("contains(t, '/')",),
    ),
    "left": Plain(
        ("text",), "text", lambda value, count: pc.utf8_slice_codeunits(value, 0, count), (_COUNT,),
        ("left(t, 2)", "left(t, 0)", "left(t, -1)", "left(t, -9)"),
    ),
    "right": Plain(
        ("text",), "text",
        lambda value, count: pc.utf8_slice_codeunits(value, -count if count else 2**31, None), (_COUNT,),
        ("right(t, 2)", "right(t, 0)", "right(t, -1)", "right(t, -9)"),
    ),
    "repeat": Plain(
        ("text",), "text", _repeated, (Literal("integer", 0, 1000),),
        ("repeat(t, 2)", "repeat(t, 0)"),
    ),
    "lpad": Plain(
        ("text",), "text", _padded(lambda v, width, fill: pc.utf8_lpad(v, width, fill)),
        (Literal("integer", 0, 10_000), _FILL), ("lpad(t, 4, '-')", "lpad(t, 1, 'x')"),
    ),
    "rpad": Plain(
        ("text",), "text", _padded(lambda v, width, fill: pc.utf8_rpad(v, width, fill)),
        (Literal("integer", 0, 10_000), _FILL), ("rpad(t, 4, '-')",),
    ),
    "regexp_matches": Plain(
        ("text",), "boolean", lambda value, pattern: pc.match_substring_regex(value, pattern), (_REGEX,),
        ("regexp_matches(t, '^a.*b')", "regexp_matches(t, '[0-9]+')"),
    ),
    "regexp_extract": Plain(
        ("text",), "text", _regexp_extract, (_REGEX, Literal("integer", 0, 9, optional=True)),
        ("regexp_extract(t, '[a-z]+')", "regexp_extract(t, '(&|^)a=([^&]*)', 2)", "regexp_extract(t, '(x)|(b)', 1)"),
    ),
    "regexp_replace": Plain(
        ("text",), "text",
        _regexp_replace,
        (_REGEX, _ANY, Literal("text", optional=True, only=("g",))),
        ("regexp_replace(t, '[a-c]', '<\\0>')", "regexp_replace(t, '/', '', 'g')"),
    ),
    "regexp_full_match": Plain(
        ("text",), "boolean", lambda value, pattern: pc.match_substring_regex(value, rf"\A(?:{pattern})\z"), (_REGEX,),
        ("regexp_full_match(t, 'a.*b')", "t SIMILAR TO '[a-z]+'"),
    ),
    "strlen": Plain(("text",), "integer", _whole(lambda value: pc.binary_length(value)), (), ("strlen(t)",)),
    "unicode": Plain(("text",), "integer", _code_point, (), ("unicode(t)", "ord(t)")),
    "chr": Plain(("integer",), "text", _character, (), ("chr(CAST(n + 65 AS INTEGER))",)),
    "translate": Plain(
        ("text",), "text", _translated, (_ANY, _ANY), ("translate(t, 'ab', 'xy')", "translate(t, 'a/b', 'é')"),
    ),
    "md5": Plain(("text",), "text", _hashed(hashlib.md5), (), ("md5(t)",)),
    "sha256": Plain(("text",), "text", _hashed(hashlib.sha256), (), ("sha256(t)",)),
    **NUMBERS,
    **TIMES,
}  # fmt: skip
