"""sqlglot's parse errors in Nile's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nile.expressions.places import Fault, Parameter, nearest
from nile.expressions.tokens import DIALECT, Token, tokens_of
from nile.sql.reading.clauses import CLAUSE_WORDS
from nile.summaries.heavy import sqlglot

__all__ = ["parse_fault"]

_STATEMENT_WORDS = (*CLAUSE_WORDS, "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET")


def parse_fault(error: Any, text: str, values: Mapping[int, Parameter]) -> Fault:
    """What sqlglot could not parse, in Nile's words.  values: parameters, for which `text` has zeros."""
    details = (error.errors or [{}])[0]
    description = str(details.get("description") or "")
    highlight = str(details.get("highlight") or "")
    try:
        tokens = tokens_of(text)
    except Fault as fault:
        return fault
    at = _token_at(tokens, text, details)
    start = tokens[at].start if at is not None else None
    parameter = None if start is None else values.get(start)
    if parameter is not None and start is not None:
        return parameter.misplaced(start)
    before = tokens[at - 1] if at else None
    near = nearest(highlight, _STATEMENT_WORDS) if len(highlight) > 2 else None
    if near is None and before is not None and before.kind == "VAR":
        near = nearest(before.text, _STATEMENT_WORDS)
    hint = f"; did you mean {near}?" if near and near != highlight.upper() else ""
    if description.startswith("Expecting"):
        return Fault(f"needed {description.removeprefix('Expecting').strip()}; got '{highlight}'{hint}", start)
    if at is not None and at > 1 and [each.text for each in tokens[at - 1 : at + 1]] == ["(", ")"]:
        return Fault(f"needed something between the brackets of {tokens[at - 2].text}; got nothing", start)
    if description.startswith("Required"):
        return Fault(f"needed something more after '{highlight}'; got nothing that fits{hint}", start)
    return Fault(f"needed another clause or the end; got '{highlight[:40]}'{hint}", start)


def _token_at(tokens: list[Token], text: str, details: Mapping[str, Any]) -> int | None:
    """Which token an error of sqlglot's is about: it gives the line and column of the token's end."""
    for at, raw in enumerate(sqlglot.tokenize(text, dialect=DIALECT)):
        if (raw.line, raw.col) == (details.get("line"), details.get("col")) and at < len(tokens):
            return at
    return None
