"""StreamScan: the rows of a table of sensors that a query wants, their sources, and one queue for all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.expressions.evaluate import evaluate_mask
from nile.expressions.tree import Node
from nile.sensors.queue import Held, Queue
from nile.sensors.table import Rows
from nile.summaries.heavy import pa, pc

if TYPE_CHECKING:
    from nile.sensors.port import Port

__all__ = ["Scan", "chosen", "hand_out"]


def chosen(rows: Rows, condition: Node | None, since: int = 0) -> np.ndarray[Any, Any]:
    """Which versions of rows, from number `since` on, meet a condition on their static columns: bool [n]."""
    batch = rows.versions.slice(since)
    if condition is None or batch.num_rows == 0:
        return np.ones(batch.num_rows, bool)
    mask = pc.fill_null(evaluate_mask(condition, batch), False)
    return np.asarray(mask.to_numpy(zero_copy_only=False), bool)


class Scan:
    """One query's reading.  The manager's thread changes it, the query's takes from its queue.

    condition: on static columns, bound; wanted: by version of a row, whether its tuples belong to the query; ports: the
    sources that still give, by row; past: those that have ended, or failed; left: those that were closed for it;
    places: where those go on that begin for it, by address.
    Source: STEAM, section 4 (StreamScan, StreamsQueue).
    """

    def __init__(self, condition: Node | None, queue: Queue, places: Mapping[str, Any] | None = None) -> None:
        self.condition = condition
        self.places: Mapping[str, Any] = places or {}
        self.queue = queue
        self.wanted = np.zeros(0, bool)
        self.ports: dict[int, Port] = {}
        self.past: dict[int, Port] = {}
        self.left: list[Port] = []
        self.closed = threading.Event()

    def learn(self, rows: Rows) -> dict[int, int]:
        """Look at versions that are new; the version of each row that is wanted now, by the row's identity."""
        known = self.wanted.shape[0]
        if rows.versions.num_rows > known:
            self.wanted = np.concatenate([self.wanted, chosen(rows, self.condition, known)])
        return {row: at for row, at in rows.current.items() if self.wanted[at]}

    def finish(self) -> None:
        """Where no source is left that gives anything, the queue is at its end."""
        if not self.ports:
            self.queue.end()


def hand_out(batch: pa.RecordBatch, scans: Iterable[Scan]) -> None:
    """Put into each queue those rows of a batch that its query wants, as copies or by reference.

    Copies are made where they are together less than the batch; else the queues share it, each with the mask of its
    rows.  So what waits takes at most the size of what came, however many read it (a bit per row and query beside),
    and no query that wants little holds on to much.  Source: STEAM, section 5.2, both schemes.
    """
    versions = batch.column(0).to_numpy()
    wanted = [(scan, scan.wanted[versions]) for scan in scans]
    counts = [int(mask.sum()) for _, mask in wanted]
    shared = sum(counts) > batch.num_rows
    for (scan, mask), count in zip(wanted, counts, strict=True):
        if count == 0:
            continue
        size = batch.nbytes * count // batch.num_rows
        if count == batch.num_rows:
            scan.queue.put(Held(batch, size))
        elif shared:
            scan.queue.put(Held(batch, size, pa.array(mask)))
        else:
            scan.queue.put(Held(batch.filter(pa.array(mask)), size))
