"""Figure 9 of the paper again: `python -m nile.experiments.figures.structures --out figure-9`.

Runs `paper` over T1 to T4 and the opponent `scan` on two synthetic retail streams, under both cost tables and
several budgets, and writes the report of `nile run`, whose first section compares them: t_ins (9a), t_hit (9b),
outputs an input (9c), the order of the paper, the order found, and why it differs.  The paper's axis is the mean
time between arrivals; here it is the budget, as a share of what the exact join costs.  The largest budget is all
that the scan needs.  `CONFIG` is a config for `nile run`; change its streams for data of your own.
"""

from __future__ import annotations

import sys
import textwrap
import tomllib
from pathlib import Path

import click

from nile.experiments.run.config import RunConfig, build_config
from nile.report.pages.structures import SAID, findings

__all__ = ["CONFIG", "config"]

WIDTH = 79

CONFIG = """\
window = "1 hour"
budgets = [1, 2, 5, 10, 20, 50, 200]
preferences = "desc"
methods = ["paper", "scan"]
structures = ["T1", "T2", "T3", "T4"]
costs = ["memory", "engine"]

[left]
source = "synthetic"
time = "ts"
key = "item_id"
where = "vstore = 0"

[right]
source = "synthetic"
time = "ts"
key = "item_id"
where = "vstore = 1"

[synthetic]
seed = 0
tuples = 20000
items = 400

[summary]
granularity = "30 min"
buckets = 16
sketch_columns = 8
"""


def config() -> RunConfig:
    """The grid of Figure 9, as a config that `nile run` takes."""
    return build_config(tomllib.loads(CONFIG), where="figure 9", text=CONFIG)


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("figure-9"), show_default=True,
              help="Folder for report.html and report.json.")  # fmt: skip
@click.option("--config", "only_config", is_flag=True, help="Print the config instead, to run it on other data.")
def main(out: Path, only_config: bool) -> None:
    """Compare the structures T1 to T4 in insert and hit cost."""
    if only_config:
        click.echo(CONFIG, nl=False)
        return
    from nile.experiments.run.demo import run_and_tell

    command = ["python", "-m", "nile.experiments.figures.structures", *sys.argv[1:]]
    report = run_and_tell(config(), out, command=command, text=CONFIG)
    print(f"\n{textwrap.fill(SAID, WIDTH)}")
    for found in findings(report["runs"]):
        print(f"\n{found.title}")
        for line in found.lines:
            print(textwrap.fill(line, WIDTH, initial_indent="* ", subsequent_indent="  "))


if __name__ == "__main__":
    main()
