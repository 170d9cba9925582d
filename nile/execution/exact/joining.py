"""Joins over finite inputs: which rows join, and their columns, chunk by chunk.

Streams in one window, or in windows between pairs, go through the window joins of `nile.exact`, in the order in which
combinations complete; anything else is joined input by input, by sorting, with time bounds as part of the look-up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from nile.answers.tabular import refuse_beyond_memory, room_for_answers
from nile.exact.join.chain import ExactJoin, composite_codes
from nile.exact.join.count import count_whole
from nile.exact.join.dense import dense_codes
from nile.exact.join.form import TOLD, Form
from nile.exact.join.shared import run_shared
from nile.exact.join.window_graph import WindowGraph
from nile.exact.join.wjoin import Condition, WindowJoinPlan
from nile.execution.choice import is_chain
from nile.execution.combined import Combined
from nile.execution.exact.parting import computed_keys
from nile.execution.key_columns import equalities, one_key, shared_keys
from nile.execution.shape import Shape
from nile.execution.values import all_of, column_of
from nile.operators.common.partners import pairs_in_order, partners, runs_of, surely_fewer
from nile.operators.common.rows import join_codes
from nile.sql.plan import Constraint, Filter, Join, Plan, Project, Stream, leaves_of
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

__all__ = ["Side", "combinations_of_rows", "in_pairs", "is_text", "joined", "joins_by", "refuse_beyond"]

Array = np.ndarray[Any, Any]
_CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Side:
    """An input: its rows, the time of each (int64 [n] ns, not falling; None of a stored relation) and its window."""

    batch: pa.RecordBatch
    ts: Array | None = None
    window: int | None = None

    def __len__(self) -> int:
        return int(self.batch.num_rows)


def joined(
    node: Join, sides: Sequence[Side], *, algorithm: str = "", strategy: str = "", spent: dict[str, int] | None = None,
    wanted: frozenset[str] | None = None, threads: int | None = None, codes: tuple[Array, ...] | None = None,
    shapes: list[Shape] | None = None,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """The combinations, 65,536 candidates at a time, columns of the inputs one after the other.

    wanted: the columns that are looked at above, beside those of the join's own condition; None: all.

    Every window is one between times: of a combination without constraints that its earlier tuples are still
    valid when the last one comes; a constraint bounds its own two.  algorithm, strategy: of the W-join family
    (`nile.exact.join.wjoin`), "" for its own choice; spent: where its counts and its bytes of state are put.
    threads: how many two streams may be joined on, None for all cores; what comes out does not depend on it.
    codes: of the keys, as `refuse_beyond` gave them; shapes: where it is told what was taken, and what it took.
    Memory: for a window join the windows' content; for others 8 bytes an input and candidate, but for two streams
    without a window and two inputs without a key, whose pairs are found chunk by chunk.
    Raises KeyTypeError, MemoryRefused, ConfigError.
    """
    shape = Shape(hashed=is_text(node))
    if shapes is not None:
        shapes.append(shape)
    yield from shape.watched(_joined(node, sides, shape, algorithm, strategy, spent, wanted, threads, codes))


def _joined(
    node: Join, sides: Sequence[Side], shape: Shape, algorithm: str, strategy: str, spent: dict[str, int] | None,
    wanted: frozenset[str] | None, threads: int | None, codes: tuple[Array, ...] | None,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    on, rest = shared_keys(node)
    graph = _graph(node, sides)
    if graph is None and on and _is_whole(node, sides) and not (algorithm or strategy):
        graph = WindowGraph.whole([side.ts for side in sides if side.ts is not None])
    if graph is not None and (on or not node.equal):
        found = _window_joined(node, sides, shape, graph, on, rest, algorithm, strategy, spent, wanted, threads, codes)
        yield from found
        return
    if algorithm or strategy:
        raise ConfigError(
            f"algorithm: needed a join of streams in one window (or in windows of pairs), on one key or none; got "
            f"{node_inputs(node)}; leave algorithm= and windows= out"
        )
    if _is_chain(node, sides):
        pairs = [_ordered_pair(sides, pair) for pair in node.equal]
        codes = join_codes(pairs, len(sides[0]), len(sides[1]))
        keys = int(max(codes[0].max(initial=0), codes[1].max(initial=0))) + 1
        chain = ExactJoin(sides[0].ts, sides[1].ts, *codes, keys, None, threads)  # type: ignore[arg-type]
        rows = Combined([side.batch for side in sides], node.condition, wanted)
        lists = chain.listed(rows.words)
        shape.form = lists.form
        yield from lists.made(lambda block: rows(block.T), kept=rows.kept)
        return
    shape.form = Form("sorting", "no one key or window of streams to join them by", sum(map(len, sides)))
    if len(sides) == 2 and not node.equal and not node.constraints and _bound(node, sides, 0, 1) is None:
        codes = join_codes(_computed(node, sides), len(sides[0]), len(sides[1]))
        rows = Combined([side.batch for side in sides], node.condition, wanted, numbered=False)
        yield from map(rows, pairs_in_order(codes, [side.ts for side in sides], _CHUNK))
        return
    index = _combinations(node, sides)
    rows = Combined([side.batch for side in sides], node.condition, wanted, numbered=False)
    for begin in range(0, index[0].shape[0], _CHUNK):
        yield rows([one[begin : begin + _CHUNK] for one in index])


def combinations_of_rows(node: Join, sides: Sequence[Side], bases: Sequence[int]) -> list[Array] | None:
    """For each of `bases`, how many combinations every row of that input is in, its condition left aside: int64 [n].

    None where only the combinations tell: more than two inputs in windows, or on different keys.
    Raises KeyTypeError, MemoryRefused.
    """
    if len(sides) == 2:
        both = join_codes([_ordered_pair(sides, pair) for pair in node.equal], len(sides[0]), len(sides[1]))
        return [partners(k, both, [side.ts for side in sides], *_reach(node, sides, k)) for k in bases]
    on, rest = shared_keys(node)
    timed = [side for side in sides if side.ts is not None]
    if node.constraints or rest or any(side.window is not None for side in timed):
        return None
    codes = tuple(np.zeros(len(side), np.int64) for side in sides)
    if on:
        codes = dense_codes(composite_codes([_columns(sides, each) for each in on]))[0]
    return [partners(k, codes, [None] * len(sides)) for k in bases]


def _reach(node: Join, sides: Sequence[Side], k: int) -> tuple[int | None, int | None]:
    """How much older and how much younger than a row of one of two inputs its partner may be."""
    if any(side.ts is None for side in sides):
        return None, None
    if node.constraints:
        window = min(each.window for each in node.constraints)
        return window, window
    return sides[1 - k].window, sides[k].window


def refuse_beyond(
    node: Join, sides: Sequence[Side], width: int, threads: int | None = None
) -> tuple[Array, ...] | None:
    """Raises MemoryRefused where all combinations, `width` bytes each, are more than an answer may take.

    They are counted only where a sample of keys says that they could be so many, and not of more than two inputs in
    windows.  Returns the codes of keys in a window, where it has made them.
    """
    codes = None
    most = room_for_answers() / width
    if math.prod(map(len, sides)) > most:
        on, rest = shared_keys(node)
        told = node.equal if len(sides) == 2 else [] if rest else on
        keys = [[_column(side, next(n for n in pair if _has(side, n))) for pair in told] for side in sides]
        if (len(sides) == 2 or told) and surely_fewer(keys, [len(side) for side in sides], most):
            return None
        older, younger = _reach(node, sides, 0) if len(sides) == 2 else (None, None)
        ts = tuple(side.ts for side in sides if side.ts is not None)
        if on and not rest and len(ts) == 2 and older is not None and older == younger:
            codes = composite_codes([_columns(sides, key) for key in on], threads=threads)
            rows = count_whole(ts, codes, older, threads=threads)
        else:
            counted = combinations_of_rows(node, sides, [0])
            rows = 0 if counted is None else int(counted[0].sum())
        refuse_beyond_memory(rows * width, rows)
    return codes


def node_inputs(node: Join) -> str:
    """A join's inputs and keys in words, for messages."""
    return f"{len(node.inputs)} inputs on {', '.join(f'{a} = {b}' for a, b in node.equal) or 'no key'}"


