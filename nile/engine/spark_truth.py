"""The exact answer that a report scores against, computed by Spark."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from nile.operators.inputs.joining import Joinable
from nile.report.metrics import ExactPairs
from nile.report.truth import refuse_beyond_memory, write_prepared
from nile.spark.exact.join import exact_join
from nile.spark.session import spark_session

__all__ = ["exact_pairs_by_spark"]


def exact_pairs_by_spark(joined: Joinable) -> ExactPairs:
    """`nile.report.truth.exact_pairs` from the streams as they were loaded, written to a folder that is removed again.

    Raises MemoryRefused, JavaMissing, SparkFailed, ConfigError.
    """
    refuse_beyond_memory(joined.pairs)
    with TemporaryDirectory(prefix="nile-report-") as name:
        folders = (Path(name) / "left", Path(name) / "right")
        for stream, folder in zip(joined.streams, folders, strict=True):
            write_prepared(stream, folder)
        answer = exact_join(spark_session(), folders[0], folders[1], joined.window, Path(name) / "exact")
        return ExactPairs.read(answer.path)
