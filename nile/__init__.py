"""Nile: approximate answers over data streams, in the order you care about, inside a CPU budget.

>>> import nile
>>> db = nile.connect()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from summaries.errors import (
    BudgetError,
    ConfigError,
    CostWarning,
    EnvelopeError,
    ErrorTargetMissed,
    ExpressionError,
    JavaMissing,
    KeyTypeError,
    MemoryRefused,
    NileError,
    NotAStore,
    NotLinear,
    NotYet,
    Overloaded,
    SourceError,
    SourceMissing,
    SparkFailed,
    SqlError,
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreMissing,
    StoreReadOnly,
    StoreRecovered,
    StoreTooNew,
    StoreWriteError,
    SummaryMismatch,
    SumOverflow,
    TimestampOrderError,
    UnknownColumn,
    UnknownStream,
)
from summaries.lazy import lazy_names

if TYPE_CHECKING:
    from nile.aggregate_answer import AggregateAnswer
    from nile.aggregate_join import JoinAggregateAnswer, JoinAggregateQuery
    from nile.aggregate_query import AggregateQuery
    from nile.answer import Answer
    from nile.connecting import connect
    from nile.engine import Database
    from nile.execution.builder import QueryBuilder
    from nile.execution.live_approximate import ApproximateSubscription
    from nile.execution.progress import Partial, Progress
    from nile.execution.result import Result
    from nile.execution.subscription import Subscription
    from nile.multiway import MultiwayQuery
    from nile.multiway_answer import MultiwayAnswer
    from nile.query import JoinQuery
    from nile.report.accuracy.report import AccuracyReport
    from nile.selection import SelectionQuery
    from nile.selection_answer import SelectionAnswer
    from nile.standing import StandingAnswer, StandingQueries
    from nile.streams.accounting import Accounting
    from preferences.budget import Budget, BudgetReport
    from preferences.clock import Bursts
    from summaries.estimate import Estimate

__version__ = "0.1.0"

__all__ = [
    "Accounting",
    "AccuracyReport",
    "AggregateAnswer",
    "AggregateQuery",
    "Answer",
    "ApproximateSubscription",
    "Budget",
    "BudgetError",
    "BudgetReport",
    "Bursts",
    "ConfigError",
    "CostWarning",
    "Database",
    "EnvelopeError",
    "ErrorTargetMissed",
    "Estimate",
    "ExpressionError",
    "JavaMissing",
    "JoinAggregateAnswer",
    "JoinAggregateQuery",
    "JoinQuery",
    "KeyTypeError",
    "MemoryRefused",
    "MultiwayAnswer",
    "MultiwayQuery",
    "NileError",
    "NotAStore",
    "NotLinear",
    "NotYet",
    "Overloaded",
    "Partial",
    "Progress",
    "QueryBuilder",
    "Result",
    "SelectionAnswer",
    "SelectionQuery",
    "SourceError",
    "SourceMissing",
    "SparkFailed",
    "SqlError",
    "StandingAnswer",
    "StandingQueries",
    "StoreCorrupt",
    "StoreError",
    "StoreLocked",
    "StoreMissing",
    "StoreReadOnly",
    "StoreRecovered",
    "StoreTooNew",
    "StoreWriteError",
    "Subscription",
    "SumOverflow",
    "SummaryMismatch",
    "TimestampOrderError",
    "UnknownColumn",
    "UnknownStream",
    "__version__",
    "connect",
]

# Loaded on first use: numpy alone takes longer to import than a command line may take to answer.
_HOMES = {
    "Accounting": "nile.streams.accounting",
    "AccuracyReport": "nile.report.accuracy.report",
    "AggregateAnswer": "nile.aggregate_answer",
    "AggregateQuery": "nile.aggregate_query",
    "Answer": "nile.answer",
    "ApproximateSubscription": "nile.execution.live_approximate",
    "Budget": "preferences.budget",
    "BudgetReport": "preferences.budget",
    "Bursts": "preferences.clock",
    "Database": "nile.engine",
    "Estimate": "summaries.estimate",
    "JoinAggregateAnswer": "nile.aggregate_join",
    "JoinAggregateQuery": "nile.aggregate_join",
    "JoinQuery": "nile.query",
    "MultiwayAnswer": "nile.multiway_answer",
    "MultiwayQuery": "nile.multiway",
    "Partial": "nile.execution.progress",
    "Progress": "nile.execution.progress",
    "QueryBuilder": "nile.execution.builder",
    "Result": "nile.execution.result",
    "SelectionAnswer": "nile.selection_answer",
    "SelectionQuery": "nile.selection",
    "StandingAnswer": "nile.standing",
    "StandingQueries": "nile.standing",
    "Subscription": "nile.execution.subscription",
    "connect": "nile.connecting",
}
__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
