"""Attempts in a process of their own, which may crash: whoever runs it is told of each seed before and after it.

`python -m nile.experiments.faults.worker` reads orders from standard input, a line each: WHAT NAME FIRST COUNT, that is
`attempts` or `controls` of a fault, seeds FIRST, FIRST + 1, ...  It answers in lines of JSON: a number, the seed that
begins; an object, what came of it; null, when it is done with the order.  A process serves many orders, since to start
one and to load kernels takes longer than most attempts.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from nile.experiments.faults.scoring import tried
from nile.experiments.faults.table import chosen

__all__ = ["main"]


def main() -> None:
    """Serve orders until there are no more."""
    # A job in the background of a shell begins with Ctrl-C ignored, and so would all that is interrupted here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Attempts start processes and print: neither may reach what orders come by.
    orders, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    os.close(nothing)

    def answer(value: Any) -> None:
        answers.write(json.dumps(value) + "\n")

    for order in orders:
        what, name, first, count = order.split()
        (fault,) = chosen([name])
        for seed in range(int(first), int(first) + int(count)):
            answer(seed)
            answer(tried(fault, what, seed).as_dict())
        answer(None)


if __name__ == "__main__":
    main()
