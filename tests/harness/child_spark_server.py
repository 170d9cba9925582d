"""A process that is a Spark Connect server on the loopback: says its port, and ends when its input does."""

from __future__ import annotations

import socket
import sys

from nile.spark import session


def main(master: str) -> None:
    """The server of a Spark at `master`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ours = session._settings
    served = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    session._settings = lambda *given: {**ours(*given), **served}  # the same Spark, with a server in it
    session.spark_session("nile-tests-server", master=master)
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    session.stop_session()


if __name__ == "__main__":
    main(sys.argv[1])
