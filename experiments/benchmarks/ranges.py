"""How fast the exact range join is, beside enumerating the same pairs and beside a plain loop in C.

The C loop does what the kernel does on the same streams: lists that grow online in one arena and move when they
are full, an arena that grows, a window start that moves on in each list, one record of a
range for each tuple with matches.  It is compiled when the benchmark runs, and left out where there is no compiler.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from experiments.benchmarks.accuracy_streams import workload
from experiments.benchmarks.harness import Bar, Contestant, Result, benchmark, race
from nile.operators import state as st
from nile.operators.join import JoinInput, PromisingJoin
from nile.operators.plan import JoinPlan, default_spec
from preferences.budget import Budget
from pyramid.arrays import PLACED, TOP
from summaries.errors import ConfigError

__all__ = ["C_SOURCE", "CJoin", "OnlineJoin", "compiled", "exact_ranges"]

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

typedef struct { int64_t place, room, held, front; } List;
typedef struct { const int64_t *ts; const int32_t *code; List *lists; int64_t *arena; int64_t length, top, next; } Side;
typedef struct { int64_t *first, *second, *third; double *weight; int64_t room; } Output;
typedef struct { Side side[2]; int64_t keys, now; } Join;

static void append(Side *s, int32_t code, int64_t ordinal) {
    List *l = s->lists + code;
    if (l->held == l->room) {
        int64_t room = l->room ? 2 * l->room : 4;
        if (s->top + room > s->length) {
            s->length = 2 * (s->length + room);
            s->arena = realloc(s->arena, s->length * sizeof *s->arena);
        }
        memcpy(s->arena + s->top, s->arena + l->place, l->held * sizeof *s->arena);
        l->place = s->top;
        l->room = room;
        s->top += room;
    }
    s->arena[l->place + l->held++] = ordinal;
}

Join *join_new(const int64_t *left_ts, const int32_t *left, const int64_t *right_ts, const int32_t *right,
               int64_t keys) {
    Join *j = calloc(1, sizeof *j);
    j->keys = keys;
    j->side[0].ts = left_ts; j->side[0].code = left;
    j->side[1].ts = right_ts; j->side[1].code = right;
    for (int s = 0; s < 2; s++) {
        j->side[s].lists = calloc(keys, sizeof(List));
        j->side[s].length = 4096;
        j->side[s].arena = malloc(4096 * sizeof(int64_t));
    }
    return j;
}

void join_reset(Join *j) {
    j->now = 0;
    for (int s = 0; s < 2; s++) {
        memset(j->side[s].lists, 0, j->keys * sizeof(List));
        j->side[s].top = j->side[s].next = 0;
    }
}

void join_free(Join *j) {
    for (int s = 0; s < 2; s++) { free(j->side[s].lists); free(j->side[s].arena); }
    free(j);
}

/* Runs to arrival `end` or until the output is full; returns how many records were written. */
int64_t join_run(Join *j, const int8_t *order, int64_t end, int64_t window, Output *out) {
    int64_t at = 0, now = j->now;
    for (; now < end && at < out->room; now++) {
        int side = order[now];
        Side *own = j->side + side, *other = j->side + (1 - side);
        int64_t ordinal = own->next++;
        int32_t code = own->code[ordinal];
        if (code < 0) continue;
        append(own, code, ordinal);
        int64_t since = own->ts[ordinal] - window;
        List *l = other->lists + code;
        const int64_t *entries = other->arena + l->place;
        int64_t low = l->front;
        while (low < l->held && other->ts[entries[low]] < since) low++;
        l->front = low;
        if (low < l->held) {
            out->first[at] = 2 * ordinal + side;
            out->second[at] = low;
            out->third[at] = l->held;
            out->weight[at] = 1.0;
            at++;
        }
    }
    j->now = now;
    return at;
}
"""


class _OutputOfC(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("first", "second", "third", "weight")] + [("room", ctypes.c_int64)]


class CJoin:
    """The plain C loop over one input.  library: from `compiled`; `records` runs it from nothing."""

    def __init__(self, library: ctypes.CDLL, data: JoinInput, window: int) -> None:
        self._library = library
        self._data = data
        self._window = window
        self._columns = [
            np.ascontiguousarray(c) for c in (data.left_ts, data.left.codes, data.right_ts, data.right.codes)
        ]
        self._order = np.ascontiguousarray(data.order)
        self._out = [np.empty(ROOM, np.int64) for _ in range(3)] + [np.empty(ROOM)]
        self._output = _OutputOfC(*[column.ctypes.data for column in self._out], ROOM)
        library.join_new.restype = ctypes.c_void_p
        library.join_run.restype = ctypes.c_int64
        self._join = ctypes.c_void_p(
            library.join_new(*[ctypes.c_void_p(c.ctypes.data) for c in self._columns], ctypes.c_int64(data.keys))
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

    def close(self) -> None:
        """Free what the C side holds."""
        self._library.join_free(self._join)


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
        for store in join.stores:
            store.side.lists[:] = 0
            store.side.meta[[TOP, PLACED]] = 0
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
        "tuples are fed beforehand and outputs are left in place; the whole operator, which feeds and hands on, is in "
        "the figures",
    ]
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(Path(folder))
        if library is None:
            notes.append("no C compiler on this machine, so no plain C loop to compare with")
            result = race("ranges", TITLE, contestants, work=2 * TUPLES, unit="tuples", bars=bars, notes=notes)
        else:
            theirs = CJoin(library, data["ranges"], work.window)
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
    return replace(result, figures={name: f"{rate:,.0f} tuples a second" for name, rate in rates.items()})
