"""The three streams of an auction, made from a seed.

Of every fifty events one is a person, three are auctions and forty-six are bids, `rate` of them a second.  Most bids go
to the auctions that are hot, most auctions are sold by the sellers that are, and prices are log-uniform.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.heavy import pa

__all__ = ["STREAMS", "events"]

Array = np.ndarray[Any, Any]
STREAMS = ("person", "auction", "bid")
_OF_FIFTY = (1, 3, 46)
_FIRST = 1_000
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_STATES = ("az", "ca", "ca", "id", "or", "or", "wa", "wa", "wa", "wy")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple", "channel-1", "channel-2", "channel-3")
_START = 1_436_918_400_000_000  # 2015-07-15 00:00:00 in microseconds


def events(count: int, seed: int = 0, *, rate: int = 1_000) -> dict[str, pa.Table]:
    """`count` events as tables of STREAMS, each in order of its `datetime` (timestamp[us])."""
    rng = np.random.default_rng(seed)
    place = np.arange(count)
    times = _START + place * 1_000_000 // rate
    kind = np.searchsorted(np.cumsum(_OF_FIFTY), place % 50, side="right")
    persons, auctions, bids = (np.flatnonzero(kind == each) for each in range(3))
    # How many persons and auctions there are by each event: what comes refers to what is there.
    known_persons = np.maximum(np.cumsum(kind == 0), 1)
    known_auctions = np.maximum(np.cumsum(kind == 1), 1)
    return {
        "person": _persons(times[persons], rng),
        "auction": _auctions(times[auctions], known_persons[auctions], rng),
        "bid": _bids(times[bids], known_persons[bids], known_auctions[bids], rng),
    }


def _hot(known: Array, step: int, share: float, rng: np.random.Generator) -> Array:
    """Ids of what is known: with probability `share` the latest of every `step`, else one of the last hundred."""
    latest = (known - 1) // step * step
    recent = known - 1 - rng.integers(0, np.minimum(known, 100))
    return _FIRST + np.where(rng.random(known.shape[0]) < share, latest, recent)


def _prices(count: int, rng: np.random.Generator) -> Array:
    return np.rint(10 ** (rng.random(count) * 6) * 100).astype(np.int64)


def _stamped(times: Array) -> pa.Array:
    return pa.array(times).cast(pa.timestamp("us"))


def _persons(times: Array, rng: np.random.Generator) -> pa.Table:
    n = times.shape[0]
    city = rng.integers(0, len(_CITIES), n)
    ids = _FIRST + np.arange(n)
    return pa.table(
        {
            "id": ids,
            "name": [f"person {each}" for each in ids],
            "city": [_CITIES[each] for each in city],
            "state": [_STATES[each] for each in city],
            "datetime": _stamped(times),
        }
    )


def _auctions(times: Array, known: Array, rng: np.random.Generator) -> pa.Table:
    n = times.shape[0]
    initial = _prices(n, rng)
    lasts = rng.integers(1, 20, n) * 500_000
    return pa.table(
        {
            "id": _FIRST + np.arange(n),
            "item_name": [f"item {each}" for each in rng.integers(0, 500, n)],
            "initial_bid": initial,
            "reserve": initial + _prices(n, rng),
            "datetime": _stamped(times),
            "expires": _stamped(times + lasts),
            "seller": _hot(known, 4, 0.75, rng),
            "category": rng.integers(10, 15, n),
        }
    )


def _bids(times: Array, persons: Array, auctions: Array, rng: np.random.Generator) -> pa.Table:
    n = times.shape[0]
    auction, bidder, price = _hot(auctions, 100, 0.5, rng), _hot(persons, 100, 0.75, rng), _prices(n, rng)
    channels = [_CHANNELS[each] for each in rng.integers(0, len(_CHANNELS), n)]
    letters = str.maketrans("0123456789", "abcdefghij")
    return pa.table(
        {
            "auction": auction,
            "bidder": bidder,
            "price": price,
            "channel": channels,
            "url": [
                f"https://www.nexmark.com/{name}/{each % 7}/item.htm?query=1"
                + f"&channel_id={each % 97}" * (each % 3 > 0)
                for name, each in zip(channels, auction.tolist(), strict=True)
            ],
            "extra": [str(each).translate(letters) for each in price.tolist()],
            "datetime": _stamped(times),
        }
    )
