"""The price tables of the cost clock."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

from nile.summaries.costs import ENGINE, MEMORY, PRICE_INDEX, CostTable, cost_table
from nile.summaries.errors import ConfigError

# DESIGN section 2, "Clocks and costs": insert, update, estimate, scan, emit, lookup, push, pop, heap pop, add.
SHIPPED = {
    "engine": (10, 2, 2, 2, 10, 10, 4, 6, 3, 0.15),
    "memory": (1, 1, 1.6, 1.7, 1.6, 1, 2, 3.6, 1.5, 0.15),
}


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_the_shipped_tables_are_fixed(name: str) -> None:
    assert tuple(cost_table(name).prices()) == SHIPPED[name]


@pytest.mark.parametrize("table", [ENGINE, MEMORY])
def test_a_kernel_finds_each_price_where_the_index_says(table: CostTable) -> None:
    prices = table.prices()
    assert prices.dtype == np.float64
    assert {name: prices[at] for name, at in PRICE_INDEX.items()} == {
        field.name: getattr(table, field.name) for field in fields(table) if field.name != "name"
    }


def test_a_sketch_costs_its_rows() -> None:
    assert ENGINE.update_sketch(5) == 10
    assert ENGINE.estimate_sketch(3) == 6
    assert MEMORY.estimate_sketch(5) == 8.0


def test_prices_do_not_change_during_a_run() -> None:
    with pytest.raises(FrozenInstanceError):
        ENGINE.insert = 1  # type: ignore[misc]
    ENGINE.prices()[0] = 99
    assert ENGINE.prices()[0] == 10


def test_an_unknown_table_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="costs: needed one of engine, machine, memory; got 'wall'"):
        cost_table("wall")
