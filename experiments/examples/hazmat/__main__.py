"""The report: `python -m nile.experiments.examples.hazmat [BOXES] [SEED]`."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from nile.experiments.examples.hazmat.decide import report


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("boxes", type=click.IntRange(min=1), default=400)
@click.argument("seed", type=click.IntRange(min=0), default=1)
def main(boxes: int, seed: int) -> None:
    """Detect materials in BOXES simulated boxes, after each exposure."""
    table = Table("exposure", "detected", "confused", "false alarms", "seconds per box")
    for name, rates in report(boxes, seed):
        shares = (rates.detected, rates.confused, rates.false_alarms)
        table.add_row(name, *(f"{share:.1%}" for share in shares), f"{rates.seconds:.2f}")
    console = Console()
    console.print(f"{boxes} boxes, half of them empty, a tenth with a material that no library knows (seed {seed})")
    console.print(table)


if __name__ == "__main__":
    main(prog_name="python -m nile.experiments.examples.hazmat")
