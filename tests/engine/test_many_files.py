"""Several Parquet files as one source, of which some come encoded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nile


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string()])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_files_with_long_text_of_which_one_has_no_small_dictionary(
    tmp_path: Path, kind: pa.DataType, order: tuple[int, int]
) -> None:
    """As Polars writes them: the encoded ones were text, and the others large text, which was refused."""
    texts = [["a", "b", None, "a"], [f"{number:064}" for number in range(3000)]]
    for name, which in zip("xy", order, strict=True):
        table = pa.table({"at": [float(k) for k in range(len(texts[which]))], "k": pa.array(texts[which], kind)})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    with nile.connect() as db:
        db.register("s", str(tmp_path / "*.parquet"), time="at", lateness=5000)
        assert db.sql("SELECT count(*), count(k), count(DISTINCT k) FROM s").fetchall() == [(3004, 3003, 3002)]
        assert db.sql("SELECT k FROM s WHERE at = 1").fetchall() == [(texts[which][1],) for which in order]
        assert db.sql("SELECT s.k FROM s, s t WHERE s.k = t.k AND s.k < 'b'").to_arrow().num_rows == 3000 + 4
