"""Attempts in a process of their own, which may crash.

`python -m nile.experiments.faults.worker attempts NAME FIRST COUNT` says, line by line to standard output, each seed
as it begins, and the score as JSON at the end.
"""

from __future__ import annotations

import json
import sys

from nile.experiments.faults.scoring import attempted, controlled
from nile.experiments.faults.table import chosen

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """WHAT NAME FIRST COUNT: `attempts` or `controls` of a fault, seeds FIRST, FIRST + 1, ..."""
    what, name, first, count = arguments
    (fault,) = chosen([name])

    def begun(seed: int) -> None:
        sys.stdout.write(f"{seed}\n")
        sys.stdout.flush()

    seeds = range(int(first), int(first) + int(count))
    score = attempted(fault, seeds, begun) if what == "attempts" else controlled(fault, seeds, begun)
    sys.stdout.write(json.dumps(score.as_dict()) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
