"""Live streams and standing queries, stopped at random points and restored from bytes, go on as if never stopped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from twin_held import undecided

import nile
from nile.execution.envelopes import content, packed
from nile.execution.live.exact_subscription import ExactSubscription
from nile.summaries.envelope import pack, unpack
from nile.summaries.errors import ConfigError, EnvelopeError

SECOND = 1_000_000_000
CLICKS = pa.schema([("at", pa.float64()), ("page", pa.string()), ("price", pa.float64())])
BUYS = pa.schema([("at", pa.float64()), ("page", pa.string()), ("n", pa.int64())])
QUERIES = [
    ("SELECT page, price FROM clicks WHERE price > 0", {}),
    ("SELECT count(*) AS n, sum(price) AS s FROM clicks", {}),
    ("SELECT page, count(*) AS n, sum(price) AS s, min(page) AS m FROM clicks GROUP BY page WINDOW 6", {}),
    ("SELECT page, median(price) AS s FROM clicks GROUP BY page WINDOW 6", {"scheduling": "tpa"}),
    ("SELECT DISTINCT page FROM clicks WINDOW 4", {}),
    ("SELECT c.at AS c, b.at AS b, b.n FROM clicks c, buys b WHERE c.page = b.page WINDOW 5", {"emit": "changes"}),
    ("SELECT c.at AS c, b.at AS b FROM clicks c, buys b WHERE c.page = b.page WINDOW 5", {"emit": "append"}),
    ("SELECT page FROM clicks EXCEPT SELECT page FROM buys WINDOW 7", {}),
    ("SELECT c.page, p.kind FROM clicks c, pages p WHERE c.page = p.page WINDOW 5", {"emit": "changes"}),
    ("SELECT count(*) AS n FROM clicks c, olds o WHERE c.page = o.page WINDOW 9", {}),
]


def database() -> nile.Database:
    db = nile.connect()
    db.stream("clicks", CLICKS, time="at", lateness="3 seconds", where="price IS NULL OR price < 9")
    db.stream("buys", BUYS, time="at", lateness="1 second")
    db.register("pages", pa.table({"page": ["a", "b", "b"], "kind": ["x", "y", "z"]}))
    db.register("olds", pa.table({"at": [1.0, 2.0, 3.0], "page": ["a", None, "c"]}), time="at")
    return db


def rows_of(rng: np.random.Generator, name: str, n: int) -> pa.RecordBatch:
    """Tuples of a stream in the order they are pushed: out of order, some late, some without a time."""
    at = np.sort(rng.uniform(0, 30, n).round(1)) + np.where(rng.random(n) < 0.2, -rng.uniform(0, 5, n).round(1), 0)
    times = pa.array([None if rng.random() < 0.05 else float(t) for t in at], pa.float64())
    page = pa.array([["a", "b", "", None, "c"][k] for k in rng.integers(0, 5, n)])
    if name == "buys":
        return pa.RecordBatch.from_arrays([times, page, pa.array(rng.integers(0, 4, n))], schema=BUYS)
    doubles = [0.1, 1e16, -1e16, float("nan"), None, -0.0, 2.5, 12.0]
    price = pa.array([doubles[k] for k in rng.integers(0, len(doubles), n)], pa.float64())
    return pa.RecordBatch.from_arrays([times, page, price], schema=CLICKS)


def cut(whole: dict[str, pa.RecordBatch], rng: np.random.Generator) -> list[tuple[str, pa.RecordBatch]]:
    out, at = [], dict.fromkeys(whole, 0)
    while ahead := [name for name in whole if at[name] < whole[name].num_rows]:
        name = ahead[rng.integers(len(ahead))]
        n = int(rng.integers(1, 9))
        out.append((name, whole[name].slice(at[name], n)))
        at[name] += n
    return out


def restarted(
    db: nile.Database, standing: ExactSubscription, text: str, how: dict[str, Any]
) -> tuple[Any, ExactSubscription]:
    """The database and the query as another process would have them, from bytes alone."""
    again = database()
    for name, stream in db._live.streams().items():
        again._live.streams()[name].go_on_from(unpack(pack("stream", *stream.content())))
    return again, revived(again, unpack(packed("query", standing.capture())), text, how)


def revived(db: nile.Database, envelope: Any, text: str, how: dict[str, Any]) -> ExactSubscription:
    like = db.subscribe(text, **how)
    made = ExactSubscription(
        db._live.names, like.query, like.choice, db._live.streams(), db._live.commits, None, content(envelope)
    )
    db._live.standing.add(made)
    like._closed = True
    return made


def told(found: list[tuple[int, pa.RecordBatch]]) -> list[str]:
    """Each output with its ordinal."""
    return [f"{first + i} {row!r}" for first, batch in found for i, row in enumerate(batch.to_pylist())]


@pytest.mark.parametrize("at", range(len(QUERIES)))
def test_a_restored_query_goes_on_and_numbers_go_on(at: int) -> None:
    text, how = QUERIES[at]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        whole = {name: rows_of(rng, name, 40) for name in ("clicks", "buys")}
        items = cut(whole, rng)
        stop, poll = sorted(int(k) for k in rng.integers(0, len(items) + 1, 2))[::-1]
        db = database()
        standing = db.subscribe(text, **how)
        out: list[str] = []
        for i, (name, batch) in enumerate(items[:stop]):
            db.push(name, batch)
            if i == poll:
                out += told(standing.poll_numbered())
        again, other = restarted(db, standing, text, how)
        assert packed("query", other.capture()) == packed("query", standing.capture())
        for name, batch in items[stop:]:
            for one in (db, again):
                one.push(name, batch)
        for one in (db, again):
            one.advance(35.0)
        assert packed("query", other.capture()) == packed("query", standing.capture())
        streams = [{n: pack("s", *s.content()) for n, s in one._live.streams().items()} for one in (db, again)]
        assert streams[0] == streams[1]
        standing.close()
        other.close()
        rest = told(standing.poll_numbered())
        assert told(other.poll_numbered()) == rest
        assert [int(each.split()[0]) for each in out + rest] == list(range(standing.outputs))
        assert other.outputs == standing.outputs
        assert other.accounting == standing.accounting


@pytest.mark.parametrize("at", range(len(QUERIES)))
def test_any_cut_of_what_is_pushed_gives_the_same_bytes_and_ordinals(at: int) -> None:
    text, how = QUERIES[at]
    for seed in range(2):
        rng = np.random.default_rng(seed + 50)
        whole = {name: rows_of(rng, name, 40) for name in ("clicks", "buys")}
        runs = []
        for other in range(3):
            db = database()
            standing = db.subscribe(text, **how)
            for name, batch in cut(whole, np.random.default_rng(other)):
                db.push(name, batch)
            streams = [pack("stream", *stream.content()) for stream in db._live.streams().values()]
            state = packed("query", standing.capture())
            standing.close()
            runs.append((streams, state, told(standing.poll_numbered())))
        assert runs[0] == runs[1] == runs[2]


def test_a_callback_reads_the_ordinal_of_its_batch() -> None:
    db = database()
    seen: list[tuple[int, int]] = []
    made: list[ExactSubscription] = []
    made.append(db.subscribe("SELECT page FROM clicks", lambda batch: seen.append((made[0].ordinal, len(batch)))))
    for name, batch in cut({"clicks": rows_of(np.random.default_rng(1), "clicks", 60)}, np.random.default_rng(2)):
        db.push(name, batch)
    made[0].close()
    assert [first for first, _ in seen] == [sum(n for _, n in seen[:k]) for k in range(len(seen))]
    assert made[0].ordinal == made[0].outputs == sum(n for _, n in seen) > 20


def test_what_was_not_read_waits_in_the_restored_query() -> None:
    db = database()
    text = "SELECT page FROM clicks"
    standing = db.subscribe(text)
    db.push("clicks", {"at": [1.0, 2.0, 20.0], "page": ["a", "b", "c"], "price": [1.0, 1.0, 1.0]})
    assert told(standing.poll_numbered()) == ["0 {'page': 'a'}"]
    db.push("clicks", {"at": [40.0], "page": ["d"], "price": [1.0]})
    _, other = restarted(db, standing, text, {})
    assert (other.ordinal, other.outputs) == (1, 2)
    assert told(other.poll_numbered()) == ["1 {'page': 'b'}"]
    assert told(other.poll_numbered()) == []


def test_states_of_an_instant_have_no_ordinals() -> None:
    db = database()
    with pytest.raises(ConfigError, match=r"poll_numbered: needed .* emit='snapshot'"):
        db.subscribe("SELECT count(*) AS n FROM clicks WINDOW 5", emit="snapshot").poll_numbered()


def test_when_stored_rows_begin_does_not_depend_on_how_tuples_are_cut() -> None:
    found = []
    for sizes in ([5], [1, 4], [2, 2, 1]):
        db = database()
        counted = db.subscribe("SELECT count(*) AS n FROM clicks WINDOW 5", emit="changes")
        first = 0
        for n in sizes:
            at = [float(10 + k) for k in range(first, first + n)]
            db.push("clicks", {"at": at, "page": ["a"] * n, "price": [1.0] * n})
            first += n
        counted.close()
        found.append([row for batch in counted for row in batch.to_pylist()])
    assert found[0] == found[1] == found[2]


def test_the_state_of_another_query_is_refused() -> None:
    db = database()
    states = [packed("query", db.subscribe(text, **how).capture()) for text, how in QUERIES[:6]]
    for i, (text, how) in enumerate(QUERIES[:6]):
        for j, state in enumerate(states):
            if {i, j} not in ({i}, {5, 6}):
                with pytest.raises(EnvelopeError, match="state of a"):
                    revived(db, unpack(state), text, how)


def test_a_subscription_decides_what_of_it_is_state() -> None:
    db = database()
    standing = db.subscribe("SELECT page, count(*) AS n FROM clicks GROUP BY page WINDOW 6")
    known = {"query", "choice", "schema", "_callback", "_commits", "_lock", "_changed", "_closed", "_streams"}
    known |= {
        "_tail_key",
        "_sought",
        "_more",
        "apart",
    }  # who shares is found out again
    known |= {"_unread_limit", "_left_to_store", "_most_bytes", "_when_full", "_tick", "_may_drop",
              "dropped"}  # the reader says it again  # fmt: skip
    known |= {"_fault", "ending"}  # of sensors, which no store keeps
    known |= {"into", "_names"}  # a part of what was asked, and of the database
    known |= {"epoch", "_replayed"}  # of the store
    known |= {"_hearing", "_was_read"}  # of who listens
    known |= {"reader"}  # of the sink that its definition names
    known |= {"_stamps"}  # how outputs take their form
    known |= {"regroup", "_own_turn", "_passed_on"}  # of the unit of a push it is part of, found out again
    assert set(vars(standing)) == known | {
        "_waits",
        "_outputs",
        "_handed",
        "_seen",
        "_plan",
        "_tail",
        "_changes",
        "_mended",
        "paused",
        "_backlog",
    }
    assert undecided(standing._plan.pipeline, ("nile.exact",)) == {}


def test_a_live_stream_decides_what_of_it_is_state() -> None:
    db = database()
    db.push("clicks", {"at": [1.0, 2.0, 20.0, None], "page": ["a", "b", "c", "d"], "price": [1.0, 1.0, 1.0, 1.0]})
    db.stream("sales", CLICKS, time="at")
    checked, repaired = (db._live.streams()[name] for name in ("sales", "clicks"))
    given = {"name", "schema", "time", "keep", "history", "listeners", "closed", "idle"}
    given |= {"silent", "pushing"}  # by the clock of this process
    given |= {"followers", "base"}  # of table functions, which no store keeps
    given |= {"_plain"}  # of its columns, found out again
    given |= {"at_will", "stamp", "clock", "drops"}  # of its definition
    assert set(vars(repaired)) == given | {"_manager", "_order", "_kept", "_pushed", "passed"}
    given = {"spec", "source", "key_type", "_columns"}
    given |= {"_refused"}  # of a push: empty between two
    given |= {"_carried"}  # the schema of rows that came last, found out again
    given |= {"threads"}  # of this machine
    given |= {"asked"}  # of a query over what is registered: nothing of what is pushed
    assert not repaired._manager._refused
    assert set(vars(repaired._manager)) == given | {"accounting", "_next_ordinal", "_rejected", "_late", "distinct"}
    assert set(vars(checked._order)) == {"_stream", "_last", "_count"}
    # what has arrived is sorted in before anybody can ask
    assert set(vars(repaired._order)) == {"_lateness", "_rows", "_largest", "_sorted", "_arrived", "_arrived_count"}
    assert repaired._order._arrived == []  # type: ignore[union-attr]
