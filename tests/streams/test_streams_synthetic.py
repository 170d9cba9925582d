"""The seeded retail generator: the same everywhere, and shaped as promised."""

import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nile.streams.manager import StreamManager, StreamSpec
from nile.streams.synthetic import SyntheticRetail
from nile.summaries.errors import ConfigError

RETAIL = Path(__file__).parents[3] / "shared/data/retail_uci.parquet"
SMALL = SyntheticRetail(tuples=5_000, rare=20)


def digest(table: pa.Table) -> str:
    rows = (",".join(map(str, row.values())) for row in table.to_pylist())
    return hashlib.blake2b("\n".join(rows).encode(), digest_size=16).hexdigest()


def test_the_same_seed_gives_the_same_rows_on_every_machine() -> None:
    assert digest(SMALL.table()) == "0590d9545b63311b8a0560680f0ce2ce"


def test_another_seed_gives_other_rows() -> None:
    assert digest(SyntheticRetail(seed=1, tuples=5_000, rare=20).table()) != digest(SMALL.table())


def test_time_never_runs_back_and_many_tuples_share_a_second() -> None:
    seconds = SyntheticRetail().table()["ts"].cast(pa.int64()).to_numpy() // 1_000_000
    gaps = np.diff(seconds)
    assert gaps.min() == 0
    assert 0.15 < (gaps == 0).mean() < 0.5


def test_arrivals_come_in_bursts() -> None:
    seconds = SyntheticRetail().table()["ts"].cast(pa.int64()).to_numpy() // 1_000_000
    spans = seconds[100::100] - seconds[:-100:100]
    assert np.quantile(spans, 0.05) * 4 < np.median(spans)


def test_items_follow_zipf_and_the_popular_ones_change() -> None:
    items = SyntheticRetail(tuples=60_000, changes=1, rare=0).table()["item_id"].to_pylist()
    top = [Counter(part).most_common(2) for part in (items[:5_000], items[-5_000:])]
    assert top[0][0][0] != top[1][0][0]
    for (_, first), (_, second) in top:
        assert first == pytest.approx(2 * second, rel=0.25)


def test_each_rare_item_is_sold_once_in_either_store_soon_after() -> None:
    table = SyntheticRetail().table()
    sales: dict[str, list[tuple[int, int]]] = {}
    for position, (item, store) in enumerate(
        zip(table["item_id"].to_pylist(), table["vstore"].to_pylist(), strict=True)
    ):
        if item.startswith("R"):
            sales.setdefault(item, []).append((position, store))
    assert len(sales) == 200
    for first, second in sales.values():
        assert (first[1], second[1]) == (0, 1)
        assert 1 <= second[0] - first[0] <= 60


def test_some_quantities_are_returns_and_some_customers_unknown() -> None:
    table = SMALL.table()
    assert 0 < np.sum(table["quantity"].to_numpy() < 0) < 250
    assert 0 < table["customer_id"].null_count < 2_500
    assert [table[name].null_count for name in table.column_names if name != "customer_id"] == [0] * 9


def test_more_virtual_stores_are_an_option() -> None:
    table = SyntheticRetail(tuples=5_000, rare=20, vstores=10).table()
    assert set(table["vstore"].to_pylist()) == set(range(10))


@pytest.mark.skipif(not RETAIL.exists(), reason="the UCI retail file is not here")
def test_the_columns_are_those_of_the_uci_file() -> None:
    real = pq.read_schema(RETAIL)
    assert [(column.name, column.type) for column in SMALL.schema] == [(column.name, column.type) for column in real]


def test_batches_and_file_hold_the_same_rows(tmp_path: Path) -> None:
    SMALL.write_parquet(tmp_path / "retail.parquet")
    assert pq.read_table(tmp_path / "retail.parquet").equals(SMALL.table())
    assert pa.Table.from_batches(SMALL.batches(rows=999)).equals(SMALL.table())


def test_it_is_a_source_as_it_is() -> None:
    manager = StreamManager(StreamSpec("s", SMALL, "ts", "item_id"))
    assert sum(map(len, manager.batches())) == 5_000
    manager.accounting.check()


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 1.5, 2.0])
def test_more_skew_makes_the_first_item_more_popular(skew: float) -> None:
    items = SyntheticRetail(tuples=4_000, items=100, changes=0, rare=0, skew=skew).table()["item_id"].to_pylist()
    weights = 1 / np.arange(1, 101) ** skew
    assert Counter(items).most_common(1)[0][1] / 4_000 == pytest.approx(weights[0] / weights.sum(), abs=0.02)


def test_no_tuples_at_all_is_an_empty_table() -> None:
    assert SyntheticRetail(tuples=0, rare=0).table().num_rows == 0


@pytest.mark.parametrize(
    ("setting", "value"),
    [("tuples", -1), ("items", 0), ("vstores", 1), ("skew", 0.3), ("skew", 9), ("calm_gap", 0), ("seed", -1)],
)
def test_a_setting_out_of_range_is_refused(setting: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"needed .*{setting}"):
        SyntheticRetail(**{setting: value})  # type: ignore[arg-type]


def test_more_rare_items_than_there_is_room_for_are_refused() -> None:
    with pytest.raises(ConfigError, match="set rare lower"):
        SyntheticRetail(tuples=100, rare=60).table()
