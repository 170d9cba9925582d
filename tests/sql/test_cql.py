"""The queries of the CQL papers as they are printed, and SAMPLE."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import nile

REQUESTS = pa.schema([("ts", pa.int64()), ("client_id", pa.int64()), ("domain", pa.string()), ("URL", pa.string())])
DAY = """
Select Count(*)
From Requests S [Range 1 Day Preceding]
Where S.domain = ‘stanford.edu’
"""
PARTITIONED = """
Select Count(*)
From Requests S
[Partition By S.client_id
Rows 10 Preceding
Where S.domain = ‘stanford.edu’]
Where S.URL Like ‘http://cs.stanford.edu/%’
"""
SAMPLED = """
Select T.URL
From
(Select client_id, URL
From Requests S, Domains R
Where S.domain = R.domain
And R.type = ’commerce’) T Sample(10)
Where T.client_id Between 1 And 1000
"""


def requests(seed: int = 1, count: int = 3_000) -> list[dict[str, object]]:
    rng = random.Random(seed)
    now, rows = 0, []
    for at in range(count):
        now += rng.choice([0, 1, 60, 600])
        page = rng.choice(["http://cs.stanford.edu/a", "http://www.stanford.edu/", f"http://shop/{at}"])
        domain = "stanford.edu" if "stanford" in page else rng.choice(["shop.com", "news.org"])
        rows.append({"ts": now, "client_id": rng.randrange(1, 1_500), "domain": domain, "URL": page})
    return rows


@pytest.fixture
def db() -> nile.Database:
    db = nile.connect()
    db.register("Requests", pa.Table.from_pylist(requests(), schema=REQUESTS), time="ts")
    domains = {"domain": ["shop.com", "news.org", "stanford.edu"], "type": ["commerce", "news", "education"]}
    db.register("Domains", domains)
    return db


def test_the_requests_of_a_domain_in_the_last_day_are_counted(db: nile.Database) -> None:
    rows = requests()
    last = rows[-1]["ts"]
    recent = [row for row in rows if row["ts"] >= last - 86_400 and row["domain"] == "stanford.edu"]  # type: ignore[operator]
    assert db.sql(DAY, emit="snapshot").fetchall() == [(len(recent),)]
    changes = db.sql(DAY).to_arrow()  # a relation that changes: the count before, the count after
    assert changes.column("_sign").to_pylist()[-1] == 1
    assert changes.column("count(*)").to_pylist()[-1] == len(recent)


def test_of_each_client_the_last_ten_requests_of_a_domain_are_looked_at(db: nile.Database) -> None:
    kept: dict[object, list[str]] = {}
    for row in requests():
        if row["domain"] == "stanford.edu":
            kept.setdefault(row["client_id"], []).append(str(row["URL"]))
    wanted = sum(page.startswith("http://cs.stanford.edu/") for pages in kept.values() for page in pages[-10:])
    assert db.sql(PARTITIONED, emit="snapshot").fetchall() == [(wanted,)]


def test_a_tenth_of_the_stream_that_a_query_gives_is_taken_before_the_selection(db: nile.Database) -> None:
    candidates = [row for row in requests() if row["domain"] == "shop.com"]
    found = [page for (page,) in db.sql(SAMPLED, emit="append").fetchall()]
    pages = [row["URL"] for row in candidates if 1 <= row["client_id"] <= 1_000]  # type: ignore[operator]
    assert set(found) <= set(pages)
    share = 0.1 * len(pages)
    assert abs(len(found) - share) < 4 * (share * 0.9) ** 0.5
    assert found == [page for (page,) in db.sql(SAMPLED, emit="append").fetchall()]  # the same every time


def test_select_all_of_a_stream_gives_the_stream(db: nile.Database) -> None:
    assert db.sql("Select * From Requests").to_arrow().to_pylist() == requests()


def test_counts_and_sums_of_samples_are_of_the_whole(db: nile.Database) -> None:
    whole = dict(db.sql("SELECT domain, count(*) AS n FROM Requests GROUP BY domain").fetchall())
    seeds, told = 60, {domain: [] for domain in whole}  # type: ignore[var-annotated]
    for seed in range(seeds):
        text = f"SELECT domain, count(*) AS n FROM Requests SAMPLE (20 %) REPEATABLE ({seed}) GROUP BY domain"
        for domain, n in db.sql(text).fetchall():
            told[domain].append(n)
    for domain, n in whole.items():
        deviation = (n * 0.8 / 0.2 / seeds) ** 0.5
        assert abs(sum(told[domain]) / seeds - n) < 3 * deviation, domain


def test_a_join_of_two_samples_stands_for_the_product_of_their_shares() -> None:
    n, told = 400, []
    with nile.connect() as db:
        db.register("a", pa.table({"t": range(n), "k": [at % 20 for at in range(n)]}), time="t")
        db.register("b", pa.table({"t": range(n), "k": [at % 20 for at in range(n)]}), time="t")
        for seed in range(40):
            left, right = f"a SAMPLE (50) REPEATABLE ({seed})", f"b SAMPLE (40) REPEATABLE ({seed + 99})"
            text = f"SELECT count(*) FROM {left}, {right} WHERE a.k = b.k"
            told += [each for (each,) in db.sql(text).fetchall()]
    pairs = n * n / 20
    mean = sum(told) / len(told)
    spread = (sum((each - mean) ** 2 for each in told) / len(told)) ** 0.5
    assert abs(mean - pairs) < 4 * spread / len(told) ** 0.5


def test_a_sample_that_stands_takes_what_it_takes_at_once_and_restarts(tmp_path: Path) -> None:
    rows, found = requests(2, 300), []
    text = "SELECT client_id, URL FROM Requests R [ROWS 5] SAMPLE (30) REPEATABLE (4)"
    for begin in range(0, 300, 100):
        with nile.connect(tmp_path / "store") as db:
            if begin == 0:
                db.stream("Requests", REQUESTS, time="ts")
                db.subscribe(text, name="kept", emit="append")
            db.push("Requests", rows[begin : begin + 100])
            if begin == 200:
                db.advance(int(rows[-1]["ts"]) + 1)  # type: ignore[call-overload]
            found += [row for batch in db.subscription("kept").poll() for row in batch.to_pylist()]
    with nile.connect() as db:
        db.register("Requests", pa.Table.from_pylist(rows, schema=REQUESTS), time="ts")
        assert found == db.sql(text, emit="append").to_arrow().to_pylist()


def test_a_window_may_stand_before_a_sample_or_behind_it(db: nile.Database) -> None:
    texts = [f"SELECT count(*) FROM Requests R {each}" for each in ("[ROWS 50] SAMPLE (20)", "SAMPLE (20) [ROWS 50]")]
    assert db.sql(texts[0], emit="snapshot").fetchall() == db.sql(texts[1], emit="snapshot").fetchall() == [(250.0,)]


@pytest.mark.parametrize(
    ("loose", "plain"),
    [
        ("(SELECT URL FROM Requests) [ROWS 50] AS t", "(SELECT URL FROM Requests) AS t [ROWS 50]"),
        ("(ISTREAM (SELECT URL FROM Requests)) AS t [ROWS 50]", "ISTREAM (SELECT URL FROM Requests) AS t [ROWS 50]"),
        ("(ISTREAM (SELECT URL FROM Requests) AS t)", "ISTREAM (SELECT URL FROM Requests) AS t"),
    ],
)
def test_the_window_of_a_query_may_stand_before_its_name(db: nile.Database, loose: str, plain: str) -> None:
    told = [db.sql(f"SELECT count(*) FROM {each}", emit="snapshot").fetchall() for each in (loose, plain)]
    assert told[0] == told[1] != [(0,)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "SELECT count(*) FROM (SELECT URL FROM Requests) [ROWS 50]",
            "column 49: needed a name for what a window is of",
        ),
        ("SELECT URL FROM Requests [RANGE 5 BANANAS]", "column 35: needed a unit of time .* got 'BANANAS'"),
        ("SELECT URL FROM Requests [NOW BANANAS]", "column 31: needed ']'; got 'BANANAS'"),
    ],
)
def test_a_window_that_is_not_one_is_refused_where_it_stands(db: nile.Database, text: str, told: str) -> None:
    with pytest.raises(nile.SqlError, match=told):
        db.sql(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT * FROM Requests SAMPLE (0)", "needed a percentage above 0 and up to 100 in SAMPLE; got 0"),
        ("SELECT * FROM Requests SAMPLE (101)", "got 101"),
        ("SELECT * FROM Domains SAMPLE (10)", "needed a stream before SAMPLE; got relation 'Domains'"),
        ("SELECT DISTINCT URL FROM Requests SAMPLE (10)", "OVER and DISTINCT of a sample"),
        ("SELECT count(DISTINCT URL) FROM Requests SAMPLE (10)", "an aggregate that a sample can estimate"),
        ("SELECT URL FROM Requests SAMPLE (10) UNION SELECT URL FROM Requests", "a sample in UNION"),
        ("SELECT R.URL FROM Requests R SAMPLE (10) LEFT JOIN Domains D ON D.domain = R.domain", "with an outer join"),
        ("SELECT URL FROM Requests R SAMPLE (10) WITH PREFERENCE desc URL BUDGET 0.5", "name a stream's column"),
    ],
)
def test_a_sample_that_would_tell_something_else_is_refused(db: nile.Database, text: str, told: str) -> None:
    with pytest.raises((nile.SqlError, nile.NotYet), match=told):
        db.sql(text)


def test_windows_are_written_as_flink_writes_them() -> None:
    db = nile.connect()
    db.register("s", {"ts": [0.0, 30.0, 61.0], "k": ["a", "b", "a"]}, time="ts")
    told = "SELECT window_end, k, count(*) AS n FROM {} GROUP BY window_end, k ORDER BY ALL"
    for plain, flink in (
        ("TUMBLE (s, ts, INTERVAL '1 minute')", "TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"),
        (
            "HOP (s, ts, INTERVAL '30 seconds', INTERVAL '1 minute')",
            "TABLE(HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '1' MINUTE))",
        ),
    ):
        assert db.sql(told.format(flink)).fetchall() == db.sql(told.format(plain)).fetchall()
