"""How joins are run, for EXPLAIN: what a form is chosen from, which is foreseen, and which was taken, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from nile.exact.join.form import LONG, RULE, RULE_OF_MANY, TOLD, UNBOUND, Form, chosen, near
from nile.exact.join.threads import cores
from nile.execution.exact.counting import grouped_rows, join_below
from nile.execution.exact.joining import Side, is_text, joins_by
from nile.execution.key_columns import one_key
from nile.execution.shape import Shape
from nile.execution.statement.expected import Expected, expected
from nile.execution.values import schema_of
from nile.operators.strategies.machine_prices import machine_prices
from nile.operators.strategies.prices import Prices
from nile.sql.plan import Group, Join, Plan, Stream, inputs_of, leaves_of, walk
from nile.streams.files.pruning import extent_of
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.execution.statement.engine import Engine

__all__ = ["Told", "foreseen", "taken"]

_KEYS = 0.1
"""Of the rows of the largest input, as many keys as there are taken to be where nothing tells."""
_COMING = "chains as tuples come"
_NO_PRICE = "no forecast: prices are of the pairs of two streams on a key"


@dataclass(frozen=True, slots=True)
class Told:
    """lines: in words; values: for programs."""

    lines: tuple[str, ...]
    values: dict[str, Any]


def foreseen(engine: Engine, plan: Plan) -> Iterator[Told]:
    """Of each join of a plan what its form is chosen from, as far as that is known before anything is read."""
    if isinstance(plan, Group) and (found := join_below(plan)) is not None:
        join, between = found
        none = [Side(pa.RecordBatch.from_pylist([], schema=schema_of(each.fields))) for each in join.inputs]
        if grouped_rows(plan, join, between, none) is not None:
            yield _counted(engine, join)
            return
    if isinstance(plan, Join):
        yield _foreseen(engine, plan)
    for each in inputs_of(plan):
        yield from foreseen(engine, each)


def _counted(engine: Engine, join: Join) -> Told:
    names = _names(join)
    known, values = _known(engine, join)
    line = f"join of {names}: counted, no pair is made: each aggregate and group is of one input's columns"
    return Told((line, known, _NO_PRICE), {"join": names, "form": "counts", **values, "forecast_ms": None})


def _foreseen(engine: Engine, join: Join) -> Told:
    names, how = _names(join), joins_by(join)
    if how != TOLD["chain"]:
        return Told((f"join of {names}: {how}",), {"join": names, "form": None, "how": how})
    known, values = _known(engine, join)
    if len(join.inputs) > 2:
        line = f"join of {names}: {RULE_OF_MANY}"
        return Told((line, known, _NO_PRICE), {"join": names, "form": "chain", **values, "forecast_ms": None})
    rule = f"join of {names}: {RULE}"
    tuples, within = values["tuples"], values["within"]
    window = _window(join)
    certain = tuples is not None and (tuples < LONG or within is not None or window is None or cores() == 1)
    if not certain:
        what = "how many tuples there are" if tuples is None else "how many lie in a window"
        line = f"lists or chains: {what} is known once they are read; of streams that are waited for, {_COMING}"
        return Told((rule, known, line), {"join": names, "form": None, **values, "forecast_ms": None})
    lists, why = chosen(tuples, within or 0.0) if window is not None else (True, UNBOUND)
    form = Form("lists" if lists else "chains", why, int(tuples), within=within, keys=_whole(values["keys"]))
    made = {"join": names, "form": form.name, "why": why, **values}
    cost = _forecast(machine_prices(), form, values["matches"] * tuples, hashed=values["text"]) / 1e6
    lines = (rule, known, f"foreseen: {form.name}: {why}", f"forecast {cost:.3g} ms of CPU by this machine's prices")
    return Told(lines, {**made, "forecast_ms": cost})


def _known(engine: Engine, join: Join) -> tuple[str, dict[str, Any]]:
    """What is known of a join before anything is read, in words and as values."""
    rows = [expected(engine, each) for each in join.inputs]
    told = [each for each in rows if each is not None]
    tuples = sum(each.rows for each in told) if len(told) == len(rows) else None
    keys = _keys(engine, join, told)
    window, span = _window(join), _span(engine, join)
    within = near(tuples, window, span) if tuples is not None and window is not None and span is not None else None
    matches = None
    if tuples is not None and keys is not None and len(rows) == 2:
        share = 1.0 if window is None or span is None else min(1.0, 2.0 * window / max(1.0, span))
        matches = told[0].rows * told[1].rows / max(1.0, keys.rows) * share / max(1.0, tuples)
    parts = [f"{name} {each}" for each, name in zip(rows, _aliases(join), strict=True) if each is not None]
    parts += [f"keys {keys}"] if keys is not None else []
    if matches is not None:
        most = "at most " if window is not None and span is None else ""
        parts.append(f"{most}about {matches:.3g} matches a tuple")
    if within is not None:
        parts.append(f"about {within:,.0f} tuples in a window by the footers' times")
    elif window is not None:
        parts.append("no times")
    known = "known before reading: " + ("; ".join(parts) if parts else "nothing")
    values = {
        "tuples": tuples, "keys": None if keys is None else keys.rows, "keys_by": None if keys is None else keys.by,
        "matches": matches, "within": within, "window_ns": window, "text": is_text(join),
    }  # fmt: skip
    return known, values


def _keys(engine: Engine, join: Join, rows: Sequence[Expected]) -> Expected | None:
    """Distinct keys: by a summary of one of the keys, else a tenth of the rows of the largest input."""
    on = one_key(join)[0] if join.equal else None
    leaves = {leaf.alias: leaf for leaf in leaves_of(join)}
    for name in on or ():
        alias, _, column = name.partition(".")
        summary = engine.built(leaves[alias].name).get(column) if alias in leaves else None
        if summary is not None:
            return Expected(float(summary.keys.known), "summary")
    return Expected(max(1.0, _KEYS * max(each.rows for each in rows)), "rule") if rows else None


def _window(join: Join) -> int | None:
    """How far apart two tuples may be, ns: the least that any two of them are bound by; None: as far as they are."""
    if join.constraints:
        return min(each.window for each in join.constraints)
    windows = [leaf.window for leaf in leaves_of(join) if isinstance(leaf, Stream)]
    return min((each for each in windows if isinstance(each, int)), default=None)


def _span(engine: Engine, join: Join) -> float | None:
    """ns over which the tuples of the longest stream lie, where footers say so of all."""
    found = []
    for leaf in leaves_of(join):
        ends = None
        if isinstance(leaf, Stream):
            source = engine.stream(leaf.name).source
            timed = pa.types.is_timestamp(source.schema.field(leaf.time).type)
            ends = extent_of(source, leaf.time) if timed else None
        if ends is None:
            return None
        found.append(1e3 * (ends[1] - ends[0]))
    return max(found)


def taken(shapes: Sequence[Shape], plan: Plan, *, came: bool) -> list[Told]:
    """What joins that ran were, those of parts in one form together.  came: whether tuples were waited for."""
    if not shapes and any(isinstance(each, Join) for each in walk(plan)):
        told = f"join taken: {_COMING}, which were waited for: lists need all of them first"
        if not came:
            told = "join taken: in parts that memory holds, one after another, of which no form is told"
        return [Told((told,), {"name": "chains" if came else None, "why": told})]
    together: dict[tuple[Any, ...], list[Shape]] = {}
    for each in shapes:
        if each.form is not None:
            form = each.form
            key = (form.name, form.coded, form.worded, form.threads) if len(shapes) > 8 else (id(each),)
            together.setdefault(key, []).append(each)
    return [_taken(some) for some in together.values()]


def _taken(shapes: Sequence[Shape]) -> Told:
    first = shapes[0]
    assert first.form is not None
    forms = [each.form for each in shapes if each.form is not None]
    form = replace(first.form, tuples=sum(each.tuples for each in forms))
    pairs, took = sum(each.candidates for each in shapes), sum(each.took for each in shapes) / 1e6
    matches = pairs / max(1, form.tuples)
    ways = [f"{len(shapes)} parts"] if len(shapes) > 1 else []
    ways += ["keys far apart coded anew"] if form.coded else []
    ways += ["pairs told as they are handed out"] if form.worded else []
    ways.append("1 thread" if form.threads == 1 else f"{form.threads} threads")
    figures = [f"{form.tuples:,} tuples"]
    figures += [f"{form.listed:,} of them with keys that all have"] if form.listed is not None else []
    if form.keys is not None:
        figures.append(f"{form.keys:,} keys" if form.coded else f"keys below {form.keys:,}")
    figures += [f"{form.within:,.0f} in a window"] if form.within is not None else []
    figures.append(f"{pairs:,} pairs, {matches:.3g} a tuple")
    cost = None
    if form.name in ("lists", "chains"):
        prices, each = machine_prices(), zip(forms, shapes, strict=True)
        cost = sum(_forecast(prices, own, float(one.candidates), hashed=one.hashed) for own, one in each) / 1e6
    forecast = _NO_PRICE if cost is None else f"forecast {cost:.3g} ms of CPU by this machine's prices"
    lines = (
        f"join taken: {form.name}: {form.why}; {', '.join(ways)}",
        f"found: {'; '.join(figures)}",
        f"{forecast}; took {took:.3g} ms",
    )
    values = {**asdict(form), "parts": len(shapes), "pairs": pairs, "forecast_ms": cost, "took_ms": took}
    return Told(lines, values)


def _forecast(prices: Prices, form: Form, pairs: float, *, hashed: bool) -> float:
    """ns of CPU of a join of two inputs on a key: codes, places, pairs with their columns."""
    tuples = float(form.tuples)
    listed = tuples if form.listed is None else float(form.listed)
    keys = min(tuples, float(form.keys)) if form.keys is not None else max(1.0, _KEYS * tuples)
    matches = pairs / max(1.0, tuples)
    sifted = tuples * prices.sift if listed < tuples else 0.0
    coded = prices.coding(keys, float(hashed), sparse=form.coded)
    joined = listed * (coded + prices.joining(keys, matches, chained=form.name == "chains"))
    near_each = form.within if form.within is not None else tuples
    far = prices.reaching(matches, near_each * listed / max(1.0, tuples))
    return sifted + joined + pairs * (prices.pairing(matches, float(hashed)) + far)


def _aliases(join: Join) -> list[str]:
    """The aliases of a join's inputs."""
    return [", ".join(leaf.alias for leaf in leaves_of(each)) for each in join.inputs]


def _names(join: Join) -> str:
    return " and ".join(_aliases(join))


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
