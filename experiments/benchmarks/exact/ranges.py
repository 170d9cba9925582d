"""How fast the exact range join is, beside enumerating the same pairs and beside a plain loop in C.

The C loop does what the kernel does on the same streams, the same way: a directory of counts that grows online, one
cursor that expires both streams' tuples, one record of a range for each tuple with matches.  It is compiled when the
benchmark runs, and left out where there is no compiler.  Neither fills tuple lists, which ranges need when they are
expanded; what that takes is in the figures.  Enumerating needs them at once, and fills them.  Both ways write all that
an output has: what stands for its tuples, and its weight.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from nile.experiments.benchmarks.harness import Bar, Contestant, Result, benchmark, race
from nile.experiments.benchmarks.streams import workload
from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.join.join import JoinInput, PromisingJoin
from nile.preferences import state as st
from nile.preferences.budget import Budget
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.store import PIECE, TupleStore
from nile.summaries.errors import ConfigError

__all__ = ["C_SOURCE", "CJoin", "OnlineJoin", "columns_of", "compiled", "exact_ranges"]

Array = np.ndarray[Any, Any]

TITLE = "exact range join on directories that grow online"
SELECTIVITY = 0.067
TUPLES = 96_000  # of each stream, 16 windows
SEED = 1
ROOM = 1 << 16  # records a block, as the operator's
ENUMERATING = 20.0
PLAIN_C = 1.0 / 1.05

NILE = "nile: range records"
PAIRS = "nile: the same pairs, enumerated"
C_LOOP = "plain C loop (-O3), the same range records"

C_SOURCE = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 256, AHEAD = 3 };
typedef struct { int64_t *first, *second, *third; double *weight; int64_t room; } Output;
typedef struct {
    const int64_t *ts[2]; const int32_t *code[2];
    int64_t next[2], keys, now, gone;
    int32_t *counts; /* of the null key, then of each: tuples of left, of right, and how many of those left */
    int64_t *until;  /* of each arrival: the last moment it joins with */
    int32_t *slots;  /* of each arrival: its place in counts */
} Join;

Join *join_new(const int64_t *left_ts, const int32_t *left, const int64_t *right_ts, const int32_t *right,
               int64_t keys, int64_t arrivals) {
    Join *j = calloc(1, sizeof *j);
    j->keys = keys;
    j->ts[0] = left_ts; j->code[0] = left;
    j->ts[1] = right_ts; j->code[1] = right;
    j->counts = calloc(4 * keys + 4, sizeof *j->counts);
    j->until = malloc((arrivals + AHEAD) * sizeof *j->until);
    j->slots = malloc((arrivals + AHEAD) * sizeof *j->slots);
    return j;
}

void join_reset(Join *j) {
    j->now = j->gone = j->next[0] = j->next[1] = 0;
    memset(j->counts, 0, (4 * j->keys + 4) * sizeof *j->counts);
}

void join_free(Join *j) { free(j->counts); free(j->until); free(j->slots); free(j); }

/* Of each arrival its stream, by time; of two at one time the left one first. */
void merge_order(const int64_t *left, int64_t lefts, const int64_t *right, int64_t rights, int8_t *order) {
    for (int64_t i = 0, j = 0, at = 0; at < lefts + rights; at++) {
        int8_t side = i == lefts || (j < rights && right[j] < left[i]);
        order[at] = side;
        i += 1 - side;
        j += side;
    }
}

/* Runs to arrival `end` or until the output is full; returns how many records were written. */
int64_t join_run(Join *j, const int8_t *order, int64_t end, int64_t window, Output *out) {
    int64_t at = 0, now = j->now, gone = j->gone, lefts = j->next[0], times[BATCH];
    int64_t *restrict until = j->until;
    int32_t *restrict slots = j->slots, *restrict counts = j->counts;
    int64_t *restrict first = out->first, *restrict second = out->second, *restrict third = out->third;
    double *restrict weight = out->weight;
    while (now < end && at < out->room) {
        int64_t start = now, stop = end - now < out->room - at ? end : now + out->room - at;
        if (stop - start > BATCH) stop = start + BATCH;
        for (int64_t i = start; i < stop; i++) {
            int side = order[i];
            int64_t ordinal = j->next[side]++, ts = j->ts[side][ordinal];
            times[i - start] = ts;
            until[i] = (ts < INT64_MAX - window ? ts : INT64_MAX - window) + window;
            slots[i] = 4 * (j->code[side][ordinal] + 1) + side;
        }
        for (int64_t i = stop; i < stop + AHEAD; i++) { until[i] = INT64_MAX; slots[i] = 0; }
        for (; now < stop; now++) {
            int64_t ts = times[now - start], own = slots[now], left;
            do { /* tuples that leave, three at a time and without a jump */
                int64_t a = until[gone] < ts, b = until[gone + 1] < ts, c = until[gone + 2] < ts;
                counts[slots[gone] + 2] += a;
                counts[slots[gone + 1] + 2] += b;
                counts[slots[gone + 2] + 2] += c;
                gone += left = a + b + c;
            } while (left == AHEAD);
            counts[own]++;
            int64_t side = own & 1, low = counts[(own ^ 1) + 2], high = counts[own ^ 1];
            first[at] = 2 * (side ? now - lefts : lefts) + side;
            second[at] = low;
            third[at] = high;
            weight[at] = 1.0;
            at += (low < high) & (own >= 4);
            lefts += 1 - side;
        }
    }
    j->now = now;
    j->gone = gone;
    return at;
}
"""


