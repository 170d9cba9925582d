"""`nile calibrate`: what the steps of an approximate join cost on this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

__all__ = ["calibrate"]


@click.command()
@click.option("--show", is_flag=True, help="Print the prices in use and measure nothing.")
def calibrate(show: bool) -> None:
    """Measure the cost of each step of an approximate join on this machine, and keep it for budgets (25 seconds).

    Without it the prices that Nile ships are scaled by this machine's pace, which the first query measures in passing.
    """
    from nile.operators.strategies.machine_prices import keep, kept_at, machine_prices

    if show:
        prices = machine_prices()
    else:
        from nile.engine.calibrating import calibrated

        prices = calibrated(lambda step: click.echo(f"measuring {step} ...", err=True))
        keep(prices)
    click.echo(f"{'step':<10}{'ns of CPU':>12}")
    for step, ns in asdict(prices).items():
        for line in _lines(step, ns):
            click.echo(line)
    click.echo(f"kept in {kept_at()}; NILE_PRICES=shipped does without")


def _lines(step: str, ns: Any) -> list[str]:
    if isinstance(ns, float):
        return [f"{step:<10}{ns:>12,.1f}"]
    by = "tuples in a window" if step == "far" else "matches a tuple" if step in ("pair", "emit", "named") else "keys"
    return [f"{step:<10}{price:>12,.1f}  at {round(2**size):,} {by}" for size, price in ns]
