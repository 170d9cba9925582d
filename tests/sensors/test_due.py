"""Which source is asked next: the earliest, as a sorted list would say, however rates mix."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nile.sensors.due import Due


@pytest.mark.parametrize("rates", [1, 3, 40])
@pytest.mark.parametrize("seed", range(3))
def test_the_earliest_comes_first_and_of_those_the_one_that_was_put_first(rates: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    due, plain, now, number = Due(), [], 0.0, 0

    def put(port: Any, rate: float) -> None:
        nonlocal number
        due.put(port, rate)
        plain.append((port.due, number, port))
        number += 1

    ports: list[Any] = [SimpleNamespace(due=0.0, name=k) for k in range(30)]
    for port in ports:
        put(port, 0.0)
    for _ in range(2_000):
        entry = due.first()
        assert entry is not None
        wanted = min(plain, key=lambda each: each[:2])
        assert entry[2] is wanted[2]
        plain.remove(wanted)
        due.take(entry)
        port = entry[2]
        now = max(now, port.due)
        rate = (1 + port.name % rates) / 10
        port.due = now + rate * float(rng.choice([1.0, 1.0, 0.5]))  # some are asked sooner than their rate
        put(port, rate)
    due.clear()
    assert due.first() is None
    assert not due


def test_what_is_asked_at_once_comes_before_what_is_due() -> None:
    due: Any = Due()
    first, second = SimpleNamespace(due=5.0), SimpleNamespace(due=7.0)
    due.put(first, 0.1)
    due.at_once(second)
    assert due.first()[2] is second
    due.take(due.first())
    assert due.first()[2] is first
