"""The report: `python -m nile.experiments.examples.hazmat [BOXES] [SEED]`."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from nile.experiments.examples.hazmat.decide import report


def main(arguments: list[str]) -> None:
    """Print a table."""
    count, seed = (*map(int, arguments), *(400, 1)[len(arguments) :])
    table = Table("exposure", "detected", "confused", "false alarms", "seconds per box")
    for name, rates in report(count, seed):
        shares = (rates.detected, rates.confused, rates.false_alarms)
        table.add_row(name, *(f"{share:.1%}" for share in shares), f"{rates.seconds:.2f}")
    console = Console()
    console.print(f"{count} boxes, half of them empty, a tenth with a material that no library knows (seed {seed})")
    console.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
