"""A stream's own window, in brackets after its name (CQL), and the syntax of Flink's window functions."""

from __future__ import annotations

from dataclasses import dataclass

from nile.expressions.places import Fault
from nile.sql.cursor import Cursor, written
from nile.sql.windows import Rows, Slide, StreamWindow

__all__ = [
    "SESSION", "STREAM_FUNCTIONS", "OwnWindow", "SampleCall", "is_sample", "is_window", "name_behind", "read_bracket",
    "read_sample",
    "words_of_flink", "words_of_session",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class SampleCall:
    """SAMPLE (percent) [REPEATABLE (seed)] behind a stream.

    share: of its tuples, above 0; start, end: where it begins, and where its last sign does.
    """

    share: float
    seed: int
    start: int
    end: int


SESSION = "SESSI0N"
"""SESSION as it is parsed: as it is written it is a word of sqlglot's."""
STREAM_FUNCTIONS = ("TUMBLE", "HOP", SESSION)
"""Functions in FROM that give rows with the bounds of their windows."""


@dataclass(frozen=True, slots=True)
class OwnWindow:
    """[RANGE d SLIDE d WHERE ...], [PARTITION BY ... ROWS n WHERE ...] or [NOW].

    where: the condition's place in the text; start: the bracket's.
    """

    window: StreamWindow
    where: tuple[int, int] | None
    start: int


def is_window(cursor: Cursor) -> bool:
    """Whether a bracket holds a window, or words that look as if they were meant for one; else it is of a list."""
    if cursor.word(1) in ("RANGE", "ROWS", "NOW", "PARTITION BY"):
        return True
    inside, then = cursor.peek(1), cursor.peek(2)
    before = cursor.peek(-1)
    named = before is not None and before.kind in ("VAR", "IDENTIFIER")
    return named and inside is not None and inside.kind == "VAR" and then is not None and then.kind in ("NUMBER", "VAR")


def read_bracket(cursor: Cursor) -> tuple[int, OwnWindow, tuple[int, int]]:
    """(where the name before begins, the window, from where to where it stands) of a bracket.  Raises Fault."""
    start, before = cursor.start, cursor.peek(-1)
    cursor.need("[")
    if before is None or cursor.word() not in ("RANGE", "ROWS", "NOW", "PARTITION BY"):
        raise Fault(
            "needed RANGE, ROWS, NOW or PARTITION BY, which begin a stream's window; got "
            f"{written(cursor.peek())} in brackets; an element of a list is x[1] or list_extract(x, i)",
            start,
        )
    by = _parts(cursor)
    window: StreamWindow = None
    if cursor.take("NOW"):
        window = 0
    elif cursor.take("ROWS"):
        place = cursor.start
        count = cursor.whole("a whole number of rows above 0")
        if not 0 < count < 2**31:
            raise Fault(f"needed a whole number of rows above 0; got {count}", place)
        window = Rows(count, by)
    else:
        cursor.need("RANGE")
        window = None if cursor.take("UNBOUNDED") else cursor.duration("RANGE")
    cursor.take("PRECEDING")
    place = cursor.start
    if cursor.take("SLIDE"):
        if not isinstance(window, int) or not window:
            raise Fault("needed RANGE and a duration before SLIDE; got another window", place)
        window = Slide(window, cursor.duration("SLIDE"))
    where = None
    if cursor.take("WHERE"):
        begin, depth = cursor.start, 0
        while cursor.peek() is not None and not (cursor.word() == "]" and depth == 0):
            depth += (cursor.word() in "([" and cursor.word() != "") - (cursor.word() in ")]" and cursor.word() != "")
            cursor.at += 1
        where = (begin, cursor.end)
    if where is None and cursor.word() != "]" and isinstance(window, int) and window:
        raise Fault(
            f"needed a unit of time (SECONDS, MINUTES, HOURS, DAYS), SLIDE, WHERE or ']'; got {written(cursor.peek())}",
            cursor.start,
        )
    cursor.need("]")
    return before.start, OwnWindow(window, where, start), (start, cursor.end)


def name_behind(cursor: Cursor) -> int | None:
    """Where the name of a query stands, AS t, whose window came before it; None where none does."""
    name = cursor.peek(1)
    return name.start if cursor.word() == "AS" and name is not None else None


def _parts(cursor: Cursor) -> tuple[str, ...]:
    """PARTITION BY column, ...: of RANGE they mean nothing, since every tuple is as old as it is."""
    if not cursor.take("PARTITION BY"):
        return ()
    names = [_column(cursor)]
    while cursor.take(","):
        names.append(_column(cursor))
    return tuple(names)


def _column(cursor: Cursor) -> str:
    name = cursor.name("a column").text
    return cursor.name("a column").text if cursor.take(".") else name


def is_sample(cursor: Cursor) -> bool:
    """Whether SAMPLE (percent) stands here, behind a name or a window."""
    signed = cursor.word(2) == "-" and cursor.word(4) in (")", "%", ".")
    return cursor.word() == "SAMPLE" and cursor.word(1) == "(" and (signed or cursor.word(3) in (")", "%", "."))


def read_sample(cursor: Cursor) -> SampleCall:
    """SAMPLE (percent [%]) [REPEATABLE (seed)].  Raises Fault."""
    start = cursor.start
    cursor.need("SAMPLE", "(")
    place = cursor.start
    percent = float(cursor.number("a percentage above 0 and up to 100, such as SAMPLE (10)"))
    if not 0 < percent <= 100:
        raise Fault(f"needed a percentage above 0 and up to 100 in SAMPLE; got {percent:g}", place)
    cursor.take("%")
    cursor.need(")")
    seed = 0
    if cursor.take("REPEATABLE"):
        cursor.need("(")
        seed = cursor.whole("a whole number, the seed")
        cursor.need(")")
    last = cursor.peek(-1)
    return SampleCall(percent / 100, seed, start, start if last is None else last.start)


def words_of_session(cursor: Cursor) -> tuple[list[tuple[int, int]], dict[int, str]]:
    """(what says nothing more, signs that stand for others) in SESSION (TABLE s PARTITION BY k, DESCRIPTOR (ts), d)."""
    ahead, depth = 2, 1
    spans: list[tuple[int, int]] = []
    signs = {cursor.start + SESSION.index("0"): "0"}
    while (token := cursor.peek(ahead)) is not None and depth:
        word = cursor.word(ahead)
        depth += (word == "(") - (word == ")")
        if word == "TABLE" and ahead == 2:
            spans.append((token.start, token.end))
        elif word == "PARTITION BY" and depth == 1:
            spans.append((token.start, token.end))
            signs[token.start] = ","
        elif word == "DESCRIPTOR":
            for which in (ahead, ahead + 1, ahead + 3):
                part = cursor.peek(which)
                if part is not None:
                    spans.append((part.start, part.end))
        ahead += 1
    return spans, signs


def words_of_flink(cursor: Cursor) -> list[tuple[int, int]]:
    """Where TABLE and DESCRIPTOR (...) stand in TUMBLE (TABLE s, DESCRIPTOR (ts), ...): they say nothing more."""
    ahead, spans = 2, []
    token = cursor.peek(ahead)
    if cursor.word(ahead) == "TABLE" and token is not None:
        spans.append((token.start, token.end))
        ahead += 1
    while cursor.peek(ahead) is not None and cursor.word(ahead) not in (",", "(", ")"):
        ahead += 1
    if cursor.word(ahead + 1) == "DESCRIPTOR" and cursor.word(ahead + 2) == "(" and cursor.word(ahead + 4) == ")":
        first, last, end = cursor.peek(ahead + 1), cursor.peek(ahead + 2), cursor.peek(ahead + 4)
        assert first is not None
        assert last is not None
        assert end is not None
        spans += [(first.start, last.end), (end.start, end.end)]
    return spans


def words_of_table(cursor: Cursor) -> list[tuple[int, int]]:
    """Where TABLE ( and ) stand around TUMBLE (...), HOP (...) or SESSION (...), as Flink writes them."""
    if cursor.word(1) != "(" or cursor.word(2) not in STREAM_FUNCTIONS or cursor.word(3) != "(":
        return []
    ahead, depth = 2, 1
    while depth and cursor.peek(ahead) is not None:
        depth += {"(": 1, ")": -1}.get(cursor.word(ahead), 0)
        ahead += 1
    first, opening, closing = cursor.peek(0), cursor.peek(1), cursor.peek(ahead - 1)
    if depth or first is None or opening is None or closing is None:
        return []
    return [(first.start, opening.end), (closing.start, closing.end)]
