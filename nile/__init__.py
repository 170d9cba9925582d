"""Nile: approximate answers over data streams, in the order you care about, inside a CPU budget.

>>> import nile
>>> db = nile.connect()
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import nile.sql as _sql
from nile.base.interrupts import INTERRUPTS as _INTERRUPTS
from nile.base.version import __version__
from nile.summaries.errors import (
    BudgetError,
    CompileWarning,
    ConfigError,
    ConstraintViolation,
    CostWarning,
    DatabaseClosed,
    DatabaseTorn,
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
    RowsLeftOut,
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
from nile.summaries.lazy import lazy_names, load_inside

if TYPE_CHECKING:
    from nile.answers.aggregate_answer import AggregateAnswer
    from nile.answers.aggregate_query import AggregateQuery
    from nile.answers.answer import Answer
    from nile.answers.join_aggregate import JoinAggregateAnswer
    from nile.answers.join_answer import JoinAnswer
    from nile.answers.join_query import JoinAggregateQuery, JoinQuery, MultiwayQuery
    from nile.answers.multiway_answer import MultiwayAnswer
    from nile.answers.progress import Partial, Progress
    from nile.answers.python_rows import rows
    from nile.answers.result import Result
    from nile.answers.selection_answer import SelectionAnswer
    from nile.answers.selection_query import SelectionQuery
    from nile.answers.standing import StandingAnswer, StandingQueries
    from nile.engine.connect import connect
    from nile.engine.database import Database
    from nile.execution.live.approximate.join import ApproximateSubscription
    from nile.execution.live.subscription import Subscription
    from nile.execution.statement.builder import QueryBuilder
    from nile.preferences.budget import Budget, BudgetReport
    from nile.preferences.clock import Bursts
    from nile.report.accuracy.report import AccuracyReport
    from nile.sensors.sensor import END, NEW_VALUE, NO_VALUE, Sensor
    from nile.streams.accounting import Accounting
    from nile.summaries.estimate import Estimate


__all__ = [
    "END",
    "NEW_VALUE",
    "NO_VALUE",
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
    "CompileWarning",
    "ConfigError",
    "ConstraintViolation",
    "CostWarning",
    "Database",
    "DatabaseClosed",
    "DatabaseTorn",
    "EnvelopeError",
    "ErrorTargetMissed",
    "Estimate",
    "ExpressionError",
    "JavaMissing",
    "JoinAggregateAnswer",
    "JoinAggregateQuery",
    "JoinAnswer",
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
    "RowsLeftOut",
    "SelectionAnswer",
    "SelectionQuery",
    "Sensor",
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
    "rows",
    "sql",
]

load_inside(_INTERRUPTS)

# Loaded on first use: numpy alone takes longer to import than a command line may take to answer.
_HOMES = {
    "END": "nile.sensors.sensor",
    "NEW_VALUE": "nile.sensors.sensor",
    "NO_VALUE": "nile.sensors.sensor",
    "Accounting": "nile.streams.accounting",
    "AccuracyReport": "nile.report.accuracy.report",
    "AggregateAnswer": "nile.answers.aggregate_answer",
    "AggregateQuery": "nile.answers.aggregate_query",
    "Answer": "nile.answers.answer",
    "ApproximateSubscription": "nile.execution.live.approximate.join",
    "Budget": "nile.preferences.budget",
    "BudgetReport": "nile.preferences.budget",
    "Bursts": "nile.preferences.clock",
    "Database": "nile.engine.database",
    "Estimate": "nile.summaries.estimate",
    "JoinAggregateAnswer": "nile.answers.join_aggregate",
    "JoinAggregateQuery": "nile.answers.join_query",
    "JoinAnswer": "nile.answers.join_answer",
    "JoinQuery": "nile.answers.join_query",
    "MultiwayAnswer": "nile.answers.multiway_answer",
    "MultiwayQuery": "nile.answers.join_query",
    "Partial": "nile.answers.progress",
    "Progress": "nile.answers.progress",
    "QueryBuilder": "nile.execution.statement.builder",
    "Result": "nile.answers.result",
    "SelectionAnswer": "nile.answers.selection_answer",
    "SelectionQuery": "nile.answers.selection_query",
    "Sensor": "nile.sensors.sensor",
    "StandingAnswer": "nile.answers.standing",
    "StandingQueries": "nile.answers.standing",
    "Subscription": "nile.execution.live.subscription",
    "connect": "nile.engine.connect",
    "rows": "nile.answers.python_rows",
}
__getattr__ = lazy_names(__name__, _HOMES)


class _AskedSql(ModuleType):
    """`nile.sql` is a room of Nile and, called, its statements over a database that all of a process shares."""

    def __call__(self, text: str, params: Any = None, **options: Any) -> Result:
        """As `Database.sql`, of a database in memory: `nile.sql("SELECT * FROM 'sales.parquet'").show()`."""
        answer: Result = import_module("nile.engine.connect").default().sql(text, params, **options)
        return answer


sys.modules[_sql.__name__].__class__ = _AskedSql


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
