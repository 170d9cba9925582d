"""The front end as one function: text, names and parameters in, a bound and rewritten statement out."""

from __future__ import annotations

from nile.expressions.places import Fault, statement_error
from nile.expressions.tokens import plain_signs, tokens_of
from nile.sql.catalog import Catalog
from nile.sql.cursor import Cursor
from nile.sql.parameters import Parameters, place_parameters
from nile.sql.parsing import read_other
from nile.sql.queries import read_query
from nile.sql.rewriting import rewrite
from nile.sql.statements import Explain, Select, Statement
from nile.summaries.errors import SqlError

__all__ = ["read_statement"]

MAX_TOKENS = 12_000


def read_statement(text: str, catalog: Catalog, *, params: Parameters = None) -> Statement:
    """One statement of Nile SQL; a query is bound against the catalog and rewritten, nothing is run.

    A semicolon may end it.  params: values for ? (a sequence) or $name (a mapping).  Raises SqlError, which says
    line and column, and NotYet.  Texts of at most 64 KiB, nested at most 64 deep.
    """
    try:
        return _read(text, catalog, params)
    except Fault as fault:
        raise statement_error(fault, text if isinstance(text, str) else "") from None
    except RecursionError:
        raise SqlError("needed a statement of bearable depth; got one that is nested deeper; simplify it") from None


def _read(text: str, catalog: Catalog, params: Parameters) -> Statement:
    text = plain_signs(text)
    tokens = tokens_of(text)
    if len(tokens) > MAX_TOKENS:
        raise Fault(f"needed at most {MAX_TOKENS} words and signs; got {len(tokens)}; split the statement")
    while tokens and tokens[-1].word == ";":
        tokens.pop()
    later = next((token for token in tokens if token.word == ";"), None)
    if later is not None:
        raise Fault("needed one statement; got more after this semicolon; run them one by one", later.start)
    values = place_parameters(tokens, params)
    cursor = Cursor(tokens, values, len(text))
    explain = cursor.take("EXPLAIN")
    analyze = explain and cursor.take("ANALYZE")
    if cursor.word() in ("SELECT", "(", "FROM", "WITH", "ISTREAM", "DSTREAM", "RSTREAM"):
        query = rewrite(read_query(text, tokens[cursor.at :], catalog, values), catalog)
        return Explain(query, analyze) if explain else Select(query)
    if explain:
        raise cursor.fault("SELECT after EXPLAIN")
    return read_other(cursor, text, catalog)
