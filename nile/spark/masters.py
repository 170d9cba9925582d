"""Where Spark's tasks run: this process, a cluster, or behind a Spark Connect server; and what each lacks."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nile.summaries.errors import ConfigError, SparkFailed
from nile.summaries.heavy import spark_functions as functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Place", "check_master", "check_remote", "is_connect", "place", "runs_here", "task_slots"]

_ANSWER_SECONDS = 5  # what a master that is there takes to accept a connection, and more
_CONNECT_PORT = 15002
_RANGE = 1 << 20

Place = tuple[str | None, str | None]
"""(master, remote): at most one of them; none: this process."""


def place(master: str | None, remote: str | None) -> Place:
    """What a caller asks for, or else the environment's NILE_SPARK: a master, or the address of a Connect server.

    Raises ConfigError for both at once.
    """
    if master is not None and remote is not None:
        raise ConfigError(
            f"Spark session: needed a master or a remote; got both, {master} and {remote}; a remote has its own master"
        )
    named = os.environ.get("NILE_SPARK")
    if master is None and remote is None and named:
        return (None, named) if named.startswith("sc://") else (named, None)
    return master, remote


def runs_here(master: str) -> bool:
    """Whether a master's tasks run beside this process, with its packages: local, local[n], local[n, f]."""
    return master == "local" or master.startswith("local[")


def is_connect(session: SparkSession) -> bool:
    """Whether a session speaks to a Spark Connect server: it has no SparkContext, RDDs or Java objects."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def task_slots(session: SparkSession) -> int:
    """How many tasks run at once, as far as Spark knows by now.  Cost: behind Spark Connect, one small job."""
    if not is_connect(session):
        return int(session.sparkContext.defaultParallelism)
    return int(session.range(_RANGE).select(functions.spark_partition_id()).distinct().count())


def check_master(master: str) -> None:
    """Raises SparkFailed unless one of the masters that "spark://host:port,host:port" names answers.

    Spark itself would try for a minute and then fail without saying why.  Other kinds of master pass.
    """
    if not master.startswith("spark://"):
        return
    said = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS).close()
        except (OSError, ValueError, OverflowError) as error:
            said.append(f"{address}: {error}")
        else:
            return
    raise SparkFailed(
        f"Spark session: needed the master {master} to answer; got {'; '.join(said)}; start it, or check host, port "
        "and firewall"
    )


def check_remote(remote: str) -> None:
    """Raises ConfigError unless `remote` is "sc://host:port/;options", SparkFailed unless the server answers."""
    try:
        parts = urlsplit(remote)
        host, port = parts.hostname, parts.port or _CONNECT_PORT
    except ValueError:
        host, port = None, 0
    if host is None or not remote.startswith("sc://"):
        raise ConfigError(
            f"Spark session: needed a remote such as sc://host:{_CONNECT_PORT}; got {remote}; for a cluster's own "
            "address give master="
        )
    try:
        socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()
    except OSError as error:
        raise SparkFailed(
            f"Spark session: needed a Spark Connect server at {host}:{port}; got {error}; start one "
            "(start-connect-server.sh), or check host, port and firewall"
        ) from None
