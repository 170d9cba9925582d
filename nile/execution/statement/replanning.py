"""Standing queries that change their plan while they run: its operators in another order, other synopses, same answers.

The new plan takes in what the query has seen, which its streams have kept, and goes on from the instant where the old
one is.  Both take it in, and only where they told the same rows by then does the new one begin.
Cost: O(what the query has seen), twice; meanwhile pushes wait.
Source: STREAM (CIDR 2003), sections 2.4 and 6: plans are changed while they run, through the entities they are made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nile.exact.pipeline.tail import Tail
from nile.execution.choice import Choice, choose
from nile.execution.definitions import QueryDefinition
from nile.execution.exact.run import changed, output_schema
from nile.execution.live.defining import asked_for
from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.running import Running
from nile.execution.options import Options
from nile.execution.reading import Readable
from nile.sql.plan import Query
from nile.sql.reading_statements import read_statement
from nile.sql.statements import Select
from nile.streams.live import LiveStream
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.execution.live.live import Live

__all__ = ["PLANNED", "replan"]

PLANNED = ("query", "scheduling", "algorithm")
"""What of a standing query's plan may be set while it runs."""


def replan(live: Live, name: str, given: Mapping[str, str | None]) -> None:
    """Run a standing query in another way from here.  given: of `PLANNED`; None: as it was asked.

    Raises UnknownStream, SqlError, ConfigError for a plan that is not the query's, or cannot be begun now.
    """
    with live.lock:
        live.commits.check()
        standing = live.standing.get(name)
        definition, _ = live.standing.named()[name]
        place = f"standing query {name!r}"
        if type(standing) is not ExactSubscription:
            raise ConfigError(f"{place}: needed an exact query, to change its plan; got another; subscribe again")
        if standing.paused:
            raise ConfigError(f"{place}: needed one that is active, to change its plan; got a paused one; resume it")
        runs = _run_by(definition, given)
        query, options = _read(live, runs)
        asked = asked_for(query, options, name)
        runs = replace(runs, text=asked.definition.text)
        choice = choose(asked.query, asked.options)
        with live.commits:
            standing.settle()
        plan, tail = _taken_over(place, standing, live.names, asked.query, choice, live.streams())
        with live.commits:
            was = standing.shape
            standing.go_on_with(plan, tail, asked.query, choice)
            live.standing.sharing.moved(standing, was)
            same = replace(definition, runs=None) == runs
            live.standing.redefine(name, replace(definition, runs=None if same else runs))
        live.commits.complain()


def _run_by(definition: QueryDefinition, given: Mapping[str, str | None]) -> QueryDefinition:
    """What says how a query runs from now on."""
    known = replace(definition if definition.runs is None else definition.runs, runs=None)
    fields = {"text" if each == "query" else each: value for each, value in given.items()}
    if fields.get("text", "") is None:
        fields["text"] = definition.text
    return replace(known, **fields)  # type: ignore[arg-type]


def _read(live: Live, runs: QueryDefinition) -> tuple[Query, Options]:
    read = read_statement(runs.text, live.names)
    if not isinstance(read, Select):
        raise ConfigError("plan: needed a query; got another statement; write the SELECT in another order")
    return read.query, Options.of(dict(runs.options()))


def _taken_over(
    place: str, standing: ExactSubscription, home: Readable, query: Query, choice: Choice, live: dict[str, LiveStream]
) -> tuple[Running, Tail]:
    """The new plan, level with the old one.  Raises ConfigError."""
    if choice.emit != standing.choice.emit or output_schema(query, choice.emit) != standing.schema:
        raise ConfigError(
            f"{place}: needed a plan that outputs the columns {', '.join(standing.schema.names)} as "
            f"{standing.choice.emit}; got {', '.join(output_schema(query, choice.emit).names)} as {choice.emit}; keep "
            "what it selects"
        )
    seen = standing.seen
    for name, stream in standing.streams.items():
        stream.check_whole("UPDATE nile_queries")
        if seen is None or stream.rows < seen[name]:
            raise ConfigError(
                f"{place}: needed all that it has seen of '{name}' kept, to change its plan while it runs; got "
                f"{stream.rows:,} rows of {'more' if seen is None else f'{seen[name]:,}'}; subscribe again, or "
                "keep more of the stream"
            )
    assert seen is not None
    fresh = Running(home, query, choice, live)  # no constraint was looked after for it, so it goes by none
    if fresh.streams.keys() != standing.streams.keys():
        raise ConfigError(
            f"{place}: needed a plan over {', '.join(standing.streams)}; got one over {', '.join(fresh.streams)}"
        )
    at = standing.reached
    old = Running(home, standing.query, standing.choice, live)
    tail = fresh.tail()
    told = _told(fresh, tail, seen, at, standing.schema, 1)
    wanted = _told(old, old.tail(), seen, at, standing.schema, -1)
    if differ := _differences([*told, *wanted]):
        raise ConfigError(
            f"{place}: needed a plan with the same output so far; got one that differs in {differ:,} rows; "
            "it is another query: subscribe to it under another name"
        )
    return fresh, tail


def _told(
    plan: Running, tail: Tail, seen: Mapping[str, int], at: int | None, schema: pa.Schema, times: int
) -> Iterator[pa.RecordBatch]:
    """The rows told up to an instant, with `times` as `_sign` and the opposite where they were taken back."""
    found = [*plan.push_finite(), *plan.push_seen(seen)]
    if at is not None:
        found.append(plan.pipeline.advance(at, certain=False))
    for each in found:
        passed = tail.passed(each)
        tail.add(passed)
        for changes in passed.changes:
            rows = changed(changes, schema, plan.emit)
            kept = [name for name in rows.schema.names if name not in ("_ts", "_sign")]
            signs = pa.array(changes.sign.astype("int64") * times)
            yield pa.RecordBatch.from_arrays([*(rows[name] for name in kept), signs], names=[*kept, "_sign"])


def _differences(told: Sequence[pa.RecordBatch]) -> int:
    """How many rows are left of all, signs added up."""
    if not told:
        return 0
    table = pa.Table.from_batches(told)
    columns = table.schema.names[:-1]
    if any(pa.types.is_nested(table.schema.field(name).type) for name in columns):
        counts: Counter[str] = Counter()
        for row in table.to_pylist():
            counts[repr({name: row[name] for name in columns})] += row["_sign"]
        return sum(map(abs, counts.values()))
    left = table.group_by(columns).aggregate([("_sign", "sum")])["_sign_sum"]
    return int(sum(abs(count) for count in left.to_pylist() if count))
