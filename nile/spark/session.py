"""One Spark session for the whole process: quiet, in UTC, leaving no files behind; on the loopback unless a cluster."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nile.base.interrupts import INTERRUPTS
from nile.base.machine import core_count, memory_bytes
from nile.spark.failure import CONNECT_PACKAGES, cause, needed_packages, sentence, spark_failures
from nile.spark.java import JavaHome, find_java
from nile.spark.masters import check_master, check_remote, is_connect, place, task_slots
from nile.spark.shipping import ship
from nile.summaries.errors import ConfigError, SparkFailed
from nile.summaries.heavy import java_gateway, pyspark, spark_logger, spark_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_MEMORY = 6 << 30  # bytes of Java heap; beyond it Spark spills, and a laptop stays usable
_LEAST_MEMORY = 1 << 30  # Spark itself needs about half of this
_STOP_SECONDS = 20

# What Nile's queries mean must not hang on a user's Spark defaults.
QUERY_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Nile's jobs know their sizes beforehand; planning again after every stage costs more than it finds.
    "spark.sql.adaptive.enabled": "false",
}
# Java's optimising compiler comes in ten times later than by default: short jobs spend a third less CPU
# (two cores), long ones run as fast as ever (both measured).
_JVM = (
    "-XX:-UsePerfData",
    "-XX:+UseParallelGC",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_LOG4J = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n%ex{short}
"""

_PARTITIONS = "spark.sql.shuffle.partitions"  # as many as tasks run at once: jobs that need more say so
_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"  # PySpark's own mark, for the whole process

_lock = threading.RLock()
_running: _Running | None = None


class _Running:
    """The session of this process; the Java process behind it and their directory, where those are ours."""

    def __init__(self, session: SparkSession, gateway: Any, directory: Path | None, interrupt: Any) -> None:
        self.session = session
        self.gateway = gateway
        self.directory = directory
        self.interrupt = interrupt

    def alive(self) -> bool:
        """Whether Java still answers and its Spark has not been stopped by somebody else."""
        try:
            if is_connect(self.session):
                return bool(self.session.version)
            return not self.session.sparkContext._jsc.sc().isStopped()
        except Exception:
            return False

    def leave(self) -> None:
        """Lets go of a session in somebody else's Spark; what runs there goes on."""
        if is_connect(self.session):
            with contextlib.suppress(Exception):
                self.session.stop()
            os.environ.pop(_CONNECT_MODE, None)


def spark_session(
    app: str = "nile", *, cores: int | None = None, master: str | None = None, remote: str | None = None
) -> SparkSession:
    """The Spark session of this process, started on the first call and shared by the later ones.

    app: the name Spark shows.  cores: the threads it uses; None: all this process may use.  master: of a
    cluster, "spark://host:7077", or "local-cluster[executors, cores, MiB]"; remote: a Spark Connect server,
    "sc://host:15002"; neither: NILE_SPARK in the environment, else this process.  They only matter
    on the call that starts it.
    Java listens on 127.0.0.1 only (except for a cluster, which must reach it), writes temporary files to one
    directory that is removed with it, has no web UI, and takes at most a quarter of the memory (at most
    6 GiB).  Its output goes to a file in that directory, and into the message when it fails.
    In a process that already runs Spark, this is a new session of that Spark.
    Executors in other processes are sent Nile's code.
    Cost: about 5 s on two cores for the first call.  Raises JavaMissing, ConfigError (cores < 1, a Python package
    that Spark needs is missing), SparkFailed (a master that does not answer).
    """
    global _running
    if cores is not None and cores < 1:
        raise ConfigError(f"spark_session: cores must be at least 1, not {cores}")
    with _lock:
        if _running is not None and not _running.alive():
            stop_session()
        if _running is None:
            needed_packages("Spark session")
            master, remote = place(master, remote)
            if master is not None:
                check_master(master)
            if remote is not None:
                check_remote(remote)
                needed_packages("Spark session", CONNECT_PACKAGES)
            _running = _joined() or (
                _start(app, cores or core_count(), find_java(), master) if remote is None else _connected(app, remote)
            )
            atexit.register(stop_session)
        with spark_failures("Spark session"):
            ship(_running.session)
        return _running.session


