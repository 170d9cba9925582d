"""Streams whose time is when rows are pushed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import nile


@pytest.mark.parametrize(("kind", "unit"), [(pa.timestamp("us"), None), (pa.int64(), 1), (pa.float64(), 1.0)])
def test_rows_have_the_time_of_the_clock_which_never_falls(
    kind: pa.DataType, unit: float | None, tmp_path: Path
) -> None:
    with nile.connect(tmp_path / "store") as db:
        db.stream("clicks", [("at", kind), ("page", "string")], time="at", stamp=True)
        stream = db._live.get("clicks")
        for now, page in ((5, "a"), (9, "b"), (7, "c")):
            stream.clock = lambda now=now: now * 1_000_000_000  # type: ignore[misc]
            db.push("clicks", {"page": [page]})
        db.push("clicks", {"page": ["d"], "at": [None]})
        db.sql("INSERT INTO clicks (page) VALUES ('e')")
    with nile.connect(tmp_path / "store") as db:
        rows = db.sql("SELECT at, page FROM clicks").fetchall()
        seconds = [row[0].timestamp() if unit is None else row[0] for row in rows]
        assert [each - seconds[0] for each in seconds] == [0, 4, 4, 4, 4]
        db.push("clicks", {"page": ["f"]})
        times = [row[0] for row in db.sql("SELECT at FROM clicks").fetchall()]
        assert times == sorted(times)
        assert times[-1] > times[0]


def test_what_goes_with_no_stamp_is_said() -> None:
    db = nile.connect()
    for more in ({"lateness": "1 s"}, {"event_id": "page", "lateness": "1 s"}):
        with pytest.raises(nile.ConfigError, match="stamp: needed no lateness and no event_id"):
            db.stream("clicks", [("at", "double"), ("page", "string")], time="at", stamp=True, **more)  # type: ignore[arg-type]
    with pytest.raises(nile.ConfigError, match="needed columns besides its time 'at'"):
        db.stream("clicks", [("at", "double")], time="at", stamp=True)
