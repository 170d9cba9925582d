"""The prices of this machine: found again, scaled where nothing was measured, and what they are used for."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, make_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import nile
from nile.engine import calibrating, trials
from nile.experiments.cli import main
from nile.operators.strategies import machine_prices as machine
from nile.operators.strategies.after import After
from nile.operators.strategies.machine_prices import keep, kept_at, machine_prices, pace, paced
from nile.operators.strategies.prices import PRICES, Prices, along


@pytest.fixture(autouse=True)
def _a_cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("NILE_PRICES")


def test_a_price_by_size_lies_on_straight_lines_and_goes_no_further() -> None:
    curve = ((10.0, 20.0), (12.0, 40.0))
    assert [along(curve, 2.0**x) for x in (0, 10, 11, 12, 30)] == [20.0, 20.0, 30.0, 40.0, 40.0]
    assert along(curve, 0.0) == 20.0


def test_what_was_kept_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = replace(PRICES, read=3.0, join=((8.0, 5.0), (20.0, 9.0)))
    assert keep(mine) == kept_at()
    assert machine_prices() == mine
    monkeypatch.setenv("NILE_PRICES", "shipped")
    assert machine_prices() == PRICES


def test_another_build_or_processor_keeps_prices_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = replace(PRICES, read=3.0)
    here = keep(mine)
    with monkeypatch.context() as there:
        there.setattr(machine, "PRICES", replace(PRICES, sift=PRICES.sift + 1.0))
        assert kept_at() != here
    wider = make_dataclass("Wider", [("more", float, 1.0)], bases=(Prices,), frozen=True)
    with monkeypatch.context() as there:  # a clone whose table has a price besides
        there.setattr(machine, "PRICES", wider(more=1.0))
        other = keep(wider(more=2.0))
        assert other != here
    with monkeypatch.context() as there:
        there.setattr(machine, "processor", lambda: "another")
        assert kept_at() != here
    with monkeypatch.context() as there:
        there.setattr("os.cpu_count", lambda: 1_000)
        assert kept_at() != here
    assert kept_at() == here
    assert machine_prices() == mine
    assert other.exists()


def test_without_a_file_the_shipped_prices_are_scaled_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "pace", lambda: 2.0)
    machine._found.cache_clear()
    found = machine_prices()
    assert found == paced(2.0) != PRICES
    assert found.read == 2.0 * PRICES.read
    assert found.join == tuple((size, 2.0 * ns) for size, ns in PRICES.join)
    assert found.start == PRICES.start  # what is granted is no price
    assert json.loads(kept_at().read_text())["prices"]["read"] == found.read
    assert 0.25 <= pace() <= 4.0


@pytest.mark.parametrize(
    "written",
    [
        "",
        "{}",
        '{"prices": {"read": 1}}',
        json.dumps({"prices": asdict(PRICES) | {"read": -1.0}}),
        json.dumps({"prices": asdict(PRICES) | {"join": [[8, 0]]}}),
        json.dumps({"prices": asdict(PRICES) | {"join": 3}}),
    ],
)
def test_a_file_that_is_none_is_replaced(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_at().parent.mkdir(parents=True)
    kept_at().write_text(written)
    monkeypatch.setattr(machine, "pace", lambda: 1.0)
    machine._found.cache_clear()
    assert machine_prices() == PRICES
    assert machine.read(json.loads(kept_at().read_text())["prices"]) == PRICES


@pytest.mark.slow
def test_every_step_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "TUPLES", 1 << 13)
    monkeypatch.setattr(trials, "MANY", 1 << 13)
    monkeypatch.setattr(trials, "LEAST", 0.0517)  # no price that is shipped
    monkeypatch.setattr(calibrating, "_KNOTS", (4, 8))
    monkeypatch.setattr(calibrating, "_DISTINCT", (4, 8))
    monkeypatch.setattr(calibrating, "_WITHIN", (6, 10))
    monkeypatch.setattr(trials, "ROUNDS", 1)
    said: list[str] = []
    found = calibrating.calibrated(said.append)
    assert len(said) == len(set(said)) == 5
    for field in fields(Prices):
        value: Any = getattr(found, field.name)
        assert all(ns > 0.0 for _, ns in value) if isinstance(value, tuple) else value > 0.0
    measured = {field.name for field in fields(Prices)} - {"promise", "start"}
    assert all(getattr(found, name) != getattr(PRICES, name) for name in measured)


def test_the_command_shows_what_is_in_use() -> None:
    keep(replace(PRICES, look=1234.5))
    shown = CliRunner().invoke(main, ["calibrate", "--show"])
    assert shown.exit_code == 0
    assert "1,234.5" in shown.output
    assert str(kept_at()) in shown.output


def test_prices_decide_what_runs_and_the_same_prices_find_the_same() -> None:
    db = nile.connect()
    for seed, name in enumerate("ab"):
        keys = (300 * np.random.default_rng(seed).random(4_000) ** 3.0).astype(np.int64)
        db.register(name, pa.table({"t": np.arange(4_000.0), "k": keys}), time="t")
    query = db.join("a", "b", on="k", window="600 s").prefer("desc").using(costs="machine")
    free = replace(PRICES, start=0.0, begin=0.0, seen=2.0, weigh=0.04)
    ways = []
    for prices in (free, replace(free, look=1e6), PRICES):
        keep(prices)
        answer = query.run(0.3)
        ways.append(answer.strategy.split("*")[1].split(":")[0].strip())
        assert answer.to_arrow().equals(query.run(0.3).to_arrow())
    # A pass that looks at keys must pay, and so must deciding at all; the first part needs no such pass.
    assert ways == ["keys", "prefix", "exact"]
    assert len(answer.to_arrow()) == len(query.run(1.0).to_arrow())


def payload(n: int = 20_000, keys: int = 40) -> nile.Database:
    """Streams of many pairs a tuple, with columns beside."""
    db = nile.connect()
    for seed, name in enumerate("ab"):
        rng = np.random.default_rng(seed)
        given = {"ts": np.arange(n, dtype=np.float64), "k": rng.zipf(1.3, n) % keys, "v": rng.random(n)}
        db.register(
            name, pa.table({**given, "w": rng.random(n), "s": pa.array([f"n{i % 97}" for i in range(n)])}), time="ts"
        )
    return db


@pytest.mark.parametrize("preference", ["desc", "weighted"])
def test_columns_handed_out_are_paid_for(preference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NILE_PRICES", "shipped")
    text = f"SELECT {{}} FROM a, b WHERE a.k = b.k WITH PREFERENCE {preference} a.k WINDOW '4000 s' BUDGET 10 %"
    db = payload()
    asked = ("a.k", "a.k, a.v", "a.k, a.v, a.w, b.v, b.w", "a.k, a.v, a.w, b.v, b.w, a.s, b.s")
    found = [db.sql(text.format(columns), costs="machine").to_arrow().num_rows for columns in asked]
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0] / 2


def test_what_a_column_costs_goes_by_its_kind_and_its_stream() -> None:
    one = After(columns=((1, 0), (0, 0))).over([1 << 14, 1 << 20], PRICES)
    assert one.handed == along(PRICES.handed, 1 << 14)
    assert one.priced(10.0, 1.0) == one.handed
    both = After(columns=((1, 1), (2, 0))).over([1 << 14, 1 << 20], PRICES)
    assert both.handed == pytest.approx(
        one.handed + PRICES.handing(1 << 14, text=True) + 2 * PRICES.handing(1 << 20, text=False)
    )
    assert After(each=2.0).over([1, 1], PRICES) == After(each=2.0)


def test_keys_that_are_kept_keep_nothing_else() -> None:
    joined = (
        payload(6_000).join("a", "b", on="k", window="4000 s").prefer("desc").using(strategy="counts", costs="machine")
    )
    part = next(joined.run(1.0).outputs())
    assert part.key is not None
    assert part.left_ts is not None
    owners = [each.base if each.base is not None else each for each in (part.key, part.left)]
    assert part.left_ts.base is part.left.base
    assert owners[0] is not owners[1]