class _OutputOfC(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("first", "second", "third", "weight")] + [("room", ctypes.c_int64)]


class CJoin:
    """The plain C loop over one input.  library: from `compiled`; `records` and `count` run it from nothing.

    columns: times (ns, in order) and codes below `keys` (int32) of the left stream, and of the right one.  order: of
    each arrival its stream; None: by time.
    """

    def __init__(
        self, library: ctypes.CDLL, columns: Sequence[Array], keys: int, window: int, order: Array | None = None
    ) -> None:
        self._library = library
        self._window = window
        self._columns = [np.ascontiguousarray(c) for c in columns]
        left, _, right, _ = self._columns
        if order is None:
            order = np.empty(left.shape[0] + right.shape[0], np.int8)
            sides = [each for c in (left, right) for each in (c.ctypes.data, c.shape[0])]
            library.merge_order(*[ctypes.c_void_p(each) for each in (*sides, order.ctypes.data)])
        self._order = np.ascontiguousarray(order)
        self._out = [np.empty(ROOM, np.int64) for _ in range(3)] + [np.empty(ROOM)]
        self._output = _OutputOfC(*[column.ctypes.data for column in self._out], ROOM)
        library.join_new.restype = ctypes.c_void_p
        library.join_run.restype = ctypes.c_int64
        self._join = ctypes.c_void_p(
            library.join_new(
                *[ctypes.c_void_p(c.ctypes.data) for c in self._columns],
                ctypes.c_int64(keys),
                ctypes.c_int64(self._order.shape[0]),
            )
        )

    def blocks(self) -> Iterator[int]:
        """Forget everything and join from the start; yields how many records the output holds, block by block."""
        self._library.join_reset(self._join)
        while True:
            written = self._library.join_run(
                self._join, ctypes.c_void_p(self._order.ctypes.data), ctypes.c_int64(self._order.shape[0]),
                ctypes.c_int64(self._window), ctypes.byref(self._output),
            )  # fmt: skip
            yield written
            if written < ROOM:
                return

    def records(self) -> Array:
        """All records: float64 [n, 4], which holds numbers of this size exactly."""
        return np.concatenate([np.stack([column[:n] for column in self._out], axis=1) for n in self.blocks()])

    def count(self) -> int:
        """How many pairs the records stand for."""
        _, low, high, _ = self._out
        return sum(int((high[:n] - low[:n]).sum()) for n in self.blocks())

    def close(self) -> None:
        """Free what the C side holds."""
        self._library.join_free(self._join)


def columns_of(data: JoinInput) -> tuple[Array, Array, Array, Array]:
    """What a `CJoin` takes of an operator's input."""
    return data.left_ts, data.left.codes, data.right_ts, data.right.codes


class OnlineJoin:
    """The operator's own kernel, stopped and mended as the operator does, on tuples that have been fed."""

    def __init__(self, plan: JoinPlan, data: JoinInput) -> None:
        self._end = data.order.shape[0]
        self._join = PromisingJoin(plan, data)
        self._join._feed(self._end)
        state = self._join.state
        self._kept = [(array, array.copy()) for array in (state.whole, state.real)]

    def blocks(self) -> Iterator[int]:
        """Forget everything and join from the start; yields how many records the output holds, block by block."""
        join = self._join
        for array, before in self._kept:
            array[:] = before
        join._fronts[:] = 0
        if join._ranges is not None:
            join._ranges.forget()
        for store in join.stores:
            store.side.lists[:] = 0
            store.side.meta[[ga.TOP, ga.PLACED]] = 0
        whole = join.state.whole
        while True:
            why = join._step(self._end)
            if why in (st.OUTPUT_FULL, st.DONE):
                yield int(whole[st.WRITTEN])
                whole[st.WRITTEN] = 0
            if why == st.DONE:
                return
            join._mend(why)

    def records(self) -> Array:
        """All records: float64 [n, 4], which holds numbers of this size exactly."""
        out = self._join._out
        columns = (out.first, out.second, out.third, out.weight)
        return np.concatenate([np.stack([column[:n] for column in columns], axis=1) for n in self.blocks()])


