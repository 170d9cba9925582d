"""Rows from a server, as results and as outputs of standing queries."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nile.answers.progress import Run
from nile.answers.result import Result
from nile.client.http import Http, Streamed, quoted
from nile.preferences.budget import BudgetReport
from nile.summaries import errors
from nile.summaries.errors import ConfigError, NileError, NotYet, SourceError
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa
from nile.summaries.schemas import schema_from_json

__all__ = ["ARROW", "RemoteResult", "RemoteSubscription"]

ARROW = "application/vnd.apache.arrow.stream"
_PATIENCE = 60.0  # seconds that a follower tries to reach a server that is gone


class _Body:
    """A response as Arrow reads a file: what it asks for is received where it stays, and copied no more."""

    closed = False

    def __init__(self, response: Streamed) -> None:
        self.read = response.read
        self.close = response.close
        self._into = response.readinto

    def readable(self) -> bool:
        return True

    def read_buffer(self, size: int) -> pa.Buffer:
        """The next `size` bytes; fewer where the response ends."""
        room = pa.allocate_buffer(size)
        got = self._into(memoryview(room).cast("B")) if size else 0
        return room if got == size else room.slice(0, got)


class _Reader:
    """An Arrow stream that a response is, and what is said beside its rows."""

    def __init__(self, response: Streamed) -> None:
        self._response = response
        try:
            self._reader = pa.ipc.open_stream(_Body(response))
        except (pa.ArrowException, OSError, http.client.HTTPException) as error:
            raise SourceError(f"server: needed an Arrow stream; got one cut off ({error}); ask again") from None
        self.schema: pa.Schema = self._reader.schema

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, dict[str, Any]]]:
        try:
            while True:
                try:
                    try:
                        batch, said = self._reader.read_next_batch_with_custom_metadata()
                    except StopIteration:  # which is also what Arrow says of a stream cut off between two batches
                        self._response.read(1)  # up to the end of the response: its connection is used again
                        return
                except (pa.ArrowException, OSError, http.client.HTTPException) as error:
                    raise SourceError(
                        f"server: needed the rest of the rows; got it cut off ({error}); ask again"
                    ) from None
                yield (
                    batch,
                    {key.decode().removeprefix("nile."): json.loads(value) for key, value in (said or {}).items()},
                )
        finally:
            self._response.close()


class _RemoteRun(Run):
    """One execution on the server; its rows are read as they come."""

    def __init__(self, reader: _Reader) -> None:
        self.schema = reader.schema
        self._reader = reader
        self.told: dict[str, Any] = {}

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch, said in self._reader:
            if "error" in said:
                kind = getattr(errors, str(said.get("kind")), SourceError)
                raise (kind if issubclass(kind, NileError) else SourceError)(said["error"])
            self.told = said.get("worth", self.told)
            if batch.num_rows:
                yield batch

    @property
    def budget(self) -> BudgetReport:
        if "spent" not in self.told:
            return super().budget
        return BudgetReport(self.told["spent"], self.told["spent"], "fraction", self.told["spent"])

    @property
    def coverage(self) -> float:
        return float(self.told.get("coverage", 1.0))

    @property
    def estimate(self) -> Estimate | None:
        given = self.told.get("estimate")
        return None if given is None else Estimate(**given)

    @property
    def estimates(self) -> Mapping[str, Sequence[Estimate]]:
        raise NotYet(
            "estimates: needed the database itself; got one over HTTP, which sends numbers, and in words how far off "
            "they may be; read worth()"
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self.told.get("warnings", ()))

    def worth(self) -> str | None:
        return self.told.get("worth")


class RemoteResult(Result):
    """As `Result`: the server finds rows as fast as they are read here.  Read twice, it asks twice.

    A statement without rows has been carried out when this is there.
    """

    def __init__(self, ask: Callable[[], Streamed]) -> None:
        first: list[_RemoteRun] = [_RemoteRun(_Reader(ask()))]

        def start() -> _RemoteRun:
            return first.pop() if first else _RemoteRun(_Reader(ask()))

        super().__init__(start, first[0].schema)
        if self.columns in (["done"], ["plan"]):
            table = self.to_arrow()  # whoever shows it wants the message
            told = self._run.told if isinstance(self._run, _RemoteRun) else {}
            self.message = told.get("message") or (table[0][0].as_py() if table.num_rows == 1 else None)

    def worth(self) -> str | None:
        """What an approximate answer is worth, in a few words, once it has been read; None of an exact one."""
        return None if self._run is None else self._run.worth()


class RemoteSubscription:
    """A standing query of a server.  ordinal: of the next output; change it to read others again.

    As `Subscription` has them: `poll`, `poll_numbered`, iteration, `follow`, `close`.  A server that was away is asked
    again for what comes after the last output that was read: none is lost and none comes twice, but those that the
    server has let go of, which are counted in `lost`.
    """

    def __init__(self, server: Http, name: str, told: dict[str, Any]) -> None:
        self.name = name
        self.epoch: int = told["epoch"]
        self.schema = schema_from_json(told["schema"])
        self.streams: tuple[str, ...] = tuple(told["streams"])
        self.ordinal = 0
        self.lost = 0
        self.closed = False
        self._is_state = bool(told.get("snapshot"))
        self._server = server

    def __repr__(self) -> str:
        return f"<nile.RemoteSubscription {self.name!r} of {self._server.place}, at {self.epoch}:{self.ordinal}>"

    def __enter__(self) -> RemoteSubscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def outputs(self) -> int:
        """How many there are so far."""
        return int(self._server.ask("GET", self._path())["outputs"])

    def poll(self) -> list[pa.RecordBatch]:
        """What has been found since the last call; of emit 'snapshot' the state now.  Waits for the server alone."""
        if self._is_state and not self.closed:
            return [
                batch
                for batch, _ in _Reader(self._server.stream("GET", f"{self._path()}/now", Accept=ARROW))
                if batch.num_rows
            ]
        return [batch for _, batch in self.poll_numbered()]

    def poll_numbered(self) -> list[tuple[int, pa.RecordBatch]]:
        """As `poll`, each batch after the ordinal of its first row.  Cut off, nothing was read: all comes again.

        Raises ConfigError of emit 'snapshot'.
        """
        if self._is_state:
            raise ConfigError(
                "poll_numbered: needed a query that emits changes or new rows; got emit='snapshot', whose states have "
                "no order; call poll()"
            )
        ordinal, lost, closed = self.ordinal, self.lost, self.closed
        try:
            return list(self._read("&wait=0"))
        except BaseException:
            self.ordinal, self.lost, self.closed = ordinal, lost, closed
            raise

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while found := self.poll():
            yield from found
            if self._is_state:
                return

    def follow(self, timeout: float | None = None) -> Iterator[pa.RecordBatch]:
        """Batches as they are found, until the query ends.  timeout: most seconds to wait for the next; then it ends.

        Raises SourceError where the server is gone for longer than a minute.
        """
        wait = "" if timeout is None else f"&wait={timeout:g}"
        tried, pause = time.monotonic(), 0.05
        while True:
            try:
                for _, batch in self._read(wait):
                    yield batch
                    tried, pause = time.monotonic(), 0.05
            except SourceError:
                if time.monotonic() - tried > _PATIENCE:
                    raise
            else:
                if self.closed or timeout is not None:
                    return
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def close(self) -> None:
        """End the query, on the server too; what it found last can still be read."""
        if not self.closed:
            self._server.ask("DELETE", self._path())
            self.closed = True

    def _path(self) -> str:
        return f"/queries/{quoted(self.name)}"

    def _read(self, wait: str) -> Iterator[tuple[int, pa.RecordBatch]]:
        at = f"{self._path()}/outputs?from={self.epoch}:{self.ordinal}{wait}"
        for batch, said in _Reader(self._server.stream("GET", at, Accept=ARROW)):
            if "lost" in said:
                first, self.ordinal = said["lost"]
                self.lost += self.ordinal - first
            elif "end" in said:
                self.closed = self.closed or said["end"] == "closed"
            elif batch.num_rows:
                if said["ordinal"] != self.ordinal:
                    raise ConfigError(f"server: needed output {self.ordinal}; got {said['ordinal']}; ask from=start")
                self.ordinal += batch.num_rows
                yield said["ordinal"], batch
