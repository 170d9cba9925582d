"""A process that measures points: a group a line of JSON in, a result a line of JSON out.

`python -m nile.experiments.atlas.worker`.  JSON keeps every bit of a float, so figures are the same as in one process.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from nile.experiments.atlas.kinds import Data
from nile.experiments.atlas.measures import kind_of
from nile.experiments.atlas.points import Group, Record
from nile.summaries.errors import NileError

__all__ = ["as_json", "from_json", "measured"]


def measured(group: Group) -> Iterator[tuple[str, Record]]:
    """The points of a group, each as it is done: its key and its figures.  Raises what the kind raises."""
    prepared: Any = None
    for key, options in group.points.items():
        if prepared is None:
            prepared = group.kind.prepare(options, group.seed, group.data)
        found = group.kind.measure(prepared, options, group.seed)
        yield key, {name: _finite(value) for name, value in found.items()}


def as_json(group: Group) -> str:
    """A group as one line."""
    data = None if group.data is None else asdict(group.data)
    points = {key: options.model_dump() for key, options in group.points.items()}
    return json.dumps({"kind": group.kind.name, "seed": group.seed, "data": data, "points": points})


def from_json(line: str) -> Group:
    """The group of a line."""
    told = json.loads(line)
    kind = kind_of(told["kind"])
    points = {key: kind.options.model_validate(options) for key, options in told["points"].items()}
    return Group(kind, told["seed"], None if told["data"] is None else Data(**told["data"]), points)


def _finite(value: float | None) -> float | None:
    """JSON has no NaN and no infinity: a figure that does not exist is null."""
    return None if value is None or not math.isfinite(value) else float(value)


def main() -> None:
    """Serve groups until the input ends.  What else prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            for key, record in measured(from_json(line)):
                print(json.dumps({"key": key, "record": record}), file=out, flush=True)
        except NileError as error:
            print(json.dumps({"error": str(error)}), file=out, flush=True)
            return
        print(json.dumps({"done": True}), file=out, flush=True)


if __name__ == "__main__":
    main()