def compiler() -> str | None:
    """The machine's C compiler, or None."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def compiled(folder: Path) -> ctypes.CDLL | None:
    """The C loop, compiled into `folder` for this machine; None where no compiler is, or it refuses."""
    cc = compiler()
    if cc is None:
        return None
    source, library = folder / "ranges.c", folder / "ranges.so"
    source.write_text(C_SOURCE, encoding="ascii")
    command = [cc, "-O3", "-march=native", "-shared", "-fPIC", "-o", str(library), str(source)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return None
    return ctypes.CDLL(str(library))


def plan_of(output: str, window: int) -> JoinPlan:
    """The exact join: a budget of 1, with nothing summarised."""
    return JoinPlan(window=window, budget=Budget(1.0), output=output, spec=default_spec(window))


def _exhaust(blocks: Callable[[], Iterator[int]]) -> Callable[[], object]:
    return lambda: sum(blocks())


def _filling(data: JoinInput, rounds: int = 5) -> float:
    """CPU ns per tuple to put both streams into new stores and their tuple lists; the median round."""
    taken: list[float] = []
    for _ in range(rounds):
        begin = time.process_time_ns()
        for ts, keys in ((data.left_ts, data.left), (data.right_ts, data.right)):
            store = TupleStore(default_spec(None))
            store.extend(ts, keys.codes, keys.hashes, data.keys)
            for first in range(0, ts.shape[0], PIECE):
                store.append(first, min(ts.shape[0], first + PIECE))
        taken.append((time.process_time_ns() - begin) / data.order.shape[0])
    return float(median(taken))


def _operator_rate(plan: JoinPlan, data: JoinInput, rounds: int = 5) -> float:
    """Tuples a CPU second of a whole operator: stores made, tuples fed, outputs handed on; the median round."""
    rates: list[float] = []
    for _ in range(rounds):
        begin = time.process_time_ns()
        for _ in PromisingJoin(plan, data).run():
            pass
        rates.append(data.order.shape[0] / (time.process_time_ns() - begin) * 1e9)
    return float(median(rates))


@benchmark("ranges", TITLE)
def exact_ranges() -> Result:
    """One pass over both streams from empty directories; both ways are first shown to find the same records."""
    work = workload(SELECTIVITY, SEED, tuples=TUPLES)
    plans = {output: plan_of(output, work.window) for output in ("ranges", "pairs")}
    data = {output: work.joined.input(plan.costs, ranges=output == "ranges") for output, plan in plans.items()}
    ours = OnlineJoin(plans["ranges"], data["ranges"])
    pairs = OnlineJoin(plans["pairs"], data["pairs"])
    records = ours.records()
    stood_for, enumerated = int((records[:, 2] - records[:, 1]).sum()), sum(pairs.blocks())
    if stood_for != enumerated or enumerated != work.joined.pairs:
        raise ConfigError(
            f"bench ranges: needed ranges and pairs that agree with the exact answer of {work.joined.pairs}; "
            f"got {stood_for} and {enumerated}; report this as a bug"
        )
    contestants = [Contestant(NILE, _exhaust(ours.blocks)), Contestant(PAIRS, _exhaust(pairs.blocks))]
    bars = [Bar(PAIRS, ENUMERATING)]
    notes = [
        f"two streams of {TUPLES:,} tuples, selectivity {100 * SELECTIVITY:g} %, a window of 6,000 tuples of each: "
        f"{enumerated:,} pairs in {records.shape[0]:,} records",
        "pairs are fed beforehand, ranges and C read the input where it lies, and outputs are left in place; the whole "
        "operator, which feeds and hands on, is in the figures",
    ]
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(Path(folder))
        if library is None:
            notes.append("no C compiler on this machine, so no plain C loop to compare with")
            result = race("ranges", TITLE, contestants, work=2 * TUPLES, unit="tuples", bars=bars, notes=notes)
        else:
            theirs = CJoin(library, columns_of(data["ranges"]), data["ranges"].keys, work.window, data["ranges"].order)
            if not np.array_equal(records, theirs.records()):
                raise ConfigError(
                    "bench ranges: needed the same records from the kernel and from the C loop; got others; "
                    "report this as a bug"
                )
            contestants.append(Contestant(C_LOOP, _exhaust(theirs.blocks)))
            bars.append(Bar(C_LOOP, PLAIN_C))
            result = race("ranges", TITLE, contestants, work=2 * TUPLES, unit="tuples", bars=bars, notes=notes)
            theirs.close()
    rates = {f"the whole operator, {name}": _operator_rate(plans[name], data[name]) for name in plans}
    figures = {name: f"{rate:,.0f} tuples per second" for name, rate in rates.items()}
    figures["tuple lists for who expands ranges, filled in bulk"] = f"{_filling(data['ranges']):.1f} ns per tuple"
    return replace(result, figures=figures)
