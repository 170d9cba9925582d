"""What a run of a join did, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["JoinFigures"]


@dataclass(frozen=True, slots=True)
class JoinFigures:
    """What a run did.  Costs are in units of its cost table; t_ins is spent_insert a tuple, t_hit spent_hit an output.

    regions: promising regions made, pruned: those left out for a bound of 0; zones: time zones ended, both
    streams, `changes` of them because the stream changed; ruled_out: tuples whose key a shared summary tells to have no
    partner.
    """

    arrivals: int
    nulls: int
    admitted: int
    shed: tuple[int, int]
    outputs: int
    regions: int
    pruned: int
    zones: int
    changes: int
    expired: int
    evicted: int
    granted: float
    spent: float
    spent_insert: float
    spent_hit: float
    exact_cost: float
    coverage: float
    forgotten: int
    admission: float
    sampling_rate: float
    ruled_out: int = 0

    def drawn_from(self, pairs: float) -> JoinFigures:
        """The same of a sample, whose rates are what was drawn: of tuples with a key, and of the pairs those made."""
        met = self.admitted + sum(self.shed)
        return replace(
            self,
            admission=self.admitted / met if met else 1.0,
            sampling_rate=self.outputs / pairs if pairs else 1.0,
        )

    @property
    def budget_spent(self) -> float:
        """What was spent as a share of the exact answer's cost."""
        return self.spent / self.exact_cost if self.exact_cost else 0.0

    @property
    def t_ins(self) -> float | None:
        """Cost of taking one tuple in; None when none was."""
        return self.spent_insert / self.admitted if self.admitted else None

    @property
    def t_hit(self) -> float | None:
        """Cost of finding one output; None when there is none."""
        return self.spent_hit / self.outputs if self.outputs else None

    @property
    def interarrival(self) -> float | None:
        """What an arrival is granted on average: the paper's average interarrival time, on the cost clock."""
        return self.granted / self.arrivals if self.arrivals else None

    @property
    def outputs_per_input(self) -> float | None:
        """Outputs an arrival, as measured."""
        return self.outputs / self.arrivals if self.arrivals else None

    @property
    def predicted_outputs_per_input(self) -> float | None:
        """Equation 1 of promising tuples: (interarrival - t_ins) / t_hit, at least 0.

        More than measured by what `unspent` buys, less by what `not_taken` saves: tuples shed cost no t_ins.
        """
        if self.t_ins is None or self.t_hit is None or self.interarrival is None:
            return None
        return max(0.0, self.interarrival - self.t_ins) / self.t_hit

    @property
    def unspent(self) -> float | None:
        """The share of the grant that found no work or came too late."""
        return 1.0 - self.spent / self.granted if self.granted else None

    @property
    def not_taken(self) -> float | None:
        """The share of arrivals that were not taken in: shed, or without a key."""
        return 1.0 - self.admitted / self.arrivals if self.arrivals else None
