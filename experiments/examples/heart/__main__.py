"""The report: `python -m nile.experiments.examples.heart [HEARTS] [SEED] [SECONDS]`."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from nile.experiments.examples.heart.watch import report


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("hearts", type=click.IntRange(min=1), default=20)
@click.argument("seed", type=click.IntRange(min=0), default=1)
@click.argument("seconds", type=click.IntRange(min=1), default=120)
def main(hearts: int, seed: int, seconds: int) -> None:
    """Find the beats of HEARTS simulated hearts, each of SECONDS seconds."""
    table = Table("noise", "beats found", "false beats", "early beats told", "told wrongly", "rate off by at most")
    for noise, rates in report(hearts, seed, seconds):
        shares = (rates.found, rates.false, rates.early, rates.wrong, rates.worst)
        table.add_row(f"{noise:g}", *(f"{share:.1%}" for share in shares[:-1]), f"{rates.worst:.2%}")
    console = Console()
    console.print(f"{hearts} hearts of {seconds} s, one beat in thirty ectopic; an R wave is 1 (seed {seed})")
    console.print(table)


if __name__ == "__main__":
    main(prog_name="python -m nile.experiments.examples.heart")
