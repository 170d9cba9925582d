"""Nexmark: an online auction's persons, auctions and bids, and the queries over them.

`data` makes the streams, `queries` has the statements, `run` measures them.  Imports `nile`.
Source: Tucker, Tufte, Papadimos, Maier, NEXMark (2008); the queries as Flink's and Beam's suites number them.
"""

from nile.experiments.benchmarks.nexmark.run import nexmark

__all__ = ["nexmark"]
