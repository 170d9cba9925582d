"""The Nexmark queries as Nile says them, and as DuckDB says the same over all that came.

q10 writes files, q12 goes by the clock of whoever runs it.  q14 counts letters by what replacing them leaves.  A day is
`date_trunc` of a time, where Flink's texts write it out.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["QUERIES", "Asked"]


@dataclass(frozen=True, slots=True)
class Asked:
    """nile, duckdb: the statements; None: the same; about: what it is.

    before: a statement that fills a stream which it reads, `bid_now`; by: columns, of whose values there are files.
    """

    about: str
    nile: str
    duckdb: str | None = None
    before: str | None = None
    by: tuple[str, ...] = ()


_WINNING = """
    SELECT A.id, A.seller, A.category, A.expires, B.price, B.bidder, B.datetime AS bid_time
    FROM auction A JOIN bid B ON A.id = B.auction
    WHERE B.datetime BETWEEN A.datetime AND A.expires
    QUALIFY row_number() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.datetime, B.bidder) = 1
"""


def _bucket(stream: str, size: int, slide: int) -> str:
    """HOP over a stream in DuckDB: each row beside the windows that it is in."""
    return f"""(
        SELECT s.*, make_timestamp(w * 1000000) AS window_start, make_timestamp((w + {size}) * 1000000) AS window_end
        FROM (SELECT *, epoch_us({stream}.datetime) AS us FROM {stream}) s,
             unnest(range((s.us // 1000000) // {slide} * {slide} - {size} + {slide},
                          (s.us // 1000000) // {slide} * {slide} + 1, {slide})) AS u(w)
        WHERE w * 1000000 <= s.us AND s.us < (w + {size}) * 1000000
    )"""


def _hot_items(hop: str) -> str:
    counts = f"SELECT auction, count(*) AS num, window_end FROM {hop} AS b GROUP BY auction, window_end"
    return f"""
        SELECT C.auction, C.num, C.window_end
        FROM ({counts}) AS C JOIN
             (SELECT max(num) AS most, window_end FROM ({counts}) AS D GROUP BY window_end) AS M
             ON C.window_end = M.window_end
        WHERE C.num >= M.most
    """


def _highest(tumble: str) -> str:
    return f"""
        SELECT B.auction, B.price, B.bidder, B.window_end
        FROM {tumble} AS B JOIN
             (SELECT max(price) AS most, window_end FROM {tumble} AS C GROUP BY window_end) AS M
             ON B.window_end = M.window_end AND B.price = M.most
    """


def _new_users(persons: str, auctions: str) -> str:
    return f"""
        SELECT DISTINCT P.id, P.name, P.window_start
        FROM {persons} AS P JOIN {auctions} AS A ON P.id = A.seller AND P.window_start = A.window_start
    """


_CHANNEL = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"
_TEN = "TUMBLE (bid, datetime, INTERVAL '10 seconds')"
QUERIES: dict[str, Asked] = {
    "q0": Asked("pass through", "SELECT auction, bidder, price, datetime FROM bid"),
    "q1": Asked("currency", "SELECT auction, bidder, 0.908 * price AS price, datetime FROM bid"),
    "q2": Asked("selection", "SELECT auction, price FROM bid WHERE auction % 123 = 0"),
    "q3": Asked(
        "local items",
        "SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id "
        "WHERE A.category = 10 AND P.state IN ('or', 'id', 'ca')",
    ),
    "q4": Asked(
        "average price of a category",
        "SELECT Q.category, avg(Q.final) AS price FROM (SELECT max(B.price) AS final, A.category FROM auction A, bid B "
        "WHERE A.id = B.auction AND B.datetime BETWEEN A.datetime AND A.expires GROUP BY A.id, A.category) AS Q "
        "GROUP BY Q.category",
    ),
    "q5": Asked(
        "hot items",
        _hot_items("HOP (bid, datetime, INTERVAL '2 seconds', INTERVAL '10 seconds')"),
        _hot_items(_bucket("bid", 10, 2)),
    ),
    "q6": Asked(
        "average price of a seller's last ten",
        f"SELECT W.id, W.seller, avg(W.price) OVER (PARTITION BY W.seller ORDER BY W.expires, W.id "
        f"ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS price FROM ({_WINNING}) AS W",
    ),
    "q7": Asked("highest bid of ten seconds", _highest(_TEN), _highest(_bucket("bid", 10, 10))),
    "q8": Asked(
        "new users who sell",
        _new_users(
            "TUMBLE (person, datetime, INTERVAL '10 seconds')", "TUMBLE (auction, datetime, INTERVAL '10 seconds')"
        ),
        _new_users(_bucket("person", 10, 10), _bucket("auction", 10, 10)),
    ),
    "q9": Asked("winning bids", _WINNING),
    "q10": Asked(
        "files of each day and minute",
        "SELECT auction, bidder, price, datetime, "
        "year(datetime) * 10000 + month(datetime) * 100 + day(datetime) AS day, "
        "hour(datetime) * 60 + minute(datetime) AS minute FROM bid",
        by=("day", "minute"),
    ),
    "q11": Asked(
        "sessions of a bidder",
        "SELECT bidder, count(*) AS n, window_start, window_end FROM SESSION (bid PARTITION BY bidder, datetime, "
        "INTERVAL '10 seconds') GROUP BY bidder, window_start, window_end",
        "SELECT bidder, count(*) AS n, min(datetime) AS window_start, max(datetime) + INTERVAL 10 SECOND AS window_end "
        "FROM (SELECT *, sum(new) OVER (PARTITION BY bidder ORDER BY datetime ROWS UNBOUNDED PRECEDING) AS run FROM "
        "(SELECT *, CASE WHEN datetime - lag(datetime) OVER (PARTITION BY bidder ORDER BY datetime) "
        "< INTERVAL 10 SECOND THEN 0 ELSE 1 END AS new FROM bid)) GROUP BY bidder, run",
    ),
    "q12": Asked(
        "ten seconds of the clock",
        "SELECT bidder, count(*) AS n, window_end FROM TUMBLE (bid_now, at, INTERVAL '10 seconds') "
        "GROUP BY bidder, window_end",
        before="INSERT INTO bid_now (bidder) SELECT bidder FROM bid",
    ),
    "q13": Asked(
        "a bounded side input",
        "SELECT B.auction, B.price, S.value FROM bid B JOIN side_input S ON B.channel = S.key",
    ),
    "q14": Asked(
        "calculations",
        "SELECT auction, bidder, 0.908 * price AS price, CASE WHEN hour(datetime) BETWEEN 8 AND 18 THEN 'day' "
        "WHEN hour(datetime) <= 6 OR hour(datetime) >= 20 THEN 'night' ELSE 'other' END AS part, "
        "length(extra) - length(replace(extra, 'c', '')) AS often FROM bid "
        "WHERE 0.908 * price > 1000 AND 0.908 * price < 50000000",
    ),
    "q15": Asked(
        "bids of a day",
        "SELECT date_trunc('day', datetime) AS day, count(*) AS n, count(*) FILTER (WHERE price < 10000) AS low, "
        "count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle FROM bid "
        "GROUP BY date_trunc('day', datetime)",
    ),
    "q16": Asked(
        "channels of a day",
        "SELECT channel, date_trunc('day', datetime) AS day, count(*) AS n, "
        "count(*) FILTER (WHERE price < 10000) AS low FROM bid GROUP BY channel, date_trunc('day', datetime)",
    ),
    "q17": Asked(
        "auctions of a day",
        "SELECT auction, date_trunc('day', datetime) AS day, count(*) AS n, min(price) AS least, max(price) AS most, "
        "avg(price) AS mean, sum(price) AS total FROM bid GROUP BY auction, date_trunc('day', datetime)",
    ),
    "q18": Asked(
        "last bid of a bidder on an auction",
        "SELECT auction, bidder, price, datetime FROM bid "
        "QUALIFY rank() OVER (PARTITION BY bidder, auction ORDER BY datetime DESC) = 1",
    ),
    "q19": Asked(
        "ten best bids of an auction",
        "SELECT auction, bidder, price, rank() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid "
        "QUALIFY rank() OVER (PARTITION BY auction ORDER BY price DESC) <= 10",
    ),
    "q20": Asked(
        "bids with their auction",
        "SELECT B.auction, B.bidder, B.price, A.item_name, A.category FROM bid B JOIN auction A ON B.auction = A.id "
        "WHERE A.category = 10",
    ),
    "q21": Asked(
        "the channel of a bid",
        "SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' "
        f"WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE {_CHANNEL} END AS id FROM bid "
        f"WHERE {_CHANNEL} <> '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')",
    ),
    "q22": Asked(
        "the folders of a url",
        "SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, "
        "split_part(url, '/', 6) AS dir3 FROM bid",
    ),
}
"""By number: what has a text of its own for DuckDB says there what TUMBLE and HOP say here."""
