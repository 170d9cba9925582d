"""A query that is interrupted inside compiled code raises the interrupt, nothing else."""

from __future__ import annotations

import signal
import time
from collections import Counter
from types import FrameType

import numpy as np
import pytest

import nile

BUDGET = nile.Budget(fraction=0.5)


def stop(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("statement", "budget"),
    [
        ("SELECT a.k FROM a, b WHERE a.k = b.k WINDOW 30", None),
        ("SELECT count(*) AS n FROM a, b WHERE a.k = b.k WINDOW 30", None),
        ("SELECT a.k FROM a, b WHERE a.k = b.k WITH PREFERENCE desc WINDOW 30", BUDGET),
    ],
)
def test_an_interrupt_at_any_moment_of_a_query_is_an_interrupt(statement: str, budget: nile.Budget | None) -> None:
    rng = np.random.default_rng(7)
    with nile.connect() as db:
        for name in "ab":
            ts = np.sort(rng.uniform(0, 1000, 4000))
            db.register(name, {"t": ts, "k": rng.integers(0, 200, 4000)}, time="t")

        def ask() -> int:
            return db.sql(statement, budget=budget).to_arrow().num_rows

        wanted = ask()
        began = time.perf_counter()
        assert ask() == wanted
        longest = time.perf_counter() - began
        before = signal.signal(signal.SIGALRM, stop)
        came: Counter[str] = Counter()
        try:
            for _ in range(300):
                try:
                    signal.setitimer(signal.ITIMER_REAL, float(rng.uniform(1e-5, longest)))
                    ask()
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except BaseException as error:  # SystemError is what is looked for
                    came[type(error).__name__] += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert set(came) == {"KeyboardInterrupt"}
        assert ask() == wanted
