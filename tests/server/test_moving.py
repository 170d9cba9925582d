"""A served database does of itself what others do when they are asked: queues are worked on, silent streams move on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from click.testing import CliRunner
from served import served

import nile
from nile.experiments.commands.serve import serve
from nile.summaries.errors import ConfigError

_GROUPS = "SELECT max(n) AS most FROM (SELECT count(*) AS n FROM a GROUP BY k) AS g WINDOW 60"


def _heard(client: httpx.Client, name: str, rows: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with client.stream("GET", f"/queries/{name}/outputs", params={"from": "start"}) as response:
        for line in response.iter_lines():
            if line.strip():
                found += json.loads(line).get("rows", [])
            if len(found) >= rows:
                break
    return found


def _pushed(db: nile.Database, seconds: int) -> None:
    for second in range(seconds):
        db.push("a", {"t": [float(second)] * 3, "k": [1, 1, 2]})


def test_what_a_quantum_left_is_worked_on_between_pushes() -> None:
    plain, short = nile.connect(), nile.connect(scheduler="chain", quantum=1e-9)
    for db in (plain, short):
        db.stream("a", [("t", pa.float64()), ("k", pa.int64())], time="t")
    with plain:
        asked = plain.subscribe(_GROUPS, name="most")
        _pushed(plain, 50)
        wanted = [(row["_sign"], row["most"]) for batch in asked.poll() for row in batch.to_pylist()]
    short.subscribe(_GROUPS, name="most")
    _pushed(short, 50)
    assert short.sql("SELECT tuples > 0 AS waits FROM nile_scheduler").fetchall() == [(True,)]
    with served(short) as up, up.client() as client:
        assert len(wanted) > 10
        assert [(row["_sign"], row["most"]) for row in _heard(client, "most", len(wanted))] == wanted
        up.wait_until(lambda: short.sql("SELECT tuples FROM nile_scheduler").fetchall() == [(0,)])


def test_a_silent_stream_moves_on_for_those_who_only_listen() -> None:
    db = nile.connect()
    db.stream("b", [("t", pa.timestamp("us")), ("k", pa.int64())], time="t", lateness=0.1, idle=0.2)
    db.subscribe("SELECT k, count(*) AS n FROM b GROUP BY TUMBLE(t, INTERVAL '1' SECOND), k", name="counts")
    db.push("b", {"t": [0, 100_000], "k": [7, 7]})
    assert db.subscription("counts").outputs == 0
    with served(db) as up, up.client() as client:
        told = [(row["_sign"], row["n"]) for row in _heard(client, "counts", 3)]
    assert told == [(1, 1), (-1, 1), (1, 2)]


def test_serve_hands_on_what_a_database_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def connect(_store: Path, **named: Any) -> nile.Database:
        given.update(named)
        raise ConfigError("stop here")

    monkeypatch.setattr(nile, "connect", connect)
    words = ["--port", "0", "--memory", "1GB", "--state", "64MB", "--cpu", "0.5", "--scheduler", "chain-latency"]
    CliRunner().invoke(serve, [str(tmp_path / "store"), *words, "--latency", "20 ms", "--quantum", "5 ms"])
    assert given == {
        "memory": "1GB", "checkpoint": "10 s", "state": "64MB", "cpu": 0.5, "scheduler": "chain-latency",
        "quantum": "5 ms", "latency": "20 ms",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--scheduler", "best"], "fifo, round-robin, greedy, chain, chain-latency"),
        (["--quantum", "5 ms"], "needed a scheduler"),
        (["--scheduler", "chain", "--cpu", "0.5"], "bounds of memory= or cpu="),
        (["--cpu", "-1"], "cpu"),
        (["--scheduler", "chain", "--latency", "0 s"], "latency"),
    ],
)
def test_serve_says_what_cannot_be(tmp_path: Path, words: list[str], told: str) -> None:
    said = CliRunner().invoke(serve, [str(tmp_path / "store"), "--port", "0", *words])
    assert isinstance(said.exception, ConfigError)
    assert told in str(said.exception)