def would_be_empty() -> bool:
    """Whether `spark_session()` would start a Spark of Nile's own, which has no tables.  Loads nothing."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    joined = _CONNECT_MODE in os.environ or getattr(context, "_active_spark_context", None) is not None
    return _running is None and not joined and place(None, None) == (None, None)


@contextlib.contextmanager
def query_settings(session: SparkSession) -> Iterator[None]:
    """The session with the settings that the rules need, for as long as inside; a user's may differ.

    Its executors have Nile's code from then on: a user's own session may not have brought it.
    """
    with spark_failures("Spark session"):
        ship(session)
    before = {name: session.conf.get(name, None) for name in QUERY_SETTINGS}
    for name, value in QUERY_SETTINGS.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, value)


def stop_session() -> None:
    """Ends the shared session and its Java process and removes their files. Does nothing when none runs."""
    global _running
    with _lock:
        running, _running = _running, None
        if running is None:
            return
        atexit.unregister(stop_session)
        if running.directory is None:
            running.leave()
            return
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a Java process that died has nothing left to stop
            running.session.stop()
        _end_java(running.gateway)
        _quieten(False)
        shutil.rmtree(running.directory, ignore_errors=True)
        with contextlib.suppress(ValueError, TypeError):  # not the main thread, or no handler of Python's
            signal.signal(signal.SIGINT, running.interrupt)


def _joined() -> _Running | None:
    """A session inside the Spark that somebody else started in this process, if there is one."""
    there = spark_sql.SparkSession.getActiveSession() if _CONNECT_MODE in os.environ else None
    context = pyspark.SparkContext._active_spark_context
    if there is None and context is None:
        return None
    with spark_failures("Spark session"):
        session = _set((there or spark_sql.SparkSession(context)).newSession())
    return _Running(session, None if there else pyspark.SparkContext._gateway, None, None)


def _connected(app: str, remote: str) -> _Running:
    """A session with a Spark Connect server; this process needs no Java for it."""
    with spark_failures("Spark session"), _environment({}):
        session = _set(spark_sql.SparkSession.builder.appName(app).remote(remote).getOrCreate())
    return _Running(session, None, None, None)


def _set(session: SparkSession) -> SparkSession:
    """A new session in somebody else's Spark, as Nile's queries need it."""
    for name, value in {**QUERY_SETTINGS, _PARTITIONS: str(task_slots(session))}.items():
        session.conf.set(name, value)
    return session


def _start(app: str, cores: int, java: JavaHome, master: str | None = None) -> _Running:
    directory = Path(tempfile.mkdtemp(prefix="nile-spark-"))
    interrupt = signal.getsignal(signal.SIGINT)  # PySpark puts its own in place
    gateway = None
    _quieten(True)
    try:
        (directory / "log4j2.properties").write_text(_LOG4J)
        conf = pyspark.SparkConf(loadDefaults=False)
        conf.setAll(_settings(app, cores, directory, master).items())
        with spark_failures("Spark session"):
            with INTERRUPTS:  # Java that starts while nobody knows of it goes on for ever
                made: list[Any] = []
                failed = INTERRUPTS.calling(lambda _: made.append(_launch(conf, java, directory)), None)
                gateway = made[0] if made else None
            if failed is not None:
                raise failed
            context = pyspark.SparkContext(conf=conf, gateway=gateway)
            if master is None or master.startswith("local"):
                context.pythonExec = os.environ.get("PYSPARK_PYTHON", sys.executable)
            context.setLogLevel("ERROR")
            session = spark_sql.SparkSession(context)
            if master is not None:
                session.conf.set(_PARTITIONS, str(max(cores, task_slots(session))))
    except BaseException:
        if gateway is not None:
            _end_java(gateway)
        _quieten(False)
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return _Running(session, gateway, directory, interrupt)


def _quieten(quiet: bool) -> None:
    """Keeps PySpark and Py4J from logging errors with their stacks; Nile's message says what there is to say."""
    # PySpark's own kind of logger takes arguments that a plain one of the same name would refuse.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        spark_logger.PySparkLogger.getLogger(name).disabled = quiet
    if quiet:
        logging.getLogger().addFilter(_not_from_py4j)
    else:
        logging.getLogger().removeFilter(_not_from_py4j)


