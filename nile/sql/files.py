"""Files in FROM: a string in place of a stream's name is a file, or a glob, for this statement only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from nile.expressions.places import Fault
from nile.expressions.tokens import Token, plain_signs, tokens_of

__all__ = ["named_files", "own_alias"]

_QUERY, _SOURCES, _OTHER = range(3)
_AFTER_SOURCES = (
    "ON",
    "USING",
    "WHERE",
    "GROUP",
    "HAVING",
    "QUALIFY",
    "ORDER",
    "LIMIT",
    "WINDOW",
    "UNION",
    "EXCEPT",
    "INTERSECT",
)
_READERS = (
    "READ_PARQUET",
    "PARQUET_SCAN",
    "READ_CSV",
    "READ_CSV_AUTO",
    "READ_JSON",
    "READ_JSON_AUTO",
    "READ_NDJSON",
    "READ_NDJSON_AUTO",
)
"""What DuckDB calls around a file."""
_LONGEST = 4_096
"""Signs of a statement that is remembered, at most."""
_STEM = re.compile(r"[^\W\d]\w*")


def named_files(text: str) -> tuple[str, tuple[str, ...]]:
    """The statement with each file in a FROM as a name in double quotes, in the same place, and these files.

    FROM in EXTRACT, TRIM, SUBSTRING and IS DISTINCT FROM is none of a query; statements that begin with CREATE say
    themselves where their rows are.  What does not read is left as it is, for `read_statement` to say.  O(length); of
    what was asked lately O(1).
    """
    return _asked(text) if isinstance(text, str) and len(text) <= _LONGEST else _named_files(text)


def _named_files(text: str) -> tuple[str, tuple[str, ...]]:
    try:
        text = plain_signs(text)
        tokens = tokens_of(text)
    except Fault:
        return text, ()
    if not tokens or tokens[0].word == "CREATE":
        return text, ()
    found: dict[str, None] = {}
    written, before, places = text, "", [_QUERY]  # by parenthesis: what stands in it
    for at, token in enumerate(tokens):
        if token.word == "(":
            places.append(_QUERY if before in ("FROM", "JOIN", "(", ",") and places[-1] == _SOURCES else _OTHER)
        elif token.word == ")" and len(places) > 1:
            places.pop()
        elif token.word in ("SELECT", "WITH"):
            places[-1] = _QUERY
        elif token.word in ("FROM", "JOIN") and places[-1] != _OTHER and before != "DISTINCT":
            places[-1] = _SOURCES
        elif token.word in _AFTER_SOURCES and places[-1] == _SOURCES:
            places[-1] = _QUERY
        elif places[-1] == _SOURCES and before in ("FROM", "JOIN", ","):
            file = token if token.kind == "STRING" else _read_by(tokens[at : at + 4])
            if file and text[file.start : file.end] == f"'{file.text}'" and '"' not in file.text:
                end = token.end if file is token else tokens[at + 3].end
                named = f'{" " * (file.start - token.start)}"{file.text}"{" " * (end - file.end)}'
                written = written[: token.start] + named + written[end:]
                found[file.text] = None
        elif token.word == "COPY" and not before:
            places[-1] = _OTHER
        before = token.word
    return written, tuple(found)


_asked = lru_cache(maxsize=64)(_named_files)


def _read_by(tokens: Sequence[Token]) -> Token | None:
    """The file, where tokens begin with read_parquet('sales.parquet') or another of DuckDB's readers."""
    name, *rest = tokens
    if name.word not in _READERS or [each.word or each.kind for each in rest] != ["(", "STRING", ")"]:
        return None
    return rest[1]


def own_alias(name: str) -> str:
    """What a source is called that has no alias: its name; a file by its stem, a glob that has none by its folder."""
    if name.isidentifier():
        return name
    stems = [part.split(".")[0] for part in reversed(re.split(r"[/\\\\]", name))]
    return next((stem for stem in stems if _STEM.fullmatch(stem)), "file")
