"""What a join that ran was: its form, what it was chosen by, what it found and what it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from nile.exact.join.form import Form
from nile.exact.join.threads import cpu_ns
from nile.summaries.heavy import pa

__all__ = ["Shape"]


@dataclass(slots=True)
class Shape:
    """form: None until it is known; pairs: that came out; made: before the join's own condition, None where it is not
    counted; hashed: whether keys are text; took: ns of CPU, with the columns of its pairs handed out.
    """

    form: Form | None = None
    pairs: int = 0
    made: int | None = None
    hashed: bool = False
    took: int = 0

    @property
    def candidates(self) -> int:
        """Pairs that the join's keys and times make."""
        return self.pairs if self.made is None else self.made

    def watched(self, found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What a join finds, its CPU taken down: of all threads that work for it, without that of who reads it."""
        began, others = cpu_ns(), 0
        for batch in found:
            self.pairs += batch.num_rows
            self.took = cpu_ns() - began - others
            handed = time.thread_time_ns()
            yield batch
            others += time.thread_time_ns() - handed
        self.took = cpu_ns() - began - others
