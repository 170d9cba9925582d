"""Nile's own clauses, split off a SELECT before it is parsed.

WITH PREFERENCE, FADE FACTOR, WINDOW and DWINDOW, BUDGET and ERROR stand at the top level of a statement, in any
order, before or after WHERE (the papers print both); a window of a stream's own stands in brackets after its name,
as CQL has it.  What is read here is blanked out, so that the rest keeps its places.
Source: promising tuples, Figures 3 and 6; window joins (TR 02-010), Forms 1 to 3 and DWINDOW; CQL (CIDR 2003) 2.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from nile.expressions.places import Fault, NotYetFault, Parameter
from nile.expressions.tokens import Token
from nile.preferences.budget import Budget
from nile.sql.cursor import Cursor
from nile.sql.reading.own_windows import (
    STREAM_FUNCTIONS,
    OwnWindow,
    SampleCall,
    is_sample,
    is_window,
    name_behind,
    read_bracket,
    read_sample,
    words_of_flink,
    words_of_session,
    words_of_table,
)
from nile.sql.reading.terms import TermClause, read_term
from nile.summaries.errors import BudgetError

__all__ = ["BEFORE_NAMES", "CLAUSE_WORDS", "Clauses", "OwnWindow", "PairWindow", "split_clauses"]

CLAUSE_WORDS = ("WITH PREFERENCE", "FADE FACTOR", "WINDOW", "DWINDOW", "BUDGET", "BY DEADLINE", "ERROR", "EMIT")
_EMITS = {"SNAPSHOT": "snapshot", "CHANGES": "changes", "APPEND": "append"}
_OPENING = (
    "SELECT FROM WHERE AND OR NOT ON AS BY IN IS JOIN USING UNION INTERSECT EXCEPT HAVING LIMIT OFFSET CASE WHEN THEN "
    "ELSE BETWEEN LIKE ILIKE DISTINCT ALL INTERVAL , ( [ . = == <> != < <= > >= + - * / % || :: // ** ^"
)
BEFORE_NAMES = frozenset(_OPENING.split()) | {"GROUP BY", "ORDER BY"}
"""After these a word is a name, and begins no clause."""
_AFTER = ("WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET", "UNION", "INTERSECT", "EXCEPT", "QUALIFY", ")")
_VALUES = ("NUMBER", "STRING", "PLACEHOLDER", "PARAMETER", "DASH", "DOT")


@dataclass(frozen=True, slots=True)
class PairWindow:
    """WINDOW (left, right) = window, in ns."""

    left: str
    right: str
    window: int
    start: int


@dataclass(frozen=True, slots=True)
class Clauses:
    """What was said beside SQL.  own: windows of streams' own, by the offset of the name or alias before.

    begins: where each clause begins, by name; emit: what comes out, "close" when windows end; every: ns between ticks.
    """

    window: int | None = None
    pairs: tuple[PairWindow, ...] = ()
    directed: bool = False
    preference: Literal["asc", "desc", "weighted"] | None = None
    terms: tuple[TermClause, ...] = ()
    fade: float | None = None
    budget: tuple[str, float] | None = None
    error: tuple[float, float, str] | None = None
    emit: str | None = None
    every: int | None = None
    own: Mapping[int, OwnWindow] = field(default_factory=dict)
    samples: Mapping[int, SampleCall] = field(default_factory=dict)
    begins: Mapping[str, int] = field(default_factory=dict)


def split_clauses(tokens: Sequence[Token], text: str, values: Mapping[int, Parameter]) -> tuple[Clauses, str]:
    """The clauses, and the text with spaces in their place.  values: parameters by offset.  Raises Fault.  O(n)."""
    splitter = _Splitter(tokens, text, values)
    splitter.run()
    return splitter.clauses, splitter.rest


_OF_ONE = ", or give streams in there their own: FROM s [RANGE '1 hour'], t [RANGE '1 hour']"
"""What WINDOW in a subquery may have meant."""


class _Splitter:
    def __init__(self, tokens: Sequence[Token], text: str, values: Mapping[int, Parameter]) -> None:
        self._cursor = Cursor(tokens, values, len(text))
        self._text = text
        self._spans: list[tuple[int, int]] = []
        self._signs: dict[int, str] = {}
        self._begins: dict[str, int] = {}
        self._own: dict[int, OwnWindow] = {}
        self._samples: dict[int, SampleCall] = {}
        self._said = Clauses()

    @property
    def clauses(self) -> Clauses:
        return replace(self._said, own=self._own, samples=self._samples, begins=self._begins)

    @property
    def rest(self) -> str:
        pieces, begin = [], 0
        for start, end in sorted(self._spans):
            pieces += [self._text[begin:start], "".join(" \n"[sign == "\n"] for sign in self._text[start:end])]
            begin = end
        signs = list("".join([*pieces, self._text[begin:]]))
        for at, sign in self._signs.items():
            signs[at] = sign
        return "".join(signs)

    def run(self) -> None:
        cursor, depth = self._cursor, 0
        while cursor.peek() is not None:
            word = cursor.word()
            depth += (word == "(") - (word == ")")
            if word == "[" and is_window(cursor):
                before, window, span = read_bracket(cursor)
                sampled = next(reversed(self._samples.items()), None)
                if (
                    sampled is not None and before == sampled[1].end
                ):  # name SAMPLE (10) [ROWS 5]: the window is the name's
                    before = sampled[0]
                elif self._text[before] == ")":  # of a query, whose name stands behind its window
                    before = name_behind(cursor) or before
                if before in self._own:
                    raise Fault("needed one window for a stream; got another one; leave one out", span[0])
                self._own[before] = window
                self._spans.append(span)
                continue
            if is_sample(cursor) and (named_at := self._before_sample()) is not None:
                start = cursor.start
                self._samples[named_at] = read_sample(cursor)
                self._spans.append((start, cursor.end))
                continue
            if word == "MATCH_RECOGNIZE" and cursor.word(1) == "(":
                raise NotYetFault(
                    "MATCH_RECOGNIZE is not there yet; write lag() and lead() OVER for rows one after another, or a "
                    "join of the stream with itself in a WINDOW",
                    cursor.start,
                )
            if word == "TABLE":
                self._spans += words_of_table(cursor)
            if word == "SESSION" and cursor.word(1) == "(":
                spans, signs = words_of_session(cursor)
                self._spans += spans
                self._signs |= signs
            elif word in STREAM_FUNCTIONS and cursor.word(1) == "(":
                self._spans += words_of_flink(cursor)
            behind = bool(self._spans) and self._spans[-1][1] == cursor.end
            named = cursor.word(-1) in BEFORE_NAMES and (cursor.word(-2), cursor.word(-1)) != ("GROUP BY", "ALL")
            clause = self._clause_here() if cursor.at and (behind or not named) else None
            if clause is None:
                if depth == 0 and word in ("UNION", "INTERSECT", "EXCEPT") and self._begins:
                    first = min(self._begins, key=lambda name: self._begins[name])
                    raise Fault(
                        f"needed {first} after the last SELECT, since it holds for all of them; got it before {word}; "
                        "move it to the end",
                        self._begins[first],
                    )
                self._check_number()
                cursor.at += 1
                continue
            if depth:
                raise Fault(
                    f"needed {clause} at the end of the whole statement; got it inside of parentheses; "
                    f"move it behind them{_OF_ONE if clause == 'WINDOW' else ''}",
                    cursor.start,
                )
            self._read(clause)

    def _before_sample(self) -> int | None:
        """Where the name begins that a SAMPLE is behind: of an alias, or of what has a window in brackets."""
        before = self._cursor.peek(-1)
        if before is None:
            return None
        if before.word == "]":
            return next(reversed(self._own), None)
        return before.start if before.kind in ("VAR", "IDENTIFIER") and before.word not in BEFORE_NAMES else None

    def _check_number(self) -> None:
        """A number ends where a word begins: 0x1F would be 0, called x1F."""
        token, following = self._cursor.peek(), self._cursor.peek(1)
        if token is None or following is None or token.kind != "NUMBER" or token.end != following.start:
            return
        if following.word[:1].isidentifier():
            raise Fault(f"needed a number; got '{token.text}{following.text[:40]}'; leave a space", token.start)

    def _clause_here(self, *, sure: bool = False) -> str | None:
        """Which clause begins here.  sure: nothing but a clause can stand here, or the end."""
        cursor = self._cursor
        word, after, following = cursor.word(), cursor.word(1), cursor.peek(1)
        kind = following.kind if following else ""
        if word == "WITH" and after == "PREFERENCE":
            return "WITH PREFERENCE"
        if word == "FADE" and after == "FACTOR":
            return "FADE FACTOR"
        if word == "BY" and after == "DEADLINE":
            return "BUDGET"
        if word == "EMIT" and after in (*_EMITS, "EVERY", "ON"):
            return word
        if word == "DWINDOW" and after == "(":
            return word
        if word == "WINDOW" and cursor.word(2) == "AS" and cursor.word(3) == "(":
            return None  # a window of SQL's, for OVER
        if word == "WINDOW" and (
            kind in _VALUES or after in ("=", "(", "INTERVAL") or kind == "VAR" or following is None
        ):
            return word
        if word in ("BUDGET", "ERROR") and (kind in _VALUES or (kind == "VAR" and self._is_no_clause(1))):
            return word
        return word if sure and word in CLAUSE_WORDS else None

    def _is_no_clause(self, ahead: int) -> bool:
        """Whether the word so many ahead begins no clause, so that what stands before it is no alias."""
        return self._cursor.word(ahead) not in ("FADE", "DWINDOW", "BUDGET", "ERROR", "WINDOW", "EMIT")

    def _read(self, clause: str) -> None:
        cursor = self._cursor
        start = cursor.start
        if clause in self._begins:
            raise Fault(f"needed {clause} once; got it again; leave one out", start)
        self._begins[clause] = start
        {
            "WITH PREFERENCE": self._preference,
            "FADE FACTOR": self._fade,
            "WINDOW": self._window,
            "DWINDOW": self._window,
            "BUDGET": self._budget,
            "ERROR": self._error,
            "EMIT": self._emit,
        }[clause]()
        self._spans.append((start, cursor.end))
        # Without its clause the text must not come to mean something else: an alias, say.
        if cursor.peek() is not None and cursor.word() not in _AFTER and self._clause_here(sure=True) is None:
            raise cursor.fault("another clause or the end", known=(*_AFTER, *CLAUSE_WORDS))

    def _preference(self) -> None:
        cursor = self._cursor
        cursor.need("WITH", "PREFERENCE")
        kinds: dict[str, Literal["asc", "desc", "weighted"]] = {"ASC": "asc", "DESC": "desc", "WEIGHTED": "weighted"}
        kind = kinds[cursor.one_of(kinds, "asc, desc or weighted")]
        terms = []
        token = cursor.peek()
        named = token is not None and (token.kind in ("VAR", "IDENTIFIER") or token.word == "(")
        if named and self._clause_here(sure=True) is None:
            terms.append(self._term())
            while cursor.take(","):
                terms.append(self._term())
        self._said = replace(self._said, preference=kind, terms=tuple(terms))

    def _term(self) -> TermClause:
        def ends() -> bool:
            return self._cursor.word() in _AFTER or self._clause_here(sure=True) is not None

        return read_term(self._cursor, ends)

    def _emit(self) -> None:
        """EMIT SNAPSHOT | CHANGES | APPEND | EVERY d | ON WINDOW CLOSE."""
        cursor = self._cursor
        cursor.need("EMIT")
        if cursor.take("EVERY"):
            self._said = replace(self._said, emit="changes", every=cursor.duration("EMIT EVERY"))
        elif cursor.take("ON"):
            cursor.need("WINDOW", "CLOSE")
            self._said = replace(self._said, emit="close")
        else:
            self._said = replace(
                self._said, emit=_EMITS[cursor.one_of(_EMITS, "SNAPSHOT, CHANGES, APPEND, EVERY or ON")]
            )

    def _fade(self) -> None:
        cursor = self._cursor
        cursor.need("FADE", "FACTOR")
        cursor.take("=")
        start = cursor.start
        fade = cursor.number("a fade factor above 0 and up to 1, such as 0.8")
        if not 0 < fade <= 1:
            raise Fault(f"needed a fade factor above 0 and up to 1; got {fade:g}; 1 never fades", start)
        self._said = replace(self._said, fade=float(fade))

    def _window(self) -> None:
        cursor = self._cursor
        directed = cursor.word() == "DWINDOW"
        clause = cursor.word()
        cursor.need(clause)
        if cursor.word() != "(":
            cursor.take("=")
            self._said = replace(self._said, window=cursor.duration("WINDOW", least=0))
            return
        pairs = [self._pair()]
        while self._another(clause):
            pairs.append(self._pair())
        self._said = replace(self._said, pairs=tuple(pairs), directed=directed)

    def _another(self, clause: str) -> bool:
        """Whether AND [WINDOW] ( follows; the papers also print the word alone, without AND."""
        cursor = self._cursor
        if cursor.take("AND"):
            other = cursor.word()
            if other in ("WINDOW", "DWINDOW") and other != clause:
                raise Fault(f"needed only {clause}; got {other} too; a join is directed or not", cursor.start)
            cursor.take(clause)
            if cursor.word() != "(":
                raise cursor.fault(f"{clause} (a, b) = w")
            return True
        return cursor.word(1) == "(" and cursor.take(clause)

    def _pair(self) -> PairWindow:
        cursor = self._cursor
        start = cursor.start
        cursor.need("(")
        left = cursor.name("a stream").text
        cursor.need(",")
        right = cursor.name("a stream").text
        cursor.need(")", "=")
        return PairWindow(left, right, cursor.duration("WINDOW", least=0), start)

    def _budget(self) -> None:
        cursor = self._cursor
        if cursor.take("BY", "DEADLINE"):
            start = cursor.start
            self._set_budget("deadline", cursor.duration("BY DEADLINE") / 1e9, start)
            return
        cursor.need("BUDGET")
        cursor.take("=")
        start = cursor.start
        amount = cursor.number("a budget such as 0.1, 10 %, 1000 OUTPUTS or 2 SECONDS")
        unit = "fraction"
        if cursor.take("%") or cursor.take("PERCENT"):
            amount = amount / 100
        elif cursor.take("OUTPUTS") or cursor.take("OUTPUT"):
            unit = "outputs"
        elif cursor.take("SECONDS") or cursor.take("SECOND"):
            unit = "seconds_per_tuple" if cursor.take("PER", "TUPLE") else "seconds"
        elif cursor.take("SHARE"):
            unit = "share"
        self._set_budget(unit, amount, start)

    def _set_budget(self, unit: str, amount: float, start: int) -> None:
        try:
            budget = Budget.of(unit, amount)
        except BudgetError as error:
            raise Fault(str(error), start) from None
        self._said = replace(self._said, budget=(unit, budget.amount))

    def _error(self) -> None:
        cursor = self._cursor
        cursor.need("ERROR")
        cursor.take("=")
        error = cursor.share("an error above 0 and below 1, such as 0.01 or 1 %", 0.0)
        confidence = 0.95
        if cursor.take("CONFIDENCE"):
            confidence = cursor.share("a confidence of 0.5 or more and below 1, such as 0.95", 0.5)
        otherwise = "flag"
        if cursor.take("ELSE"):
            otherwise = cursor.one_of(("FLAG", "REFUSE", "EXACT")).lower()
        self._said = replace(self._said, error=(error, confidence, otherwise))
