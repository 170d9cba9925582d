"""Text to tokens: sqlglot's public tokenizer, and what is refused before anything parses; where parsed nodes stand.

A statement is at most 64 KiB and nested at most 64 deep, which keeps every later phase's recursion shallow; signs
that no statement of Nile has are refused here, so that what they stand for never meets a parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nile.expressions.places import Fault
from nile.summaries.heavy import sqlglot
from nile.summaries.heavy import sqlglot_errors as errors

__all__ = [
    "DIALECT",
    "MAX_DEPTH",
    "MAX_LENGTH",
    "Token",
    "check_text",
    "own_start",
    "plain_signs",
    "split_statements",
    "sql_of",
    "start_of",
    "tokens_of",
]

DIALECT = "duckdb"
MAX_LENGTH = 64 * 1024
MAX_DEPTH = 64
_MAX_PREFIXES = 256
_SIGNS = {"DASH", "PLUS", "INTERVAL"}
_PREFIXED = {"IN", "LIKE", "ILIKE", "BETWEEN", "NULL", "EXISTS"}  # NOT IN is no prefix of its own
_LITERALS = {"STRING", "NUMBER", "IDENTIFIER"}
_SYMBOLS = frozenset("(),.;=<>+-*/%?$[]:") | {"&&", "==", "<>", "!=", "<=", ">=", "||", "::", "=>", "//", "**", "^"}
_WORD = re.compile(r"[^\W\d][\w\s]*")
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|;", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    """A word, number, text or sign.

    kind: STRING, NUMBER, IDENTIFIER (in double quotes) or sqlglot's name of a word or sign; text: without quotes;
    word: in capitals, "" for what is no bare word or sign; start, end: offsets in the statement, end exclusive.
    """

    kind: str
    text: str
    word: str
    start: int
    end: int


_PRINTED = "\u00d7\u2018\u2019"
_CURLED = re.compile("[\u2018\u2019]([^\u2018\u2019'\"]*)\u2019")


def check_text(text: object) -> str:
    """`text`, which is text of a bearable size without characters that no statement has.  Raises Fault."""
    if not isinstance(text, str):
        raise Fault(f"needed a statement as text; got {type(text).__name__}; write it in quotes")
    if len(text) > MAX_LENGTH:
        raise Fault(f"needed at most {MAX_LENGTH} characters; got {len(text)}; split the statement")
    if "\0" in text:
        raise Fault("needed text without NUL characters; got one here; take it out", text.index("\0"))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Fault("needed Unicode text; got half of a surrogate pair here; take it out", error.start) from None
    return text


def plain_signs(text: str) -> str:
    """`text` with the signs of a printed page, outside quotes, as a keyboard has them: a times sign as a star, and
    quotes that curl as straight ones.  Every sign keeps its place.  Raises Fault as check_text.
    """
    check_text(text)
    if not any(sign in text for sign in _PRINTED):
        return text
    pieces, begin = [], 0
    for found in _QUOTED.finditer(text):
        pieces += [_typed(text[begin : found.start()]), found[0]]
        begin = found.end()
    return "".join([*pieces, _typed(text[begin:])])


def _typed(text: str) -> str:
    return _CURLED.sub(r"'\1'", text.replace("\u00d7", "*"))


def tokens_of(text: str) -> list[Token]:
    """The tokens of one statement or expression.  Raises Fault for what no statement has.  O(length)."""
    check_text(text)
    try:
        # After a parenthesis no word begins a command, which sqlglot would take whole, as one text.
        raw = sqlglot.tokenize("(" + text, dialect=DIALECT)
    except (errors.TokenError, ValueError):
        raise Fault("needed quotes and comments that end; got one that does not; close it", _open_quote(text)) from None
    tokens = [_token(each, text) for each in raw[1:]]
    _check_nesting(tokens)
    return tokens


def _token(raw: sqlglot.Token, text: str) -> Token:
    kind, start, end = raw.token_type.name, raw.start - 1, raw.end
    if kind in _LITERALS:
        return Token(kind, raw.text, "", start, end)
    written = text[start:end]
    if written not in _SYMBOLS and not _WORD.fullmatch(written):
        raise Fault(f"needed a word, a number, a text or one of Nile's signs; got {written[:40]!r}", start)
    return Token(kind, raw.text, raw.text.upper(), start, end)


def _check_nesting(tokens: list[Token]) -> None:
    """Refuses what could overflow a parser's stack."""
    depth = prefixes = brackets = 0
    for at, (token, following) in enumerate(zip(tokens, [*tokens[1:], None], strict=False)):
        kind = token.kind
        after = following.kind if following else ""
        depth += (token.word in ("(", "[")) - (token.word in (")", "]")) + (kind == "CASE") - (kind == "END")
        brackets += (token.word == "[") - (token.word == "]")
        if token.word == ":" and brackets <= 0 and tokens[max(at - 2, 0)].word != "LAMBDA":  # refused by its name
            raise Fault("needed a word, a number, a text or one of Nile's signs; got ':'", token.start)
        prefixes += (
            (kind == "NOT" and after not in _PREFIXED)
            or (kind == after and token.word not in ("(", ")", "[", "]") and kind not in _LITERALS)
            or (kind in _SIGNS and after in _SIGNS)
        )
        if depth > MAX_DEPTH or prefixes > _MAX_PREFIXES:
            raise Fault(f"needed at most {MAX_DEPTH} levels of nesting; got more here; simplify it", token.start)


def _open_quote(text: str) -> int:
    """Where the quote or comment begins that does not end."""
    rest = _QUOTED.sub(lambda found: " " * len(found[0]), text)
    return min((at for at in (rest.find(sign) for sign in ("'", '"', "/*", "$$")) if at >= 0), default=0)


def split_statements(text: str) -> tuple[str, ...]:
    """The statements of a script, without the semicolons between them; empty ones are left out."""
    pieces, begin = [], 0
    for found in _QUOTED.finditer(text):
        if found[0] == ";":
            pieces.append(text[begin : found.start()])
            begin = found.end()
    pieces.append(text[begin:])
    return tuple(piece.strip() for piece in pieces if not is_blank(piece))


def is_blank(text: str) -> bool:
    """Whether there is nothing but white space and comments."""
    comments = _QUOTED.sub(lambda found: "" if found[0][:2] in ("--", "/*") else found[0], text)
    return not comments.strip()


def ends(tokens: Iterable[Token]) -> int:
    """Where the last of them ends; 0 for none."""
    return max((token.end for token in tokens), default=0)


def start_of(node: Any) -> int | None:
    """The offset in the text of the first part of a node of sqlglot's that knows its own; None: none does."""
    own = own_start(node)
    if own is not None:
        return own
    starts = [start for start in map(own_start, node.walk()) if start is not None] if hasattr(node, "walk") else []
    return min(starts, default=None)


def own_start(node: Any) -> int | None:
    """The offset in the text of a node itself, where it knows one."""
    meta = getattr(node, "_meta", None)
    start = meta.get("start") if meta else None
    return start if isinstance(start, int) else None


def sql_of(node: Any) -> str:
    """A node as SQL, for a message."""
    if node is None:
        return "nothing"
    try:
        return str(node.sql(dialect=DIALECT, unsupported_level=errors.ErrorLevel.IGNORE))[:80]
    except (ValueError, RecursionError):
        return type(node).__name__.upper()
