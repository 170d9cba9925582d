"""The catalogue of aggregates: what each is called, of what it is, and what has to be kept to know it.

Names and meanings are DuckDB's.  Nulls do not count; NaN is the largest number; -0.0 is 0.0; of no value a count is
0 and everything else null.  SQL, `db.aggregate`, groups of windows, history and Spark read what they allow from
here; an aggregate is added by being listed, and the laws in tests/expressions/test_aggregates_catalogue.py run over
the list.
Imports nothing of Nile, since the judges read it too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "ALIASES",
    "CATALOGUE",
    "COLLECTED",
    "PARTS",
    "RUNNING",
    "Kind",
    "Part",
    "Takes",
    "general",
    "kept_in",
    "place_of",
]

Takes = Literal["any", "ordered", "number"]
"""Any value that can be told equal; one that can be put in order; a number."""
Gives = Literal["whole", "same", "sum", "number", "list", "values", "text"]
"""A whole number; a value of the argument's type; int64 of whole numbers and else double; a double; values with how
often each comes; values of the argument's type in order; text."""
Interval = Literal["total", "ratio", "spread", "rank", "one-sided", "none"]
"""What a random sample lets it claim: the interval of a total or of a ratio of totals (Cochran 1977); that of a
variance by the delta method; of a quantile by its rank (Woodruff 1952); what was seen bounds it on one side; none."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is kept of some values.  merge: of two parts; all are associative and commutative, and have an identity.

    "spread" adds squared distances from the mean of each part, and what the means lie apart (Chan, Golub, LeVeque 1982,
    equation 2.1b).  retracts: whether what was added can be taken back, from exact sums of the part alone.
    """

    merge: Literal["add", "spread", "least", "greatest", "union", "append"]
    retracts: bool


PARTS = {
    "count": Part("add", True),
    "total": Part("add", True),
    "squares": Part("spread", True),
    "low": Part("least", False),
    "high": Part("greatest", False),
    "values": Part("union", True),  # a multiset in order
    "distinct": Part("union", False),
    "rows": Part("append", True),  # in their order, or that of ORDER BY
}


@dataclass(frozen=True, slots=True)
class Kind:
    """One aggregate.

    parts: keys of PARTS that it is made of; argument: what it takes beside the values, a share in [0, 1], a number
    of values or another value of each row; share: of a quantile whose share is fixed; sql: whether SQL has it, and as
    which text; aliases: other names in `db.aggregate`.
    """

    name: str
    meaning: str
    takes: Takes
    gives: Gives
    parts: tuple[str, ...]
    interval: Interval
    aliases: tuple[str, ...] = ()
    argument: Literal["share", "k", "key"] | None = None
    share: float | None = None
    sql: str | None = None

    @property
    def retracts(self) -> bool:
        """Whether its parts alone can take back what they added; else a window keeps the values."""
        return all(PARTS[part].retracts for part in self.parts)

    @property
    def is_quantile(self) -> bool:
        return self.argument == "share" or self.share is not None

    @property
    def is_set(self) -> bool:
        """Whether it is of different values, which sketches of sets answer."""
        return "distinct" in self.parts

    @property
    def is_collected(self) -> bool:
        """Whether it is of rows in an order."""
        return "rows" in self.parts

    @property
    def skips(self) -> bool:
        """Whether rows with a null are as if they were not there, of those in an order."""
        return self.gives == "text" or self.argument == "key"

    @property
    def is_spread(self) -> bool:
        return "squares" in self.parts

    @property
    def is_root(self) -> bool:
        """Whether it is the square root of a variance."""
        return self.name.startswith("stddev")

    @property
    def least(self) -> int:
        """Of fewer values than this it is null (a count is 0)."""
        return 0 if self.gives == "whole" else 2 if self.name.endswith("_samp") else 1


