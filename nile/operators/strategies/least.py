"""The least time that may find anything, a pass over the input: told before it is read, where it says how many rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor, log10

from nile.operators.inputs.home import Home
from nile.operators.strategies.looking import looks_at
from nile.operators.strategies.machine_prices import machine_prices
from nile.operators.strategies.prices import Prices
from nile.preferences.budget import Budget
from nile.streams.source import CountedSource
from nile.summaries.errors import BudgetError
from nile.summaries.key_types import is_hashed

__all__ = ["INSTEAD", "refuse_below_a_pass", "too_little"]

INSTEAD = ", or say strategy='summary', which only estimates how many there are"
"""What else one may do who has less time; no sketch tells how many pairs satisfy a condition."""
_ROOM = 1.3
"""How much more than the prices say is told to be enough."""
_LOADED = 0.1
"""Of what a pass takes, from which on loading code is told of."""


def _by_strategy(prices: Prices, hashed: bool) -> float:
    return prices.look + hashed * prices.words


def _by_tuple(prices: Prices, hashed: bool) -> float:
    return prices.seen + prices.counting(1.0) + prices.listing(1.0) + _by_strategy(prices, hashed)


_STEPS: dict[str, Callable[[Prices, bool], float]] = {
    "auto": _by_strategy,
    "": _by_tuple,
    "promise": _by_tuple,
    "several": lambda prices, hashed: prices.coding(1.0, hashed, sparse=True) + prices.clique,
    "selection": lambda prices, hashed: prices.seen + _by_strategy(prices, hashed),
    "aggregate": lambda prices, _: prices.shuffled,
}
"""ns of a tuple that is passed over, by what is asked: a join by one of its strategies, which refuses it by its key;
one that takes tuples one by one, and counts and lists each; one of several streams in the time there is, which counts
all; a selection, which counts values; an aggregate."""


def too_little(least: float, tuples: int, budget: Budget, instead: str = "", *, loading: float = 0.0) -> BudgetError:
    """What to say of a budget of time below a pass over so many tuples, which takes `least` ns.

    loading: ns of a deadline that went on loading code besides, which the next question does without.
    """
    needed = f"{_rounded_up(_ROOM * least / 1e9):.2g} seconds to pass over {tuples:,} tuples and find anything"
    if loading < _LOADED * least:
        return BudgetError(f"budget: needed at least {needed}; got {budget}; allow as much{instead}")
    return BudgetError(
        f"budget: needed at least {needed}, and {loading / 1e9:.2g} for loading code, which each process does once; "
        f"got {budget}; ask again, or allow as much{instead}"
    )


def _rounded_up(seconds: float) -> float:
    """To two digits, so that who grants what is told grants no less."""
    unit = 10.0 ** (floor(log10(seconds)) - 1) if seconds > 0 else 1.0
    return ceil(seconds / unit - 1e-9) * unit


def refuse_below_a_pass(
    budget: Budget | None, home: Home, places: Sequence[tuple[str, str]], asked: str, instead: str = ""
) -> None:
    """Raises BudgetError where a budget of time is surely over before the input was gone through once.

    places: of each stream its name and the column that is its key; asked: one of `_STEPS`, of others nothing is known.
    Surely: were all of it in memory and its times looked at before; what is told to be enough is priced as of what it
    is read from.  Of a source that cannot say how many rows it has, or whose conditions leave parts of a file unread,
    nothing is told before.
    """
    asked = "several" if asked == "auto" and len(places) > 2 else asked
    if budget is None or not budget.is_timed or asked not in _STEPS:
        return
    read = {place: home.manager(*place) for place in dict.fromkeys(places)}
    rows = {}
    for place, one in read.items():
        count = one.source.rows if isinstance(one.source, CountedSource) and one.spec.where is None else None
        if count is None:
            return
        rows[place] = count
    prices, step = machine_prices(), _STEPS[asked]
    tuples = sum(rows[place] for place in places)
    passing = sum(rows[place] * step(prices, is_hashed(read[place].key_type)) for place in places)
    once = {place[0]: place for place in places}.values()
    if budget.nanoseconds(tuples) >= passing + prices.table * sum(rows[place] for place in once):
        return
    least = prices.begin + passing
    least += sum(rows[place] * prices.reading(read[place].reads, is_hashed(read[place].key_type)) for place in once)
    if asked == "auto":
        least += looks_at([rows[place] for place in places], [is_hashed(read[p].key_type) for p in places], prices)
    raise too_little(least, tuples, budget, instead)
