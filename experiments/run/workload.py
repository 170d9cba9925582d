"""Two prepared streams and their exact answer: what every run of an experiment starts from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nile.experiments.run.config import SYNTHETIC, RunConfig, StreamConfig, SyntheticData
from nile.experiments.run.progress import Progress
from nile.expressions.conditions import parse_condition
from nile.operators.inputs.joining import Joinable, Loaded, load_stream, retimed
from nile.report.metrics import ExactPairs
from nile.report.truth import write_prepared
from nile.streams.accounting import Accounting
from nile.streams.manager import StreamManager, StreamSpec
from nile.streams.source import open_source
from nile.streams.synthetic import SyntheticRetail
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.spark import session as spark_session
    from nile.spark.exact import join as spark_exact
    from nile.spark.ingesting import prepare as spark_prepare
else:
    spark_exact = lazy("nile.spark.exact.join")
    spark_prepare = lazy("nile.spark.ingesting.prepare")
    spark_session = lazy("nile.spark.session")

__all__ = ["Workload", "Workshop"]


@dataclass(frozen=True, slots=True)
class Workload:
    """Streams ready to join and the answer that scores what comes out."""

    joined: Joinable
    exact: ExactPairs


class Workshop:
    """Prepares streams with Spark and computes exact answers with Spark, in a folder of its own.

    One session, one preparation a side; an exact answer for each timing of the streams (one, or one per seed
    when arrivals are re-timed).
    """

    def __init__(self, config: RunConfig, folder: Path, progress: Progress) -> None:
        self.config = config
        self.folder = folder
        self.progress = progress
        self.versions: dict[str, str] = {}
        self._streams: tuple[Loaded, Loaded] | None = None
        self._workloads: dict[int, Workload] = {}
        self._spark: Any = None

    def start(self) -> None:
        """Start Spark."""
        with self.progress.stage("Spark start"):
            self._spark = spark_session.spark_session()
            self.versions["spark"] = str(self._spark.version)
            system = self._spark._jvm.java.lang.System
            self.versions["java"] = str(system.getProperty("java.version"))

    def prepare(self) -> None:
        """Read, type, validate, quarantine, filter, order and write both streams."""
        with self.progress.stage("preparation", total=2):
            loaded = []
            for side in ("left", "right"):
                stream: StreamConfig = getattr(self.config, side)
                source = self._source(stream)
                where = parse_condition(stream.where, where=f"[{side}] where") if stream.where else None
                spec = spark_prepare.PrepareSpec(name=side, path=source, time=stream.time, key=stream.key, where=where)
                prepared = spark_prepare.prepare(self._spark, spec, self.folder / side, on_progress=self.progress.say)
                loaded.append(self._load(side, prepared))
                self.progress.step(f"{side}: {prepared.rows:,} tuples")
            self._streams = (loaded[0], loaded[1])

    def workload(self, seed: int) -> Workload:
        """The streams as this seed times them, with their exact answer."""
        at = seed if self.config.replay == "exponential" else 0
        if at not in self._workloads:
            self._workloads[at] = self._build(at)
        return self._workloads[at]

    def _source(self, stream: StreamConfig) -> Path:
        return self._synthetic(self.config.synthetic) if stream.source == SYNTHETIC else Path(stream.source)

    def _synthetic(self, data: SyntheticData) -> Path:
        path = self.folder / f"synthetic-{data.seed}.parquet"
        if not path.exists():
            self.progress.say(f"drawing {data.tuples:,} synthetic retail tuples")
            SyntheticRetail(seed=data.seed, tuples=data.tuples, items=data.items).write_parquet(path)
        return path

    def _load(self, side: str, prepared: Any) -> Loaded:
        """The prepared stream as the engine replays it; its accounting starts from what Spark counted."""
        spec = StreamSpec(name=side, source=open_source(prepared.path, name=side), time="ts", key="key")
        stream = load_stream(StreamManager(spec), batch_rows=self.config.batch_rows)
        counted = Accounting()
        counted.reject(prepared.rejected)
        stream = replace(stream, accounting=stream.accounting + counted)
        stream.accounting.check()
        return stream

    def _build(self, seed: int) -> Workload:
        assert self._streams is not None
        left, right = self._streams
        folders = (self.folder / "left", self.folder / "right")
        if self.config.replay == "exponential":
            left, right = retimed((left, right), self.config.pace, seed)
            folders = (self.folder / f"left-{seed}", self.folder / f"right-{seed}")
            for stream, folder in zip((left, right), folders, strict=True):
                write_prepared(stream, folder)
        with self.progress.stage("exact answer", total=1):
            answer = spark_exact.exact_join(
                self._spark, folders[0], folders[1], self.config.window, self.folder / f"exact-{seed}",
                on_progress=self.progress.say,
            )  # fmt: skip
            exact = ExactPairs.read(answer.path)
            self.progress.step(f"{answer.pairs:,} pairs")
        with self.progress.stage("encoding", total=1):
            joined = Joinable(left, right, self.config.window)
            self.progress.step(f"{joined.keys.known:,} keys")
        return Workload(joined, exact)
