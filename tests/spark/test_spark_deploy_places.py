"""All that Spark does where tasks do not run beside the driver: on a local cluster, behind a Spark Connect server."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child_spark import SUMMARY, WINDOW, events, scanned
from spark_stand_in import StandIn
from workload_build import content, difference, in_turn

import nile.spark.scan.scan as scan_module
from nile.pyramid.lake.lake import LakeStream
from nile.spark.building.build import build_with
from nile.spark.failure import CONNECT_PACKAGES
from nile.spark.java import find_java
from nile.summaries.errors import JavaMissing

ROOT = Path(__file__).parents[2]
HARNESS = ROOT / "tests/harness"
SITE = Path(np.__file__).parents[1]
LOOPBACK = {"0100007F", "0" * 16 + "FFFF00000100007F", "0" * 24 + "01000000"}

try:
    find_java()
except JavaMissing as missing:
    pytestmark = [pytest.mark.spark, pytest.mark.skip(reason=str(missing))]
else:
    pytestmark = [pytest.mark.spark]


def without_nile(directory: Path) -> Path:
    """A Python with all that Nile needs, and no Nile: what is installed as a path stays hidden."""
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{SITE}" exec {shlex.quote(sys.executable)} -S "$@"\n')
    python.chmod(0o755)
    return python


def pairs() -> int:
    """Those of `events(0)` and `events(1)` within the window, one by one."""
    left, right = ([(at, row["item"]) for at, row in enumerate(events(seed).to_pylist())] for seed in (0, 1))
    return sum(a == b and abs(s - t) * 10**9 <= WINDOW for s, a in left for t, b in right)


def run(place: str, directory: Path, *python: str) -> dict[str, Any]:
    """What a process of its own says of a place."""
    child = [sys.executable, str(HARNESS / "child_spark.py"), place, str(directory), *python]
    done = subprocess.run(child, capture_output=True, text=True, check=False, cwd=directory)
    assert done.returncode == 0, done.stderr[-3000:]
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["truth"] == said["joined"] == pairs()
    assert said["built"] == 400
    lake = directory / "lake"
    build_with(in_turn, LakeStream.open(lake, "shop"), directory / "here", summaries=[SUMMARY])
    assert difference(content(directory / "store"), content(directory / "here")) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_module, "spark_session", lambda: StandIn(random.Random(0), cores=2))
        assert said["partials"] == [[coverage, rows] for coverage, rows in scanned(lake)]
    assert len(said["partials"]) > 1
    assert all(said["shared"])
    assert "ordering and writing" in said["progress"]
    return said


@contextmanager
def server(python: Path) -> Iterator[str]:
    """A Spark Connect server whose tasks run `python`, in the directory of that; its address."""
    child = [sys.executable, str(HARNESS / "child_spark_server.py"), "local[2]"]
    environment = {**os.environ, "PYSPARK_PYTHON": str(python)}
    running = subprocess.Popen(
        child, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=python.parent
    )
    assert running.stdin is not None
    assert running.stdout is not None
    try:
        yield f"sc://127.0.0.1:{running.stdout.readline().strip()}"
    finally:
        running.stdin.close()
        running.stdout.close()
        running.wait()


@pytest.mark.long
def test_a_cluster_of_executors_without_nile_gets_its_code_tries_again_and_listens_on_the_loopback_alone(
    tmp_path: Path,
) -> None:
    said = run("local-cluster[2,1,1024]", tmp_path, str(without_nile(tmp_path)))
    assert not said["connect"]
    assert all(Path(code).name == "nile" and not Path(code).is_relative_to(ROOT) for code in said["code"])
    assert set(said["listening"]) <= LOOPBACK


@pytest.mark.long
@pytest.mark.skipif(
    any(find_spec(name.partition(".")[0]) is None for name in CONNECT_PACKAGES),
    reason="the packages of Spark Connect's client are not installed",
)
def test_a_connect_server_without_nile_gets_its_code(tmp_path: Path) -> None:
    with server(without_nile(tmp_path)) as place:
        said = run(place, tmp_path)
    assert said["connect"]
    assert all(not Path(code).is_relative_to(ROOT) for code in said["code"])
    assert said["listening"] == []  # a client has no Java
