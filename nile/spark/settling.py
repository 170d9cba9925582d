"""What a Python worker of Spark holds from task to task, and need not be looked through for garbage after each."""

from __future__ import annotations

import gc
import os

__all__ = ["settle_worker"]

_MANY = 50_000
"""Objects whose search takes longer than a count of them is worth: about 10 ms."""


def settle_worker() -> None:
    """At the end of a task: what the worker has loaded by now is not searched for garbage again.

    Spark collects after every task, which takes 0.12 s with our packages and kernels loaded: three times the work of
    a part in a micro-batch.  Only what is alive is set aside, and only where it is much: what tasks leave behind is
    still found.  Does nothing outside of workers that go on to another task.  Cost: O(objects since the last time).
    """
    if "SPARK_REUSE_WORKER" not in os.environ or len(gc.get_objects()) < _MANY:
        return
    gc.collect()
    if len(gc.get_objects()) >= _MANY:
        gc.freeze()
