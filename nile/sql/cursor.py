"""A position in a statement's tokens, and the small things that every part of the grammar reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nile.base.durations import is_unit, parse_duration
from nile.expressions.places import Fault, Parameter, nearest
from nile.expressions.tokens import Token
from nile.summaries.errors import ConfigError

__all__ = ["Cursor", "ends_of_parts", "is_reserved", "written"]

_RESERVED = (
    "SELECT FROM WHERE WITH AND OR NOT ON AS BY IN IS JOIN USING UNION INTERSECT EXCEPT HAVING LIMIT OFFSET WINDOW "
    "GROUP ORDER CASE WHEN THEN ELSE END BETWEEN LIKE ILIKE DISTINCT ALL CREATE NULL TRUE FALSE"
)
_NOT_NAMES = frozenset(_RESERVED.split())


class Cursor:
    """Reads tokens one after the other.  values: what parameters hold, by the offset where they stand.

    Every method that needs something raises Fault, with the place, where something else is.
    """

    def __init__(self, tokens: Sequence[Token], values: Mapping[int, Parameter], length: int, at: int = 0) -> None:
        self.tokens = tokens
        self.values = values
        self.at = at
        self._length = length

    def peek(self, ahead: int = 0) -> Token | None:
        """The token so many ahead; None beyond the last."""
        at = self.at + ahead
        return self.tokens[at] if 0 <= at < len(self.tokens) else None

    def word(self, ahead: int = 0) -> str:
        """Its word, "" where there is none."""
        token = self.peek(ahead)
        return token.word if token else ""

    @property
    def start(self) -> int:
        """The offset of the next token, or of the end."""
        token = self.peek()
        return token.start if token else self._length

    @property
    def end(self) -> int:
        """Where the token before ends."""
        return self.tokens[self.at - 1].end if self.at else 0

    def take(self, *words: str) -> bool:
        """Steps over the words if they stand here."""
        if any(self.word(ahead) != word for ahead, word in enumerate(words)):
            return False
        self.at += len(words)
        return True

    def need(self, *words: str) -> None:
        """Steps over the words, which must stand here."""
        for word in words:
            if not self.take(word):
                raise self.fault(f"'{word}'")

    def one_of(self, words: Iterable[str], what: str | None = None) -> str:
        """Steps over one of the words and says which."""
        choices = list(words)
        for word in choices:
            if self.take(word):
                return word
        raise self.fault(what or " or ".join(choices), known=choices)

    def name(self, what: str) -> Token:
        """A name, bare or in double quotes."""
        token = self.peek()
        bare = token is not None and token.word not in _NOT_NAMES and token.word[:1].isidentifier()
        if token is None or not (bare or token.kind == "IDENTIFIER"):
            raise self.fault(what)
        if not token.text:
            raise self.fault(what)
        self.at += 1
        return token

    def number(self, what: str) -> float | int:
        """A number, maybe negative, or a parameter that is one."""
        begin = self.at
        sign = -1 if self.take("-") else 1
        token = self.peek()
        if token is not None and token.start in self.values:
            value = self.values[token.start].value
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise Fault(f"needed {what}; got {value!r:.40} as the parameter", token.start)
            self._over_parameter()
            return sign * value
        digits = self._digits()
        if digits is None:
            self.at = begin
            raise self.fault(what)
        try:
            return sign * (int(digits) if digits.isdecimal() and len(digits) < 100 else float(digits))
        except ValueError:  # 8E, which is a number to the tokenizer
            self.at = begin
            raise self.fault(what) from None

    def whole(self, what: str) -> int:
        """A whole number."""
        start = self.start
        value = self.number(what)
        if not isinstance(value, int):
            raise Fault(f"needed {what}; got {value:g}", start)
        return value

    def text(self, what: str) -> str:
        """A text in quotes that is not empty."""
        token = self.peek()
        if token is None or token.kind != "STRING" or not token.text:
            raise self.fault(what)
        self.at += 1
        return token.text

    def duration(self, what: str, *, least: int = 1) -> int:
        """A duration in ns: seconds, '1 hour', 1 HOUR, INTERVAL '1 hour' or a parameter."""
        start = self.start
        self.take("INTERVAL")
        token = self.peek()
        given: Any
        if token is not None and token.start in self.values:
            given = self.values[token.start].value
            self._over_parameter()
        elif token is not None and token.kind == "STRING":
            given = token.text
            self.at += 1
            if is_unit(self.word()):
                given += f" {self.word()}"
                self.at += 1
        else:
            given = self._written_duration(what)
        try:
            return parse_duration(given, where=what, least=least)
        except ConfigError as error:
            raise Fault(str(error), start) from None

    def share(self, what: str, least: float) -> float:
        """A number above 0 and below 1, at least `least`, or so many percent."""
        start = self.start
        share = float(self.number(what))
        if self.take("%") or self.take("PERCENT"):
            share /= 100
        if not least <= share < 1 or share == 0:
            raise Fault(f"needed {what}; got {share:g}", start)
        return share

    def _written_duration(self, what: str) -> str:
        parts: list[str] = []
        while True:
            begin = self.at
            digits = self._digits()
            if digits is None or (parts and not is_unit(self.word())):
                self.at = begin
                break
            parts.append(digits)
            if not is_unit(self.word()):
                break
            parts.append(self.word().lower())
            self.at += 1
        if not parts:
            raise self.fault(f"{what} as a number of seconds, '1 hour' or 1 HOUR")
        return " ".join(parts)

    def _digits(self) -> str | None:
        token, following = self.peek(), self.peek(1)
        if token is not None and token.kind == "NUMBER":
            self.at += 1
            return token.text
        if token is not None and following is not None and token.word == "." and following.kind == "NUMBER":
            self.at += 2
            return f"0.{following.text}"
        return None

    def _over_parameter(self) -> None:
        self.at += 1 if self.word() == "?" else 2

    def finish(self) -> None:
        """There must be nothing more."""
        if self.peek() is not None:
            raise self.fault("the end of the statement")

    def fault(self, needed: str, *, known: Iterable[str] = ()) -> Fault:
        """That something else was needed here."""
        token = self.peek()
        near = nearest(token.text, known) if token is not None and known else None
        hint = f"; did you mean {near}?" if near else ""
        got = self.values.get(self.start) or written(token)
        return Fault(f"needed {needed}; got {got}{hint}", self.start)


def is_reserved(word: str) -> bool:
    """Whether a word is no name unless in double quotes."""
    return word.upper() in _NOT_NAMES


def written(token: Token | None) -> str:
    """A token for a message."""
    if token is None:
        return "the end"
    return f"'{token.text[:40]}'"


def ends_of_parts(cursor: Cursor) -> list[int]:
    """Where each part of a list ends that goes on to the bracket that closes: indices of its commas and of that.

    Raises Fault where no bracket closes it, or a part is empty.
    """
    ends, depth, begin = [], 0, cursor.at
    for at in range(cursor.at, len(cursor.tokens)):
        word = cursor.tokens[at].word
        if depth == 0 and word in (",", ")"):
            if at == begin:
                raise Fault("needed a column or an expression; got none", cursor.tokens[at].start)
            ends.append(at)
            begin = at + 1
            if word == ")":
                return ends
        depth += (word == "(") - (word == ")")
    raise Fault("needed ')' at the end of the list; got the end", cursor.tokens[-1].end)
