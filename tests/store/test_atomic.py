"""A push is one change, callbacks are told after it, and what is half done is never read or written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nile
from nile.base.interrupts import INTERRUPTS

SCHEMA = pa.schema([("at", pa.float64()), ("k", pa.int64())])
COUNT = "SELECT k, count(*) AS n FROM s [RANGE '5 s'] GROUP BY k"


def batch(first: int, n: int = 10) -> dict[str, list[Any]]:
    return {"at": [float(first + i) for i in range(n)], "k": [(first + i) % 3 for i in range(n)]}


def told(found: list[pa.RecordBatch]) -> list[int]:
    return [row["k"] for one in found for row in one.to_pylist()]


@pytest.fixture
def db() -> Iterator[nile.Database]:
    with nile.connect() as made:
        made.stream("s", SCHEMA, time="at")
        made.stream("t", SCHEMA, time="at")
        yield made


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


# --- interrupts --------------------------------------------------------------------------------------------


def test_a_signal_waits_for_the_end_of_a_block_and_the_handler_is_the_users_again() -> None:
    before = signal.getsignal(signal.SIGINT)
    done = []

    def body() -> None:
        with INTERRUPTS, INTERRUPTS:
            interrupt()
            done.append(1)

    with pytest.raises(KeyboardInterrupt):
        body()
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_users_own_handler_is_called_once_after_the_block() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with INTERRUPTS:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert came == []
        assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_another_thread_a_block_does_nothing() -> None:
    seen = []

    def body() -> None:
        with INTERRUPTS:
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


def test_an_interrupt_inside_a_push_is_raised_after_it_and_everything_has_moved(db: nile.Database) -> None:
    found: list[pa.RecordBatch] = []
    db.subscribe("SELECT k FROM s", found.append)
    read = db.subscribe("SELECT k FROM s")
    arrived = type(db._live.summaries).arrived

    def interrupted(*given: Any) -> None:
        interrupt()
        arrived(*given)

    stream = db._live.get("s")
    stream.listeners[0] = lambda *given: interrupted(db._live.summaries, *given)
    with pytest.raises(KeyboardInterrupt):
        db.push("s", batch(0), offset=1)
    del stream.listeners[0]
    assert db.offset("s") == 1
    assert db.accounting("s").applied == 10
    db.push("s", batch(10), offset=2)
    db.advance(100.0)
    wanted = [i % 3 for i in range(20)]
    assert told(found) == told(read.poll()) == wanted


def test_an_interrupt_while_rows_are_read_changes_nothing(db: nile.Database) -> None:
    def rows() -> Iterator[Any]:
        yield batch(0)
        interrupt()
        yield batch(10)

    with pytest.raises(KeyboardInterrupt):
        db.push("s", rows(), offset=1)
    assert (db.offset("s"), db.accounting("s").tuples_in) == (0, 0)
    with pytest.raises(KeyboardInterrupt):
        db.push("s", rows())
    assert db.accounting("s").tuples_in == 10
    db.push("s", batch(10))


def test_outputs_that_a_reader_was_interrupted_before_it_had_are_there_again(
    db: nile.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = db.subscribe("SELECT k FROM s")
    db.push("s", batch(0))
    unread = type(read)._unread

    def interrupted(self: Any, found: Any) -> None:
        unread(self, found)
        interrupt()

    monkeypatch.setattr(type(read), "_unread", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read.poll()
    monkeypatch.undo()
    assert [first for first, _ in read.poll_numbered()][:1] == [0]


def test_a_second_interrupt_ends_a_callback_that_takes_too_long(db: nile.Database) -> None:
    others: list[pa.RecordBatch] = []
    steps = []

    def slow(_: pa.RecordBatch) -> None:
        for step in range(3 if not steps else 0):
            steps.append(step)
            interrupt()

    db.subscribe("SELECT k FROM s", slow)
    db.subscribe("SELECT k FROM s", others.append)
    with pytest.raises(KeyboardInterrupt):
        db.push("s", batch(0))
    assert steps == [0, 1]
    assert len(told(others)) == 9


# --- what tears ---------------------------------------------------------------------------------------------


def test_a_change_that_is_cut_off_is_neither_read_nor_written(tmp_path: Path) -> None:
    def fails(*_: Any) -> None:
        raise MemoryError("no more")

    with nile.connect(tmp_path) as db:
        db.stream("s", SCHEMA, time="at")
        read = db.subscribe("SELECT k FROM s", name="all")
        db.push("s", batch(0), offset=1)
        epoch = db.checkpoint()
        db._live.get("s").listeners[0] = fails
        with pytest.raises(MemoryError, match="no more"):
            db.push("s", batch(10), offset=2)
        for use in (
            lambda: db.push("s", batch(20)),
            lambda: db.advance(100.0),
            lambda: db.offset("s"),
            lambda: db.accounting("s"),
            lambda: db.late("s"),
            lambda: db.sql("SELECT k FROM s"),
            lambda: db.sql("DROP STREAM s"),
            lambda: db.subscribe("SELECT k FROM s"),
            lambda: db.stream("t", SCHEMA, time="at"),
            lambda: db.join("s", "s", on="k", window=1).run(),
            lambda: db.query("s").select("k").run().fetchall(),
            db.checkpoint,
            read.poll,
        ):
            with pytest.raises(nile.DatabaseTorn, match="cut off by MemoryError: no more; nothing of it is read"):
                use()
    with nile.connect(tmp_path) as db:
        assert db._live._keeper.directory.epoch == epoch  # type: ignore[union-attr]
        assert (db.offset("s"), db.accounting("s").applied) == (1, 10)
        db.push("s", batch(10), offset=2)
        assert told(db.subscription("all").poll()) == [i % 3 for i in range(19)]


def test_a_query_that_cannot_go_on_ends_alone_and_the_push_says_so(db: nile.Database) -> None:
    sums = db.subscribe("SELECT sum(k) AS n FROM s [RANGE '5 s']")
    read = db.subscribe("SELECT k FROM s")
    db.push("s", {"at": [0.0, 1.0], "k": [2**62, 2**62]})
    with pytest.raises(nile.SumOverflow) as caught:
        db.advance(10.0)
    assert caught.value.__notes__ == ["a standing query over s has ended by this"]
    assert sums.closed
    db.push("s", batch(20))
    db.advance(100.0)
    assert len(told(read.poll())) == 12


# --- callbacks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, ValueError, MemoryError])
def test_what_one_callback_raises_reaches_the_pusher_once_all_others_are_told(
    db: nile.Database, error: type[BaseException]
) -> None:
    def fails(_: pa.RecordBatch) -> None:
        failing.close()
        raise error("from a callback")

    before, after = [], []
    db.subscribe("SELECT k FROM s", before.append)
    failing = db.subscribe("SELECT k FROM s", fails)
    db.subscribe("SELECT k FROM s", after.append)
    with pytest.raises(error, match="from a callback"):
        db.push("s", batch(0), offset="x")
    assert db.offset("s") == "x"
    assert told(before) == told(after) == [i % 3 for i in range(9)]


def test_of_several_that_raise_the_one_that_must_stop_comes_out_and_names_the_others(db: nile.Database) -> None:
    def fails(error: BaseException) -> Callable[[pa.RecordBatch], None]:
        def callback(_: pa.RecordBatch) -> None:
            if errors:
                raise error

        return callback

    errors = [ValueError("a"), SystemExit(3), KeyError("b")]
    for error in errors:
        db.subscribe("SELECT k FROM s", fails(error))
    with pytest.raises(SystemExit) as caught:
        db.push("s", batch(0))
    errors.clear()
    assert caught.value.__notes__ == ["and besides: ValueError: a", "and besides: KeyError: 'b'"]


@pytest.mark.parametrize("where", ["s", "t"])
def test_a_callback_may_push_to_any_stream_and_all_queries_see_all_of_it(db: nile.Database, where: str) -> None:
    more = iter([batch(100), batch(200)])
    all_s, all_t = db.subscribe("SELECT k FROM s"), db.subscribe("SELECT k FROM t")

    def again(_: pa.RecordBatch) -> None:
        if (rows := next(more, None)) is not None:
            assert db.push(where, rows) == 10
            db.advance(rows["at"][-1] + 1, where)

    db.subscribe(COUNT, again)
    found: list[pa.RecordBatch] = []
    db.subscribe("SELECT k FROM s", found.append)
    db.push("s", batch(0))
    db.push("s", batch(300))
    db.close()
    wanted = {"s": 20, "t": 0}
    wanted[where] += 20
    assert [len(told(each.poll())) for each in (all_s, all_t)] == list(wanted.values())
    assert len(told(found)) == wanted["s"]


def test_a_callback_may_query_subscribe_close_and_drop(db: nile.Database) -> None:
    made: list[Any] = []

    def busy(_: pa.RecordBatch) -> None:
        if made:
            return
        made.append(db.subscribe("SELECT k FROM s"))
        assert db.sql("SELECT count(*) AS n FROM s").fetchall() == [(10,)]
        other.close()
        db.sql("DROP STREAM t")
        db.sql("DROP STREAM s")

    db.subscribe("SELECT k FROM s", busy)
    found: list[pa.RecordBatch] = []
    other = db.subscribe("SELECT k FROM s", found.append)
    db.push("s", batch(0))
    assert len(told(found)) == 10  # closing tells the last one
    assert db.streams == ()
    with pytest.raises(nile.UnknownStream):
        db.push("s", batch(10))


def test_a_checkpoint_inside_a_callback_holds_what_has_not_been_told(tmp_path: Path) -> None:
    with nile.connect(tmp_path, checkpoint=None) as db:
        db.stream("s", SCHEMA, time="at")
        db.subscribe("SELECT k FROM s", lambda _: db.checkpoint(), name="all")
        epoch = db.checkpoint()
        db.push("s", batch(0))
        assert db._live._keeper.directory.epoch > epoch  # type: ignore[union-attr]
        copy = nile.connect(tmp_path, read_only=True)
        assert [first for first, _ in copy.subscription("all").poll_numbered()] == [0]
        copy.close()


def test_a_database_may_be_closed_inside_a_callback(db: nile.Database) -> None:
    found: list[pa.RecordBatch] = []
    db.subscribe("SELECT k FROM s", lambda _: db.close())
    db.subscribe("SELECT k FROM s", found.append)
    db.push("s", batch(0))
    assert len(told(found)) == 10


def test_a_push_from_inside_the_iterator_that_is_pushed_is_refused_by_name(db: nile.Database) -> None:
    refused = []

    def rows() -> Iterator[Any]:
        yield batch(0)
        for use in (
            lambda: db.push("s", batch(50)),
            lambda: db.advance(50.0),
            lambda: db.sql("DROP STREAM s"),
            lambda: db.stream("s", SCHEMA, time="at"),
        ):
            with pytest.raises(nile.ConfigError, match=r"stream 's', .*: needed a stream that no push") as caught:
                use()
            refused.append(caught)
        db.push("t", batch(50))
        yield batch(10)

    assert db.push("s", rows()) == 20
    assert len(refused) == 4
    db.push("s", batch(50))


# --- definitions ----------------------------------------------------------------------------------------------


def test_what_a_named_query_reads_cannot_go_before_it(tmp_path: Path) -> None:
    (tmp_path / "goods.csv").write_text("k,kind\n1,a\n")
    (tmp_path / "other.csv").write_text("j\n1\n")
    with nile.connect(tmp_path / "store") as db:
        db.stream("s", SCHEMA, time="at")
        db.register("goods", tmp_path / "goods.csv")
        refusals: list[str] = []

        def drops(_: pa.RecordBatch) -> None:
            for use in (
                lambda: db.sql("DROP STREAM s"),
                lambda: db.sql("DROP RELATION goods"),
                lambda: db.register("s", tmp_path / "goods.csv", replace=True),
                lambda: db.register("goods", tmp_path / "other.csv", replace=True),
                lambda: db.register("goods", {"k": [1], "kind": ["a"]}, replace=True),
            ):
                with pytest.raises(nile.ConfigError, match=r"close .* first") as caught:
                    use()
                refusals.append(str(caught.value))

        db.subscribe("SELECT s.k, g.kind FROM s, goods g WHERE s.k = g.k", drops, name="kinds")
        db.push("s", batch(0, 4))
        assert len(refusals) >= 5
        assert "'kinds'" in refusals[0]
        assert set(db.streams) == {"s"}
        assert set(db.relations) == {"goods"}
    with nile.connect(tmp_path / "store") as db:
        db.subscription("kinds").close()
        db.sql("DROP STREAM s")
    with nile.connect(tmp_path / "store") as db:
        assert db.streams == ()


def test_a_summary_that_could_not_be_made_leaves_nothing(db: nile.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.push("s", batch(0))
    monkeypatch.setattr(type(db._live.get("s").history), "index", lambda *_: interrupt())
    with pytest.raises(KeyboardInterrupt):
        db.sql("CREATE SUMMARY made ON s (k) WITH GRANULARITY '1 s' AND COLLAPSE (4, 3)")
    monkeypatch.undo()
    assert db.sql("SHOW SUMMARIES").fetchall() == []
    db.sql("CREATE SUMMARY made ON s (k) WITH GRANULARITY '1 s' AND COLLAPSE (4, 3)")
