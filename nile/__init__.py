"""Nile: approximate answers over data streams, in the order you care about, inside a CPU budget.

>>> import nile
>>> db = nile.connect()
"""

from __future__ import annotations

from nile.answer import Answer
from nile.engine import Database, connect
from nile.query import JoinQuery
from nile.streams.accounting import Accounting
from preferences.budget import Budget
from summaries.errors import (
    BudgetError,
    ConfigError,
    EnvelopeError,
    ExpressionError,
    JavaMissing,
    KeyTypeError,
    MemoryRefused,
    NileError,
    NotLinear,
    SourceError,
    SourceMissing,
    SparkFailed,
    SummaryMismatch,
    TimestampOrderError,
    UnknownColumn,
    UnknownStream,
)
from summaries.estimate import Estimate

__version__ = "0.1.0"

__all__ = [
    "Accounting",
    "Answer",
    "Budget",
    "BudgetError",
    "ConfigError",
    "Database",
    "EnvelopeError",
    "Estimate",
    "ExpressionError",
    "JavaMissing",
    "JoinQuery",
    "KeyTypeError",
    "MemoryRefused",
    "NileError",
    "NotLinear",
    "SourceError",
    "SourceMissing",
    "SparkFailed",
    "SummaryMismatch",
    "TimestampOrderError",
    "UnknownColumn",
    "UnknownStream",
    "__version__",
    "connect",
]
