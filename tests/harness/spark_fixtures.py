"""The Spark session that all Spark tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from nile.spark.java import find_java
from nile.spark.session import spark_session, stop_session
from nile.summaries.errors import JavaMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of every Java here and in child processes: many start and see few rows, so optimised code would never pay for itself.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
os.environ.setdefault("JDK_JAVA_OPTIONS", f"-XX:+IgnoreUnrecognizedVMOptions {QUICK}")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for the whole run; without a Java the tests that need it are skipped, and say why."""
    try:
        find_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    yield spark_session("nile-tests", cores=2)
    stop_session()