_SUM = ("count", "total")
_SPREAD = ("count", "total", "squares")
_KINDS = (
    Kind("count", "how many values are not null; of *, how many rows", "any", "whole", ("count",), "total",
         sql="count"),
    Kind("sum", "their sum, exact in any order", "number", "sum", _SUM, "total", sql="sum"),
    Kind("avg", "sum / count", "number", "number", _SUM, "ratio", ("mean",), sql="avg"),
    Kind("min", "the least", "ordered", "same", ("low",), "one-sided", sql="min"),
    Kind("max", "the greatest", "ordered", "same", ("high",), "one-sided", sql="max"),
    Kind("var_samp", "squared distances from the mean / (count - 1)", "number", "number", _SPREAD, "spread",
         ("variance", "var"), sql="variance"),
    Kind("var_pop", "squared distances from the mean / count", "number", "number", _SPREAD, "spread", sql="var_pop"),
    Kind("stddev_samp", "the square root of var_samp", "number", "number", _SPREAD, "spread", ("stddev", "std"),
         sql="stddev"),
    Kind("stddev_pop", "the square root of var_pop", "number", "number", _SPREAD, "spread", sql="stddev_pop"),
    Kind("median", "quantile_cont at 0.5", "number", "number", ("values",), "rank", share=0.5, sql="median"),
    Kind("quantile_cont", "between the two values at place share * (n - 1), in proportion", "number", "number",
         ("values",), "rank", ("approx_quantile",), argument="share", sql="quantile_cont"),
    Kind("quantile_disc", "the first value that a share of all does not exceed", "ordered", "same", ("values",),
         "rank", ("quantile",), argument="share", sql="quantile_disc"),
    Kind("count_distinct", "how many different values", "any", "whole", ("distinct",), "one-sided",
         ("approx_count_distinct", "n_unique")),
    Kind("top_k", "the k most frequent values, with how often each comes", "any", "list", ("distinct", "count"),
         "total", ("approx_top_k",), argument="k"),
    Kind("list", "all values in order, nulls too", "any", "values", ("rows",), "none", ("array_agg",), sql="list"),
    Kind("string_agg", "their texts in order, with a text between", "any", "text", ("rows",), "none",
         ("group_concat", "listagg"), sql="string_agg"),
    Kind("first", "the value of the first row", "any", "same", ("rows",), "none", sql="first"),
    Kind("last", "the value of the last row", "any", "same", ("rows",), "none", sql="last"),
    Kind("arg_max", "the value where another one is greatest, of the first such row", "any", "same", ("rows",), "none",
         ("max_by", "argmax"), argument="key", sql="arg_max"),
    Kind("arg_min", "the value where another one is least, of the first such row", "any", "same", ("rows",), "none",
         ("min_by", "argmin"), argument="key", sql="arg_min"),
)  # fmt: skip

CATALOGUE = {kind.name: kind for kind in _KINDS}
ALIASES = {alias: kind.name for kind in _KINDS for alias in kind.aliases}


COLLECTED = tuple(name for name, kind in CATALOGUE.items() if kind.is_collected)
"""Of rows in an order, which are kept: SQL has them, in exact answers."""

RUNNING = tuple(name for name, kind in CATALOGUE.items() if not kind.is_set and not kind.is_collected)
"""What is kept up to date as tuples come and go, over history and by tasks of Spark.

Not sets: different values are counted above a DISTINCT, and their parts would be all values.
"""


def general(function: str) -> tuple[str, float | None]:
    """(the aggregate that it is a case of, the share): median is quantile_cont at 0.5, others are themselves."""
    share = CATALOGUE[function].share
    return (function, None) if share is None else ("quantile_cont", share)


def kept_in(*parts: str) -> tuple[str, ...]:
    """The names of the aggregates that these parts are enough for."""
    return tuple(kind.name for kind in _KINDS if set(kind.parts) <= set(parts))


def place_of(n: int, share: float, *, continuous: bool) -> float:
    """Where the quantile of n >= 1 values in order lies, from 0: between two values in proportion if `continuous`."""
    return share * (n - 1) if continuous else float(max(1, n - math.floor(n - share * n)) - 1)