def _not_from_py4j(record: logging.LogRecord) -> bool:
    """Py4J logs a lost Java process in the name of the root logger."""
    return Path(record.pathname).parent.name != "py4j"


def _settings(app: str, cores: int, directory: Path, master: str | None = None) -> dict[str, str]:
    memory = max(_LEAST_MEMORY, min(_MOST_MEMORY, memory_bytes() // 4))
    # Executors of another machine must reach the driver; otherwise nobody else may.
    alone = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {
        "spark.app.name": app,
        "spark.master": master or f"local[{cores}]",
        "spark.driver.memory": f"{memory >> 20}m",
        **({} if master is not None and not master.startswith("local") else alone),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        _PARTITIONS: str(cores),
        "spark.driver.extraJavaOptions": " ".join((f'-Djava.io.tmpdir="{directory}"', *_JVM)),
        **({"spark.executor.extraJavaOptions": " ".join(_JVM)} if (master or "").startswith("local-cluster") else {}),
        **QUERY_SETTINGS,
    }


def _launch(conf: Any, java: JavaHome, directory: Path) -> Any:
    """Starts Java with Spark in it; what it prints goes to `java.log` in `directory`."""
    home, master = Path(pyspark.__file__).parent, conf.get("spark.master")
    if master.startswith("local-cluster"):
        home = _home(home, directory)
    environment = {
        "JAVA_HOME": str(java.path),
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(directory),
        **({"SPARK_LOCAL_IP": "127.0.0.1"} if master.startswith("local") else {}),
        "PYSPARK_SUBMIT_ARGS": "pyspark-shell",
        "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData",
    }
    log = directory / "java.log"
    with log.open("wb") as printed, _environment(environment):
        try:
            return java_gateway.launch_gateway(
                conf, {"stdout": printed, "stderr": subprocess.STDOUT, "start_new_session": True}
            )
        except Exception as error:
            said = [line for line in log.read_text(errors="replace").splitlines() if "WARNING" not in line]
            why = sentence("\n".join(said)) if any(said) else cause(error)
            raise SparkFailed(
                f"Spark session: Java {java.version} ({java.path}) did not start: {why}; "
                "`nile doctor` lists what is missing"
            ) from None


def _home(package: Path, directory: Path) -> Path:
    """PySpark's package in a directory of ours: executors on this machine write beside it."""
    home = directory / "home"
    home.mkdir()
    for entry in package.iterdir():
        (home / entry.name).symlink_to(entry)
    return home


def _end_java(gateway: Any) -> None:
    """Ends the Java process of `gateway` and lets PySpark start another one later."""
    with contextlib.suppress(Exception):
        gateway.shutdown()
    with contextlib.suppress(OSError):
        gateway.proc.stdin.close()  # Java ends when this pipe does
    try:
        gateway.proc.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    if pyspark.SparkContext._gateway is gateway:
        # PySpark itself forgets a context only if its Java still answers.
        pyspark.SparkContext._gateway = pyspark.SparkContext._jvm = None
        pyspark.SparkContext._active_spark_context = None
        spark_sql.SparkSession._instantiatedSession = spark_sql.SparkSession._activeSession = None


@contextlib.contextmanager
def _environment(overrides: dict[str, str]) -> Iterator[None]:
    """The environment with `overrides` and without what would send Spark elsewhere, for as long as inside."""
    before = dict(os.environ)
    strays = ("SPARK_LOCAL_DIRS", "SPARK_REMOTE", "SPARK_ENV_LOADED", "PYSPARK_GATEWAY_PORT", "SPARK_TESTING")
    for name in strays:
        os.environ.pop(name, None)
    os.environ.update(overrides)
    try:
        yield
    finally:
        for name in {*strays, *overrides}:
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)