def _graph(node: Join, sides: Sequence[Side]) -> WindowGraph | None:
    """The windows between streams, where they are windows between pairs."""
    if any(side.ts is None for side in sides):
        return None
    if node.constraints:
        given = node.constraints[: node.given or len(node.constraints)]
        if node.directed:
            return WindowGraph.directed(len(sides), [(each.left, each.right, each.window) for each in given])
        return WindowGraph.of(len(sides), {(each.left, each.right): each.window for each in given})
    windows = {side.window for side in sides}
    only = windows.pop()
    return None if windows or only is None else WindowGraph.uniform(len(sides), only)


def in_pairs(plan: Plan) -> Plan | None:
    """A join of streams in one window, and what selects and projects around it, as one in windows between pairs.

    None where it is no window join of streams: see `joined`.
    """
    if isinstance(plan, Filter | Project):
        below = in_pairs(plan.input)
        return None if below is None else replace(plan, input=below)
    if not isinstance(plan, Join) or (plan.equal and one_key(plan)[0] is None):
        return None
    leaves = leaves_of(plan)
    if not all(isinstance(leaf, Stream) for leaf in leaves) or plan.constraints:
        return plan if plan.constraints else None
    windows = {leaf.window for leaf in leaves if isinstance(leaf, Stream)}
    window = windows.pop()
    if windows or not isinstance(window, int):
        return None
    pairs = tuple(Constraint(i, j, window) for i, j in combinations(range(len(leaves)), 2))
    return replace(plan, constraints=pairs, given=len(pairs))


