"""`nile doctor`: what this machine, and with --spark every executor, lacks, and how to mend it."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nile.engine.doctor import Check

__all__ = ["doctor"]

_MARKS = {"ok": "ok  ", "note": "note", "gap": "GAP "}


@click.command()
@click.option("--spark", is_flag=True, help="Also start Spark and run a task on every executor.")
@click.option("--master", metavar="URL", help="Like --spark, on a cluster: spark://host:7077.")
@click.option("--remote", metavar="URL", help="Like --spark, on a Spark Connect server: sc://host:15002.")
@click.option("--warm", is_flag=True, help="Also compile the kernels of common queries, on all cores.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(spark: bool, master: str | None, remote: str | None, warm: bool, as_json: bool) -> None:
    """Check this machine, and say how to fix what is missing; exit status 1 if anything is."""
    from nile.engine.doctor import checks

    found = checks()
    if spark or master or remote:
        from nile.engine.spark_checkup import spark_checks

        found += spark_checks(master, remote)
    if warm:
        found += _warmed()
    gaps = sum(check.status == "gap" for check in found)
    if as_json:
        click.echo(json.dumps({"gaps": gaps, "checks": [asdict(check) for check in found]}))
    else:
        for check in found:
            click.echo(f"{_MARKS[check.status]}  {check.name}: {check.found}")
            if check.status != "ok":
                click.echo(f"        needed: {check.needed}\n        mend: {check.mend}")
    if gaps:
        click.echo(f"{gaps} to mend.", err=True)
        sys.exit(1)


def _warmed() -> list[Check]:
    """What compiling beforehand came to, one entry for all kinds of queries; says each kind when it is done."""
    from nile.engine.doctor import Check
    from nile.engine.warming import warm

    failed = []
    begun = time.perf_counter()
    for kind, ran in warm():
        click.echo(f"compiled: {kind}" if ran else f"failed: {kind}", err=True)
        failed += [] if ran else [kind]
    took = f"compiled in {time.perf_counter() - begun:.0f} s"
    if failed:
        mend = "run one such query: its error says what is wrong"
        return [Check("kernels", "gap", f"not of {', '.join(failed)}", "compiled and kept", mend)]
    return [Check("kernels", "ok", took, "compiled and kept")]
