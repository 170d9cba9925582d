import pyarrow as pa
import pytest

from nile.streams.rowlog import RowLog

SCHEMA = pa.schema([("row", pa.int64()), ("raw", pa.string())])


def batch(*rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"row": list(rows), "raw": [f"raw {row}" for row in rows]}, schema=SCHEMA)


@pytest.mark.parametrize("memory_limit", [0, 60, 1 << 20])
def test_rows_come_back_in_order_from_memory_and_from_file(memory_limit: int) -> None:
    log = RowLog(SCHEMA, memory_limit=memory_limit)
    for rows in ((5, 9), (1,), (), (7, 3), (8,)):
        log.append(batch(*rows))
        found = log.table()
        assert found.schema == SCHEMA
    assert log.table()["row"].to_pylist() == [1, 3, 5, 7, 8, 9]
    assert log.table()["raw"].to_pylist() == [f"raw {row}" for row in (1, 3, 5, 7, 8, 9)]


def test_an_empty_log_gives_an_empty_table() -> None:
    assert RowLog(SCHEMA).table().num_rows == 0
    assert RowLog(SCHEMA).table().schema == SCHEMA