def _window_joined(
    node: Join, sides: Sequence[Side], shape: Shape, graph: WindowGraph, on: list[tuple[str, ...]],
    rest: list[tuple[str, str]], algorithm: str, strategy: str, spent: dict[str, int] | None,
    wanted: frozenset[str] | None, threads: int | None, codes: tuple[Array, ...] | None,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    condition = all_of(*equalities(node, rest), node.condition)
    join = WindowJoinPlan(graph, Condition("equal" if on else "any"), algorithm, strategy, threads=threads).start()
    if on and codes is None:
        codes = composite_codes([_columns(sides, key) for key in on], threads=threads)
    ts = [side.ts for side in sides if side.ts is not None]
    rows = Combined([side.batch for side in sides], condition, wanted)
    shape.form = Form(join.plan.chosen[0], _why(join.plan), sum(map(len, ts)))
    if codes is None or len(sides) == 2:
        try:
            yield from join.made(ts, codes, lambda block: rows(block.T), kept=rows.kept, words=rows.words)
        finally:  # known once there is a first pair
            shape.form, shape.made = join.form or shape.form, join.completed
    else:
        yield from (rows(block.T) for block in run_shared(join.run, ts, codes))
    if spent is not None:
        spent.update({**join.costs, "memory": join.most_memory})


def _why(plan: WindowJoinPlan) -> str:
    """Why a window join runs by its algorithm."""
    if plan.algorithm:
        return "as asked"
    return "more than two streams of one key" if plan.on.kind == "equal" else "no equal keys to list or to hash"


def is_text(node: Join) -> bool:
    """Whether rows are joined by texts."""
    kinds = {field.name: field.type for each in node.inputs for field in each.fields}
    return any(pa.types.is_string(kinds[a]) or pa.types.is_large_string(kinds[a]) for a, _ in node.equal if a in kinds)


def joins_by(node: Join) -> str:
    """The operator that `joined` runs where none is named, in words; inputs with a time are streams, as they come."""
    leaves = [leaf for each in node.inputs for leaf in leaves_of(each)]
    timed = all(is_chain(each) for each in node.inputs) and all(isinstance(leaf, Stream) for leaf in leaves)
    windows = {leaf.window if isinstance(leaf, Stream) and isinstance(leaf.window, int) else None for leaf in leaves}
    keyed = bool(node.equal) and one_key(node)[0] is not None
    if timed and (node.constraints or windows != {None}) and (node.constraints or len(windows) == 1):
        if keyed or not node.equal:
            return TOLD["chain" if keyed else "few-nested"]
    elif timed and windows == {None} and (keyed or (node.equal and len(node.inputs) == 2)):
        return TOLD["chain"]
    return "joined input by input, by sorting"


def _is_whole(node: Join, sides: Sequence[Side]) -> bool:
    """Whether more than two streams join without a window."""
    return len(sides) > 2 and not node.constraints and all(s.ts is not None and s.window is None for s in sides)


def _is_chain(node: Join, sides: Sequence[Side]) -> bool:
    """Whether two streams join on equal keys, without a window."""
    if len(sides) != 2 or not node.equal or node.constraints or any(side.ts is None for side in sides):
        return False
    return sides[0].window is None and sides[1].window is None


def _computed(node: Join, sides: Sequence[Side]) -> list[tuple[pa.Array, pa.Array]]:
    """What a condition asks to be equal of the rows of two inputs; () where one has no rows to work it out of."""
    if not all(map(len, sides)):
        return []
    return [(column_of(one, sides[0].batch), column_of(other, sides[1].batch)) for one, other in computed_keys(node)]


def _has(side: Side, column: str) -> bool:
    return column in side.batch.schema.names


def _owner(sides: Sequence[Side], column: str) -> int:
    return next(k for k, side in enumerate(sides) if _has(side, column))


def _columns(sides: Sequence[Side], key: Sequence[str]) -> list[pa.Array]:
    """The columns of one part of the key."""
    return [_column(side, name) for side, name in zip(sides, key, strict=True)]


def _column(side: Side, name: str) -> pa.Array:
    return side.batch.column(name)


def _ordered_pair(sides: Sequence[Side], pair: tuple[str, str]) -> tuple[pa.Array, pa.Array]:
    one, other = pair if _owner(sides, pair[0]) == 0 else pair[::-1]
    return _column(sides[0], one), _column(sides[1], other)


def _combinations(node: Join, sides: Sequence[Side]) -> list[Array]:
    """The row of each input in every combination that keys and times allow: int64 [c] each, in order of completion."""
    owners = [(_owner(sides, a), a, _owner(sides, b), b) for a, b in node.equal]
    taken = [0]
    index: dict[int, Array] = {0: np.arange(len(sides[0]))}
    while len(taken) < len(sides):
        left = [k for k in range(len(sides)) if k not in taken]
        linked = [k for k in left if any({i, j} & set(taken) and k in (i, j) for i, _, j, _ in owners)]
        k = (linked or left)[0]
        pairs = []
        for i, a, j, b in owners:
            if k in (i, j) and (i in taken or j in taken):
                other, theirs, mine = (i, a, b) if j == k else (j, b, a)
                pairs.append((_column(sides[other], theirs).take(pa.array(index[other])), _column(sides[k], mine)))
        rows, matched = _step(node, sides, index, k, pairs)
        index = {one: held[rows] for one, held in index.items()}
        index[k] = matched
        taken.append(k)
    keep = _in_time(node, sides, index)
    return _by_completion(sides, [index[k][keep] for k in range(len(sides))])


def _step(
    node: Join, sides: Sequence[Side], index: dict[int, Array], k: int, pairs: list[tuple[pa.Array, pa.Array]]
) -> tuple[Array, Array]:
    """(row among the combinations so far, row of input k) of every match."""
    so_far = index[0].shape[0]
    side = sides[k]
    codes, own = join_codes(pairs, so_far, len(side))
    bounds: list[tuple[Array, Array]] = []
    if side.ts is not None:
        for other, held in index.items():
            their = sides[other].ts
            window = _bound(node, sides, other, k)
            if their is not None and window is not None:
                first = np.searchsorted(side.ts, their[held] - window, side="left")
                bounds.append((first, np.searchsorted(side.ts, their[held] + window, side="right")))
    begin, counts, order = runs_of(codes, own, bounds)
    total = int(counts.sum())
    refuse_beyond_memory(total * 8 * (len(index) + 2), total)
    if int(counts.max(initial=0)) <= 1:  # one row a key at most, as of a relation by its key
        rows = np.flatnonzero(counts)
        return rows, order[begin[rows]]
    rows = np.repeat(np.arange(so_far), counts)
    offset = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, order[np.repeat(begin, counts) + offset]


def _bound(node: Join, sides: Sequence[Side], one: int, other: int) -> int | None:
    """How far apart two inputs' tuples may be at all."""
    if node.constraints:
        return next((each.window for each in node.constraints if {each.left, each.right} == {one, other}), None)
    windows = sides[one].window, sides[other].window
    return None if windows[0] is None or windows[1] is None else max(windows)  # type: ignore[type-var]


def _in_time(node: Join, sides: Sequence[Side], index: dict[int, Array]) -> Array:
    times = {k: side.ts[index[k]] for k, side in enumerate(sides) if side.ts is not None}
    keep = np.ones(index[0].shape[0], bool)
    if node.constraints:
        for each in node.constraints:
            keep &= np.abs(times[each.left] - times[each.right]) <= each.window
        return keep & _directed(node.constraints[: node.given or None], times) if node.directed else keep
    if not times:
        return keep
    last = np.maximum.reduce(list(times.values()))
    for k, ts in times.items():
        window = sides[k].window
        if window is not None:
            keep &= last - ts <= window
    return keep


def _directed(path: Sequence[Constraint], times: dict[int, Array]) -> Array:
    """Whether times do not fall along the path, or do not rise."""
    forth = np.logical_and.reduce([times[each.left] <= times[each.right] for each in path])
    back = np.logical_and.reduce([times[each.left] >= times[each.right] for each in path])
    either: Array = forth | back
    return either


def _by_completion(sides: Sequence[Side], index: list[Array]) -> list[Array]:
    """In the order of the tuples that complete them: (ts, position, arrival)."""
    streams = [k for k, side in enumerate(sides) if side.ts is not None]
    if not streams:
        return index
    times = np.stack([np.asarray(sides[k].ts)[index[k]] for k in streams])
    last = len(streams) - 1 - np.argmax(times[::-1], axis=0)
    row = np.take_along_axis(np.stack([index[k] for k in streams]), last[None], axis=0)[0]
    order = np.lexsort((row, last, times.max(axis=0)))
    return [one[order] for one in index]
