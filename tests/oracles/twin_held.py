"""Runs of pipelines that are stopped, packed to bytes, unpacked and gone on with, beside runs that never stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from workload_pipeline import Case, batches, told

from nile.exact.pipeline.pipeline import Changes, Figures, Pipeline
from nile.exact.state.held import all_of
from nile.execution.envelopes import content, packed
from nile.summaries.envelope import unpack

Item = tuple[str, Any, Any]


def cut(one: Case, seed: int) -> list[Item]:
    """The case's tuples in random batches of random order among streams."""
    return batches(one, np.random.default_rng(seed))


def feed(pipeline: Pipeline, items: list[Item]) -> list[Changes]:
    out: list[Changes] = []
    for name, ts, rows in items:
        if name in pipeline._last:
            out += pipeline.push(name, ts, rows)
    return out


def bytes_of(pipeline: Pipeline) -> bytes:
    return packed("query", pipeline.capture())


def restored(data: bytes, one: Case, scheduling: str, emit: str) -> Pipeline:
    made = Pipeline(one.plan, scheduling, emit)  # type: ignore[arg-type]
    made.restore(content(unpack(data)))
    return made


def figures(pipeline: Pipeline) -> list[Figures]:
    """All but the bytes, which depend on how tables grew."""
    return [replace(each, memory=0) for each in pipeline.operators]


def work(pipeline: Pipeline) -> dict[str, int]:
    return {name: n for name, n in pipeline.costs.items() if name != "steps"}


def listed(pipeline: Pipeline) -> Any:
    """The rows that hold, or None where nothing keeps them."""
    try:
        return repr(pipeline.snapshot().to_pylist())
    except Exception as error:
        return type(error).__name__


def apart(one: Case, scheduling: str, emit: str, seed: int) -> str:
    """How a run that is stopped at random differs from one that is not; '' where it does not."""
    rng = np.random.default_rng(seed)
    items = cut(one, seed)
    stop = int(rng.integers(0, len(items) + 1))
    never = Pipeline(one.plan, scheduling, emit)  # type: ignore[arg-type]
    feed(never, items[:stop])
    advanced = None
    if rng.random() < 0.3:
        advanced = max([0, *(int(ts[-1]) for _, ts, _ in items[:stop])]) + int(rng.integers(-1, 3))
        rest = [int(ts[0]) for _, ts, _ in items[stop:]]
        advanced = min([advanced, *(at - 1 for at in rest)])
        never.advance(advanced)
    data = bytes_of(never)
    again = restored(data, one, scheduling, emit)
    if bytes_of(again) != data:
        return "captured again, other bytes"
    if (figures(again), work(again), listed(again)) != (figures(never), work(never), listed(never)):
        return "other figures or rows when restored"
    for step in [*items[stop:], None]:
        expected, got = (
            feed(each, [step]) if step is not None else each.finish(one.end) for each in (never, again)
        )  # fmt: skip
        if told(expected) != told(got):
            return "other outputs"
    if figures(again) != figures(never) or work(again) != work(never) or listed(again) != listed(never):
        return "other figures or rows at the end"
    return "" if bytes_of(again) == bytes_of(never) else "other bytes at the end"


def split_apart(one: Case, scheduling: str, emit: str, seed: int) -> str:
    """How the bytes of the same tuples differ when they are cut otherwise; '' where they do not."""
    runs = []
    for other in (seed, seed + 1_000_003):
        pipeline = Pipeline(one.plan, scheduling, emit)  # type: ignore[arg-type]
        rng = np.random.default_rng(other)
        # the same tuples of each stream, those of one time together, in other batches
        middle = int(np.random.default_rng(seed).integers(0, 30))
        first = {name: int(np.searchsorted(ts, middle)) for name, (ts, _) in one.streams.items()}
        early = replace(one, streams={n: (ts[: first[n]], r.slice(0, first[n])) for n, (ts, r) in one.streams.items()})
        late = replace(one, streams={n: (ts[first[n] :], r.slice(first[n])) for n, (ts, r) in one.streams.items()})
        feed(pipeline, batches(early, rng))
        taken = [bytes_of(pipeline)]
        if other != seed:  # and over another stop
            pipeline = restored(taken[0], one, scheduling, emit)
        feed(pipeline, batches(late, rng))
        taken.append(bytes_of(pipeline))
        pipeline.finish(one.end)
        runs.append([*taken, bytes_of(pipeline)])
    return "" if runs[0] == runs[1] else f"other bytes at {[a == b for a, b in zip(*runs, strict=True)].index(False)}"


def undecided(root: Any, modules: tuple[str, ...]) -> dict[str, set[str]]:
    """By class of these modules that `root` reaches: attributes that neither HELD nor DERIVED lists, or none has."""
    wrong: dict[str, set[str]] = {}
    seen: set[int] = set()
    ahead = [root]
    while ahead:
        at = ahead.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        if isinstance(at, dict):
            ahead += [*at.values()]
        elif isinstance(at, list | tuple) or type(at).__name__ == "deque":
            ahead += [*at]
        elif type(at).__module__.startswith(modules) and hasattr(at, "__dict__"):
            ahead += [*vars(at).values()]
            if getattr(type(at), "__dataclass_params__", None) is None or not type(at).__dataclass_params__.frozen:  # type: ignore[attr-defined]
                known = all_of(type(at), "HELD") | all_of(type(at), "DERIVED")
                wrong.setdefault(type(at).__name__, set()).update(set(vars(at)) ^ known)
    return {name: names for name, names in wrong.items() if names}
