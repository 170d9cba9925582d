"""The report: `python -m nile.experiments.examples.heart [HEARTS] [SEED] [SECONDS]`."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from nile.experiments.examples.heart.watch import report


def main(arguments: list[str]) -> None:
    """Print a table."""
    count, seed, seconds = (*map(int, arguments), *(20, 1, 120)[len(arguments) :])
    table = Table("noise", "beats found", "false beats", "early beats told", "told wrongly", "rate off by at most")
    for noise, rates in report(count, seed, seconds):
        shares = (rates.found, rates.false, rates.early, rates.wrong, rates.worst)
        table.add_row(f"{noise:g}", *(f"{share:.1%}" for share in shares[:-1]), f"{rates.worst:.2%}")
    console = Console()
    console.print(f"{count} hearts of {seconds} s, one beat in thirty ectopic; an R wave is 1 (seed {seed})")
    console.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
