"""How far a streaming query has come into a stream: the offset that the store commits together with the rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from nile.summaries.errors import StoreError

__all__ = ["Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """An epoch of a query and how many of its rows are taken.

    query: the id that Spark keeps in the query's checkpoint; it survives restarts, and another checkpoint has
    another.  digest: of the epoch's rows, whatever their order; rows: how many; taken: the first so many of them,
    in the sink's order, are in the stream.
    """

    query: str
    epoch: int
    digest: str
    rows: int
    taken: int = 0

    @property
    def done(self) -> bool:
        """Whether all of the epoch is in."""
        return self.taken == self.rows

    def further(self, rows: int) -> Place:
        """The place after so many more rows."""
        return replace(self, taken=self.taken + rows)

    def as_json(self) -> dict[str, Any]:
        """JSON values, for `Database.push(offset=)`."""
        return {
            "query": self.query,
            "epoch": self.epoch,
            "digest": self.digest,
            "rows": self.rows,
            "taken": self.taken,
        }

    @classmethod
    def of(cls, offset: Any) -> Place | None:
        """The place that a stream's offset is; None: it was not written by a sink."""
        match offset:
            case {"query": str(query), "epoch": int(epoch), "digest": str(digest), "rows": int(rows), "taken": int(n)}:
                return cls(query, epoch, digest, rows, n)
        return None

    @classmethod
    def after(cls, offset: Any, epoch: Place, *, where: str, new_query: bool) -> Place:
        """Where to go on in `epoch` (none of it taken yet) of a stream that is at `offset`.

        An epoch that is taken already comes back done.  new_query: a query that the stream has not met goes on after
        what is there.  Raises StoreError when the query's checkpoint and the store do not belong together: rows
        would be lost, or counted twice.
        """
        before = cls.of(offset)
        if before is None or before.query != epoch.query:
            fresh = offset == 0 and epoch.epoch == 0
            if fresh or new_query:
                return epoch
            held = _told(before) if before is not None else f"{offset!r}, not of a sink" if offset else "no rows"
            raise StoreError(
                f"{where}: needed the query that the stream knows, or a new stream and a query at its first epoch; got "
                f"epoch {epoch.epoch} of query {epoch.query}, where the stream holds {held}; go on with that query's "
                "checkpointLocation, take a stream of another name, or say new_query=True if none of its rows is in yet"
            )
        if before.epoch == epoch.epoch:
            if (before.digest, before.rows) != (epoch.digest, epoch.rows):
                raise StoreError(
                    f"{where}: needed the {before.rows} rows that this epoch had when it was taken; got {epoch.rows} "
                    "or other ones; the query's checkpoint was lost or set back, or the query is not deterministic: "
                    "restore its checkpointLocation, or make a stream of another name"
                )
            return before
        if before.done and before.epoch + 1 == epoch.epoch:
            return epoch
        older = "query's checkpoint" if epoch.epoch < before.epoch else "store"
        raise StoreError(
            f"{where}: needed the epoch after what the stream holds, {_told(before)}; got epoch {epoch.epoch}; the "
            f"{older} was set back: restore both as of one moment, or make a stream of another name"
        )


def _told(place: Place) -> str:
    part = "" if place.done else f" ({place.taken} of {place.rows} rows)"
    return f"epoch {place.epoch}{part} of query {place.query}"
