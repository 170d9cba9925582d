"""`nile serve STORE`: a database over HTTP."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from nile.summaries.errors import ConfigError

__all__ = ["serve"]


@click.command(short_help="A database over HTTP.")
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on. HTTP is not encrypted: "
    "use a non-loopback address only on a network whose members may read everything.",
)
@click.option("--port", type=click.IntRange(0, 65_535), default=6453, show_default=True, help="0: any free port.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the token, mode 600; created if it does not exist. Without it a new token is printed.",
)
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="Another host name of this server; repeatable."
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Origin of web pages that may send requests; repeatable.",
)
@click.option(
    "--allow-files",
    is_flag=True,
    help="Let SQL name files on this machine, code (CREATE SENSORS), and what to connect to (CREATE SINK).",
)
@click.option(
    "--memory", metavar="SIZE", help="Memory for kept rows, such as 1GB; the rest spills to the store's files."
)
@click.option(
    "--state",
    metavar="SIZE",
    help="Memory for what all standing queries hold; beyond it they are answered from samples, with intervals.",
)
@click.option("--cpu", type=float, metavar="SHARE", help="Share of a core for pushes, such as 0.5; likewise.")
@click.option(
    "--scheduler",
    metavar="NAME",
    help="Which operator of exact standing queries runs next: fifo, round-robin, greedy, chain or chain-latency.",
)
@click.option(
    "--quantum", metavar="DURATION", help="CPU time of a push, such as '5 ms'; the rest is done between pushes."
)
@click.option(
    "--latency", default="100 ms", show_default=True, metavar="DURATION", help="The longest wait under chain-latency."
)
@click.option("--checkpoint", default="10 s", show_default=True, metavar="DURATION", help="Time between checkpoints.")
@click.option(
    "--max-body", type=click.IntRange(1), default=64 << 20, show_default=True, metavar="BYTES", help="The largest push."
)
@click.option("--max-streams", type=click.IntRange(1), default=64, show_default=True, help="Open streams per client.")
@click.option(
    "--max-rate",
    type=click.FloatRange(0, min_open=True),
    default=500.0,
    show_default=True,
    help="Requests per second and client.",
)
@click.option(
    "--retain",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    metavar="ROWS",
    help="Outputs kept per standing query for readers that reconnect.",
)
@click.option(
    "--flight-port",
    type=click.IntRange(0, 65_535),
    help="Serve Arrow Flight SQL too, for ADBC, JDBC and ODBC drivers, on this port; 0: any free port.",
)
@click.option("--log-requests", is_flag=True, help="Log a line per request, without its content.")
def serve(
    store: Path, host: str, port: int, token_file: Path | None, hosts: tuple[str, ...], origins: tuple[str, ...],
    allow_files: bool, memory: str | None, state: str | None, cpu: float | None, scheduler: str | None,
    quantum: str | None, latency: str, checkpoint: str, max_body: int, max_streams: int, max_rate: float, retain: int,
    flight_port: int | None, log_requests: bool,
) -> None:  # fmt: skip
    """Serve the database in STORE (created if missing) over HTTP until Ctrl-C or SIGTERM, then write a checkpoint.

    Every request needs the token. Requires the extra nile-streams[server].
    """
    try:
        from nile.server.client_errors import JsonLines
        from nile.server.serve import Beside, Server, listen
        from nile.server.service import Service
        from nile.server.settings import Settings, new_token, read_token
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"serve: needed the packages of the extra 'server'; got no {error.name}; pip install 'nile-streams[server]'"
        ) from None
    import nile

    token = new_token() if token_file is None else read_token(token_file)
    settings = Settings(
        token, frozenset({*hosts, host.lower()}), frozenset(origins), allow_files, body=max_body, streams=max_streams,
        rate=max_rate, burst=max(1, round(2 * max_rate)), retain=retain, log_requests=log_requests,
    )  # fmt: skip
    bound = listen(host, port)
    at = f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(JsonLines())
    logging.basicConfig(handlers=[lines])
    logging.getLogger("nile.server").setLevel(logging.INFO)

    def flight(service: Service) -> Beside:
        from nile.server.flight.serve import FlightSql  # gRPC is loaded by those alone who serve it

        return FlightSql(service, host, flight_port or 0)

    def say() -> None:
        click.echo(f"serving {store} at {at}" + ("" if token_file is None else f", token in {token_file}"))
        if token_file is None:
            click.echo(f"token {token}")
            click.echo(f"the inspector: {at}/#token={token}")
        if server.besides is not None:
            name = f"[{host}]" if ":" in host else host
            click.echo(f"Flight SQL: grpc://{name}:{server.besides.port}")
        sys.stdout.flush()

    db = nile.connect(
        store, memory=memory, checkpoint=checkpoint, state=state, cpu=cpu, scheduler=scheduler, quantum=quantum,
        latency=latency,
    )  # fmt: skip
    try:
        server = Server(db, settings, str(store), ready=say, beside=None if flight_port is None else flight, alone=True)
        try:
            server.run([bound])
        except KeyboardInterrupt:  # told to stop, and has
            return
    finally:
        db.close()
        bound.close()
