"""Where every tuple of a stream went: in = applied + late + shed + rejected, at every moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nile.summaries.errors import NileError


@dataclass(slots=True)
class Accounting:
    """Counts of tuples of one stream, or the sum over several.

    `applied`: passed to the summaries and operators. `late`: older than the lateness allows. `shed`: admitted, but
    dropped by an operator under load. `rejected`: rows without a usable time or key, or malformed rows
    (`reasons` counts them by reason). A tuple counts as in once it is one of these; a tuple still waiting to be
    ordered is not in yet. `dropped`: for each column that the stream does not have and drops (`extra="drop"`), the
    rows that had it.
    """

    tuples_in: int = 0
    applied: int = 0
    late: int = 0
    shed: int = 0
    rejected: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)

    def apply(self, count: int) -> None:
        """`count` tuples came in and were given on."""
        self.tuples_in += count
        self.applied += count

    def reject(self, reasons: Mapping[str, int]) -> None:
        """Tuples came in and were set aside, by reason."""
        for reason, count in reasons.items():
            self.tuples_in += count
            self.rejected += count
            self.reasons[reason] = self.reasons.get(reason, 0) + count

    def drop(self, columns: Iterable[str], rows: int) -> None:
        """So many rows came with columns that the stream does not have."""
        for column in columns:
            self.dropped[column] = self.dropped.get(column, 0) + rows

    def arrive_late(self, count: int) -> None:
        """`count` tuples came in too late."""
        self.tuples_in += count
        self.late += count

    def shed_applied(self, count: int) -> None:
        """`count` tuples that had been given on were dropped under load."""
        self.applied -= count
        self.shed += count

    def check(self) -> None:
        """Raises NileError if the counts do not add up."""
        parts = (self.applied, self.late, self.shed, self.rejected)
        if self.tuples_in != sum(parts) or self.rejected != sum(self.reasons.values()) or min(parts) < 0:
            raise NileError(
                f"accounting: needed in = applied + late + shed + rejected, got {self.tuples_in} and "
                f"{' + '.join(map(str, parts))} (reasons {self.reasons}); this is a fault of Nile, please report it"
            )

    def as_dict(self) -> dict[str, int | dict[str, int]]:
        """The counts for a report, reasons in alphabetical order."""
        return {
            "tuples_in": self.tuples_in,
            "applied": self.applied,
            "late": self.late,
            "shed": self.shed,
            "rejected": self.rejected,
            "reasons": dict(sorted(self.reasons.items())),
            **({"dropped": dict(sorted(self.dropped.items()))} if self.dropped else {}),
        }

    def left_out(self) -> str:
        """How many tuples were set aside or late and why, in words; "" for none."""
        why = {**self.reasons, **({"later than the lateness allows": self.late} if self.late else {})}
        if not why:
            return ""
        told = next(iter(why)) if len(why) == 1 else ", ".join(f"{count:,} {reason}" for reason, count in why.items())
        return f"{self.rejected + self.late:,} of {self.tuples_in:,} rows left out ({told})"

    def __add__(self, other: Accounting) -> Accounting:
        total = Accounting(
            self.tuples_in + other.tuples_in,
            self.applied + other.applied,
            self.late + other.late,
            self.shed + other.shed,
            self.rejected + other.rejected,
        )
        for reasons in (self.reasons, other.reasons):
            for reason, count in reasons.items():
                total.reasons[reason] = total.reasons.get(reason, 0) + count
        for dropped in (self.dropped, other.dropped):
            for column, count in dropped.items():
                total.drop((column,), count)
        return total
