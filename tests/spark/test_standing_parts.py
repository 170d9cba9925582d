"""A standing query in parts by key, without a Spark: the parts together tell what one database tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.execution.statement.builder import read_query
from nile.spark.standing.carrying import Dealer, Opener, as_bytes, batches_of
from nile.spark.standing.dealing import KEYS, Counts, Promises, _likely, _taken, parts_of
from nile.spark.standing.keys import dealt_by
from nile.spark.standing.partition import Asked, Fed, Partition, Told, Worth, in_order, told_of
from nile.spark.standing.placing import places_of
from nile.spark.standing.processor import Last
from nile.summaries.costs import ENGINE
from nile.summaries.errors import ConfigError, EnvelopeError
from nile.summaries.estimate import Estimate
from nile.summaries.hashing import hash_keys

ROWS = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("v", pa.int64())])
JOIN = "SELECT a.k, a.ts AS x, b.ts AS y, a.v, b.v AS w FROM a, b WHERE a.k = b.k {} WINDOW '5 s'"
LATENESS = "3 s"


def rows(seed: int, count: int = 800) -> pa.Table:
    """Tuples of 80 s, up to a second out of order, keys by Zipf, some null, a few times too."""
    rng = np.random.default_rng(seed)
    at = np.clip(np.sort(rng.integers(0, 80_000_000, count)) + rng.integers(-1_000_000, 1_000_000, count), 0, None)
    keys = pa.array([None if key == 7 else f"k{key}" for key in rng.zipf(1.5, count) % 40])
    times = pa.array(at, pa.int64(), mask=rng.random(count) < 0.01).cast(ROWS[0].type)
    return pa.table([times, keys, pa.array(rng.integers(0, 100, count))], schema=ROWS)


TABLES = {"a": rows(1), "b": rows(2)}


def whole(text: str, options: dict[str, Any], cut: int) -> tuple[pa.Table, Any]:
    """What one database tells, and its subscription."""
    db = nile.connect()
    for name in TABLES:
        db.stream(name, ROWS, time="ts", lateness=LATENESS)
    standing = db.subscribe(text, **options)
    for begin in range(0, 800, cut):
        for name, table in TABLES.items():
            db.push(name, table.slice(begin, cut))
    db.advance(1e4)
    return pa.Table.from_batches(list(standing.poll()), standing.schema), standing


def asked(text: str, options: dict[str, Any], parts: int, lateness: str = LATENESS) -> Asked:
    db = nile.connect()
    for name in TABLES:
        db.stream(name, ROWS, time="ts", lateness=LATENESS)
    keys = dealt_by(read_query(text, db._names, None))
    fed = tuple(Fed(name, ROWS, "ts", lateness, keys[name]) for name in sorted(keys))
    return Asked.from_json(Asked(text, options, fed, parts).as_json())


def in_parts(
    query: Asked,
    cut: int,
    seed: int | None = None,
    *,
    counts: bool = True,
    goes_on: bool = False,
    told_by: list[list[str]] | None = None,
) -> tuple[list[pa.RecordBatch], list[bytes], list[Worth]]:
    """What the parts tell when the streams come in micro-batches of `cut` tuples; seed: of their order inside them;
    counts: whether they hear what was counted; goes_on: whether workers go on with the parts that they had; told_by:
    filled with the rows of each micro-batch."""
    workers = [Last() for _ in range(query.parts)]
    had: list[Partition] = []
    states: list[bytes | None] = [None] * query.parts
    told: list[pa.RecordBatch] = []
    salt = Partition(query).salt
    for begin in range(0, 800, cut):
        dealt: list[dict[str, pa.Table]] = [{} for _ in range(query.parts)]
        heard: list[list[tuple[int, Told]]] = [[] for _ in range(query.parts)]
        reached: dict[str, int] = {}
        for number, fed in enumerate(query.streams):
            piece = TABLES[fed.name].slice(begin, cut)
            if seed is not None:
                piece = piece.take(pa.array(np.random.default_rng(seed).permutation(piece.num_rows)))
            dealer = Dealer(number, places_of(query.parts), "ts", fed.key, counts, salt)
            for out in dealer.run(iter(piece.combine_chunks().to_batches())):
                for row in out.to_pylist():
                    batches = [] if row["rows"] is None else list(batches_of(row["rows"]))
                    if row["stream"] == number:
                        dealt[row["part"]][fed.name] = pa.Table.from_batches(batches)
                        continue
                    assert row["stream"] == -1 - number
                    reached[fed.name] = row["reached"]
                    if batches:
                        heard[row["part"]].append((number, told_of(batches[0])))
        before = len(told)
        for number in range(query.parts):
            worker = workers[number] if goes_on else Last()
            part = worker.take("asked", query, number, states[number])
            assert (begin > 0 and goes_on) == (part in had)
            told += part.take(dealt[number], reached, heard[number])
            states[number] = state = part.capture()
            worker.leave("asked", number, bytes(bytearray(state)), part)
            had.append(part)
        if told_by is not None:
            told_by.append(sorted(str(row) for batch in told[before:] for row in batch.to_pylist()))
    worths = []
    for number in range(query.parts):
        part = Partition(query, states[number], number)
        told += part.take({}, {fed.name: 10**13 for fed in query.streams})
        worths.append(Worth.of_json(part.worth(1).as_json()))
    assert None not in states
    return told, [each for each in states if each is not None], worths


def alike(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


WAYS: list[tuple[str, dict[str, Any]]] = [
    (JOIN.format(""), {}),
    (JOIN.format("WITH PREFERENCE desc a.k"), {"budget": 1.0}),
    (JOIN.format("WITH PREFERENCE asc a.k"), {"budget": 1.0, "outlier_cap": 3}),
    ("SELECT k, count(*) AS n, sum(v) AS s FROM a GROUP BY k WINDOW 5", {"emit": "changes"}),
    ("SELECT a.k, b.v FROM a LEFT JOIN b ON a.k = b.k WINDOW 2", {"emit": "changes"}),
    ("SELECT DISTINCT k FROM a WINDOW 5", {"emit": "changes"}),
    ("SELECT k, v FROM a WHERE v > 50", {}),
]


@pytest.mark.parametrize(("text", "options"), WAYS)
def test_parts_tell_what_one_database_tells(text: str, options: dict[str, Any]) -> None:
    wanted, standing = whole(text, options, 200)
    told, _, worths = in_parts(asked(text, options, 3), 200)
    assert alike(pa.Table.from_batches(told, wanted.schema)) == alike(wanted)
    together = Worth.of_all(worths)
    assert together.outputs == wanted.num_rows
    assert 0.0 < together.fraction <= 1.0
    for name, each in together.accounting.items():
        each.check()
        assert each.tuples_in == 800
        assert each.rejected == TABLES[name]["ts"].null_count
    if "PREFERENCE asc" not in text:
        assert together.estimate.value == standing.estimate.value


@pytest.mark.parametrize(("text", "options"), WAYS)
@pytest.mark.parametrize("cut", [40, 200])
def test_each_micro_batch_tells_the_same_and_the_same_tuples_are_late_in_however_many_parts(
    text: str, options: dict[str, Any], cut: int
) -> None:
    told: dict[int, list[list[str]]] = {parts: [] for parts in (1, 2, 5)}
    late = {}
    for parts, by_batch in told.items():
        query = asked(text, options, parts, lateness="700 ms")  # of tuples up to a second out of order
        _, _, worths = in_parts(query, cut, told_by=by_batch)
        late[parts] = {name: each.late for name, each in Worth.of_all(worths).accounting.items()}
    assert told[1] == told[2] == told[5]
    assert late[1] == late[2] == late[5]
    assert sum(late[1].values()) > 0
    assert sum(map(len, told[1])) > 100


@pytest.mark.parametrize(
    ("text", "options"),
    [
        *WAYS,
        (JOIN.format("WITH PREFERENCE desc a.k"), {"budget": 0.3}),
        (JOIN.format("WITH PREFERENCE weighted a.k"), {"budget": 0.3}),
    ],
)
def test_a_worker_that_goes_on_with_its_part_tells_and_leaves_what_one_that_reads_its_state_does(
    text: str, options: dict[str, Any]
) -> None:
    query = asked(text, options, 2)
    anew, on = (in_parts(query, 100, goes_on=goes_on) for goes_on in (False, True))
    assert anew[1] == on[1]
    assert [each.to_pylist() for each in anew[0]] == [each.to_pylist() for each in on[0]]
    assert [each.as_json() for each in anew[2]] == [each.as_json() for each in on[2]]


def test_a_worker_reads_the_state_of_a_part_that_is_not_where_it_left_it() -> None:
    query = asked(JOIN.format(""), {}, 2)
    worker = Last()
    part = worker.take("asked", query, 0, None)
    state = part.capture()
    worker.leave("asked", 0, state, part)
    assert worker.take("asked", query, 0, bytes(bytearray(state))) is part
    assert worker.take("asked", query, 0, state) is not part  # somebody has it, and may have failed with it
    list(part.take({"a": TABLES["a"].slice(0, 50)}, {}))
    for other in (("other", 0, state), ("asked", 1, state), ("asked", 0, part.capture())):
        worker.leave("asked", 0, state, part)
        assert worker.take(other[0], query, *other[1:]) is not part


def test_a_share_of_each_part_is_that_share_of_all() -> None:
    query = asked(JOIN.format("WITH PREFERENCE weighted a.k"), {"budget": nile.Budget(fraction=0.3), "seed": 5}, 3)
    _, _, worths = in_parts(query, 200)
    together = Worth.of_all(worths)
    assert together.fraction <= 0.3 + 1e-9
    assert together.fraction > 0.2
    exact = whole(JOIN.format(""), {}, 200)[0].num_rows
    assert float(together.estimate.low) <= exact <= float(together.estimate.high)


@pytest.mark.parametrize("fraction", [0.1, 0.3])
def test_a_budget_goes_to_the_parts_whose_keys_promise_most(fraction: float) -> None:
    text, options = JOIN.format("WITH PREFERENCE desc a.k"), {"budget": nile.Budget(fraction=fraction)}
    alone = whole(text, options, 200)[0].num_rows
    query = asked(text, options, 4)
    dealt, even = (in_parts(query, 200, counts=counts) for counts in (True, False))
    found, unshared = (sum(batch.num_rows for batch in told) for told, _, _ in (dealt, even))
    assert found >= 0.98 * alone
    assert found > 1.05 * unshared
    assert Worth.of_all(dealt[2]).fraction <= 1.05 * fraction


def test_shares_add_up_to_the_budget_and_follow_the_keys() -> None:
    rng = np.random.default_rng(3)
    frequent = Counts.of(hash_keys(pa.array(rng.zipf(1.4, 20_000) % 3_000)), np.arange(20_000), 5)
    assert frequent.counts.sum() + frequent.rest.sum() == 20_000
    assert frequent.hashes.shape[0] == KEYS
    again = Counts.from_batch(frequent.batch())
    assert all(np.array_equal(getattr(again, name), getattr(frequent, name)) for name in Counts.__slots__)
    promises = Promises(5, 500, ENGINE)
    assert promises.shares(0.3).tolist() == [1.0] * 5
    promises.tell([(0, frequent), (1, frequent)])
    shares = promises.shares(0.3)
    best = int(parts_of(frequent.hashes[:1], 5)[0])
    assert shares.argmax() == best
    assert promises.shares(1.0).tolist() == [1.0] * 5
    other = Promises(5, 500, ENGINE)
    other.go_on_from(*promises.content())
    assert other.shares(0.3).tolist() == shares.tolist()
    for _ in range(12):  # what was frequent fades, what comes now counts
        promises.tell([(stream, Counts.of(hash_keys(pa.array([7] * 400)), np.arange(400), 5)) for stream in (0, 1)])
    assert promises.shares(0.3).argmax() == int(parts_of(hash_keys(pa.array([7])), 5)[0])


def test_keys_that_come_equally_often_get_equal_shares_whichever_came_more_by_chance() -> None:
    rng = np.random.default_rng(8)
    promises = Promises(4, 500, ENGINE)
    for _ in range(6):
        drawn = [hash_keys(pa.array(rng.integers(0, 2_000, 1_500))) for _ in range(2)]
        promises.tell([(stream, Counts.of(each, np.arange(1_500), 4)) for stream, each in enumerate(drawn)])
        assert abs(promises.shares(0.5) - 1.0).max() < 1e-6


def test_counts_weigh_by_what_chance_does_not_explain_of_their_differences() -> None:
    counts, times = np.array([[4.0, 10.0], [2.0, 0.0], [3.0, 2.0]]), np.array([1.0, 1.0, 2.0])
    told = _likely(counts, times)
    for stream in range(2):
        column = [counts[0, stream], counts[1, stream], counts[2, stream], counts[2, stream]]
        mean = sum(column) / 4
        spread = sum((each - mean) ** 2 for each in column) / 4
        own = max(0.0, 1.0 - mean / spread)
        assert told[:, stream].tolist() == pytest.approx([mean + own * (each - mean) for each in counts[:, stream]])
    assert told[:, 0].tolist() == [3.0, 3.0, 3.0]  # as different as chance makes them
    assert _likely(np.zeros((2, 2)), np.ones(2)).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_keys_of_one_rank_are_taken_alike_and_later_ranks_get_what_is_left() -> None:
    rank, costs = np.array([2.0, -1.0, 2.0, 5.0]), np.array([3.0, 2.0, 1.0, 7.0])
    assert _taken(rank, costs, 4.0).tolist() == [0.5, 1.0, 0.5, 0.0]
    assert _taken(rank, costs, 1.0).tolist() == [0.0, 0.5, 0.0, 0.0]
    assert _taken(rank, costs, 99.0).tolist() == [1.0] * 4
    assert _taken(rank, np.zeros(4), 0.0).tolist() == [0.0] * 4


def test_the_state_depends_neither_on_the_order_inside_a_micro_batch_nor_on_reading_it_again() -> None:
    query = asked(JOIN.format("WITH PREFERENCE desc a.k"), {"budget": 0.3}, 2)
    first, second = in_parts(query, 400), in_parts(query, 400, seed=9)
    assert first[1] == second[1]
    assert [each.to_pylist() for each in first[0]] == [each.to_pylist() for each in second[0]]


def test_parts_of_equal_keys_are_equal_and_many_keys_are_spread() -> None:
    keys = pa.array([f"key {n}" for n in range(4_000)] * 2)
    batch = pa.record_batch([pa.array([0.0] * 8_000), keys], names=["ts", "k"])
    out, behind = Dealer(0, places_of(7), "ts", "k").run(iter([batch]))
    assert [(row["part"], row["stream"], row["reached"], row["rows"]) for row in behind.to_pylist()] == [
        (part, -1, 0, None) for part in range(7)
    ]
    seen: dict[str, int] = {}
    for row in out.to_pylist():
        (found,) = batches_of(row["rows"])
        assert 8_000 / 7 * 0.8 < found.num_rows < 8_000 / 7 * 1.2
        for key in found["k"].to_pylist():
            assert seen.setdefault(key, row["part"]) == row["part"]
    assert len(seen) == 4_000


def spark_hash(*values: int) -> int:
    """Murmur3 as Spark has it, of columns of longs from 0 on, bit by bit."""
    most = 0xFFFFFFFF

    def turned(bits: int, by: int) -> int:
        return (bits << by | bits >> 32 - by) & most

    found = 42
    for value in values:
        for half in (value & most, value >> 32):
            mixed = turned(half * 0xCC9E2D51 & most, 15) * 0x1B873593 & most
            found = (turned(found ^ mixed, 13) * 5 + 0xE6546B64) & most
        found ^= 8
        found = (found ^ found >> 16) * 0x85EBCA6B & most
        found = (found ^ found >> 13) * 0xC2B2AE35 & most
        found ^= found >> 16
    return found - (1 << 32) * (found >> 31)


def test_each_part_has_a_task_of_its_own() -> None:
    assert (spark_hash(0), spark_hash(1)) == (-1670924195, -1712319331)  # one task of two, but for places
    for parts in (1, 2, 3, 7, 16, 100):
        placed = list(enumerate(places_of(parts)))
        assert [spark_hash(*one) % parts for one in placed] == list(range(parts))
        assert len({spark_hash(*one) % (3 * parts) for one in placed}) == parts


def test_rows_are_handed_out_with_the_types_that_spark_has() -> None:
    at = pa.array([1_000_000_123], pa.timestamp("ns"))
    found = pa.record_batch([at, pa.array([3], pa.uint8())], names=["t", "n"])
    opener = Opener(pa.schema([("t", pa.timestamp("us")), ("n", pa.int16())]))
    carried = pa.record_batch([pa.array([as_bytes([found, found])], pa.binary())], names=["rows"])
    (one, two) = opener.run(iter([carried]))
    assert one.schema == two.schema == opener.schema
    assert one.column(0).cast(pa.int64()).to_pylist() == [1_000_000]


def test_rows_of_one_time_have_one_order() -> None:
    table = pa.table({"t": [2.0, 1.0, 1.0, None], "k": ["a", "c", "b", "d"], "l": [[1], [2], [3], [4]]})
    assert sorted(in_order(table, "t")["k"].to_pylist()) == ["a", "b", "c", "d"]
    assert in_order(table.slice(0, 3), "t")["k"].to_pylist() == ["b", "c", "a"]


def test_a_state_that_was_altered_is_refused() -> None:
    query = asked(JOIN.format(""), {}, 1)
    state = bytearray(in_parts(query, 800)[1][0])
    state[len(state) // 2] ^= 1
    with pytest.raises(EnvelopeError):
        Partition(query, bytes(state))


def test_errors_of_independent_parts_add_as_squares_and_certain_ones_as_they_are() -> None:
    def worth(*given: Any) -> Worth:
        return Worth(1, Estimate(*given), 1.0, 4.0, 10)

    random = Worth.of_all([worth(10.0, 7.0, 14.0, 0.95, False), worth(20.0, 16.0, 23.0, 0.95, False)])
    assert (random.estimate.value, random.estimate.low, random.estimate.high) == (30.0, 25.0, 35.0)
    assert random.fraction == 0.25
    certain = Worth.of_all([worth(10.0, 10.0, float("inf"), 1.0, True), worth(5.0, 5.0, 6.0, 1.0, True)])
    assert (certain.estimate.low, certain.estimate.high, certain.estimate.certified) == (15.0, float("inf"), True)
    assert Worth.of_all([]).estimate.value == 0.0


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("SELECT a.k FROM a, b WHERE a.k = b.k WINDOW 5", {"a": "k", "b": "k"}),
        ("SELECT d.m FROM (SELECT k AS m FROM a) AS d, b WHERE d.m = b.k WINDOW 5", {"a": "k", "b": "k"}),
        ("SELECT x.k FROM a AS x, a AS y WHERE x.k = y.k AND x.v = y.v WINDOW 5", {"a": "k"}),
        ("SELECT a.k FROM a, b, c WHERE a.k = b.k AND b.k = c.k WINDOW 5", {"a": "k", "b": "k", "c": "k"}),
        ("SELECT v, k, count(*) FROM a GROUP BY v, k WINDOW 5", {"a": "k"}),
        ("SELECT k, rank() OVER (PARTITION BY v ORDER BY k) AS r FROM a WINDOW 5", {"a": "v"}),
        ("SELECT k FROM a [PARTITION BY v ROWS 3]", {"a": "v"}),
        ("SELECT k FROM a UNION ALL SELECT k FROM b WINDOW 5", {"a": "k", "b": "k"}),
        ("SELECT v + 1 AS w FROM a", {"a": "ts"}),
    ],
)
def test_streams_are_dealt_out_by_what_all_that_meets_has_in_common(text: str, keys: dict[str, str]) -> None:
    db = nile.connect()
    for name in "abc":
        db.stream(name, ROWS, time="ts")
    assert dealt_by(read_query(text, db._names, None)) == keys


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT a.k FROM a, b WHERE a.v > b.v WINDOW 5", "no key in common"),
        ("SELECT a.k FROM a, b, c WHERE a.k = b.k AND b.v = c.v WINDOW 5", "no key in common"),
        ("SELECT x.k FROM a AS x, a AS y WHERE x.v = y.w WINDOW 5", "twice, keyed by different columns"),
        ("SELECT count(*) FROM a WINDOW 5", "groups without the key"),
        ("SELECT a.v, count(*) FROM a, b WHERE a.k = b.k GROUP BY a.v WINDOW 5", "groups without the key"),
        ("SELECT DISTINCT v + 1 AS w FROM a WINDOW 5", "DISTINCT without the key"),
        ("SELECT k FROM a [ROWS 3]", "a stream that occurs twice|no column"),
        ("SELECT rank() OVER (ORDER BY v) AS r FROM a WINDOW 5", "OVER without PARTITION BY"),
        ("SELECT v + 1 AS w FROM a INTERSECT SELECT v FROM b WINDOW 5", "INTERSECT of rows without the key"),
    ],
)
def test_what_no_key_deals_out_is_refused_with_what_stands_in_the_way(text: str, why: str) -> None:
    db = nile.connect()
    for name in "abc":
        db.stream(name, [*((each.name, each.type) for each in ROWS), ("w", pa.int64())], time="ts")
    with pytest.raises(ConfigError, match=why):
        dealt_by(read_query(text, db._names, None))
