"""Metrics of an approximate answer, against the exact one.

Numpy only, and nothing of the engine: what judges an answer shares no code with what made it.  Sums are taken
in integers or rounded once, so a score is the same bit for bit on every machine and in any order of output.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nile.report.histograms import BINS, Binned, Histogram, ideal_mse
from nile.summaries.errors import ConfigError, SourceError, SourceMissing
from nile.summaries.heavy import pa, pq

__all__ = ["RARE_SHARE", "ExactPairs", "Obtained", "Score", "histograms", "score"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

RARE_SHARE = 20
"""The paper's outliers are the keys in the least 1 / RARE_SHARE (5 %) of whole-run frequencies."""

_COLUMNS = ("left_ordinal", "right_ordinal", "key_rank", "age", "window_count", "frequency")
"""What the exact join writes, in the order of the fields of `ExactPairs`."""

_NS = 1_000_000_000


@dataclass(frozen=True)
class ExactPairs:
    """Every pair of the exact join, one row each, in any order.

    left, right: int64 ordinals, which together name the pair.  key_rank: rank of the key among the sorted
    distinct keys of the answer, so dense from 0.  age: |ts1 - ts2| in ns.  window_count: tuples of both
    streams with that key up to the pair's later tuple and inside its window.  frequency: tuples with that
    key in the whole run, both streams.  What scores share is made once, at the first: O(N log N), and kept.
    Raises SourceError for columns of unequal length, a repeated pair, or ranks that are not dense.
    """

    left: Ints
    right: Ints
    key_rank: Ints
    age: Ints
    window_count: Ints
    frequency: Ints

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.int64))
        _same_length("exact pairs", {name: getattr(self, name) for name in self.__dataclass_fields__})
        if len(self) and (self.age.min() < 0 or not np.array_equal(self._ranks, np.arange(self.keys))):
            raise SourceError(
                "exact pairs: needed ages >= 0 and key ranks dense from 0, got ages from "
                f"{self.age.min()} and {len(self._ranks)} ranks from {self._ranks[0]} to {self._ranks[-1]}; "
                "rank the distinct keys of the answer itself"
            )

    @classmethod
    def read(cls, path: Path | str) -> ExactPairs:
        """The exact answer that Spark wrote: one Parquet file, or a directory of part files.

        Raises SourceMissing when nothing is there, SourceError when it is no exact answer.
        """
        where = Path(path)
        if not where.exists():
            raise SourceMissing(f"exact answer {where}: no such file or directory; compute it first")
        needed = f"exact answer {where}: needed Parquet with whole columns {', '.join(_COLUMNS)}"
        try:
            table = pq.read_table(where, columns=list(_COLUMNS))
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{needed}; got: {str(error).splitlines()[0]}") from None
        for name in _COLUMNS:
            if name not in table.column_names:
                raise SourceError(f"{needed}; {name} is missing")
            if table.column(name).null_count:
                raise SourceError(f"{needed}; {name} has {table.column(name).null_count} nulls")
        return cls(*(table.column(name).to_numpy() for name in _COLUMNS))

    def __len__(self) -> int:
        return len(self.left)

    @property
    def keys(self) -> int:
        """Distinct keys in the answer."""
        return len(self._ranks)

    @cached_property
    def _ranks(self) -> Ints:
        return np.unique(self.key_rank)

    @cached_property
    def _index(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Distinct lefts, distinct rights, the sorted pair ids over both, and the row of each id."""
        lefts, left_at = np.unique(self.left, return_inverse=True)
        rights, right_at = np.unique(self.right, return_inverse=True)
        ids = left_at.astype(np.int64) * len(rights) + right_at  # below rows**2: no overflow
        rows = np.argsort(ids, kind="stable")
        ids = ids[rows]
        twice = np.flatnonzero(ids[1:] == ids[:-1])
        if len(twice):
            row = rows[twice[0]]
            raise SourceError(
                f"exact pairs: needed each pair once, got ({self.left[row]}, {self.right[row]}) again; "
                "the exact join itself is wrong"
            )
        return lefts, rights, ids, rows

    def rows_of(self, left: Ints, right: Ints) -> Ints:
        """Row of each pair (left, right) in the exact answer, -1 where it is not there.  O(n log N)."""
        if not len(self):
            return np.full(len(left), -1, dtype=np.int64)
        lefts, rights, ids, rows = self._index
        left_at, left_known = _places(lefts, left)
        right_at, right_known = _places(rights, right)
        wanted = left_at * len(rights) + right_at
        order = np.argsort(wanted)  # in order, a search finds its pages in the cache: a quarter of the time
        at, known = _places(ids, wanted[order])
        found = np.empty(len(wanted), dtype=np.int64)
        found[order] = np.where(known, rows[at], -1)
        return np.where(left_known & right_known, found, -1)

    def outliers(self, cap: int) -> Bools:
        """Which pairs are outliers: at most `cap` tuples of their key in the window at their completion."""
        return self.window_count <= cap

    @cached_property
    def paper_outliers(self) -> Bools:
        """Which pairs are outliers as the paper counts them (section 5.2, item 3), read precisely.

        The paper says "its frequency is in the least 5 % percentile of tuple frequencies".  Here: take the
        D distinct keys of the exact answer (no other key can be output), sort their whole-run frequencies,
        and let the threshold be the one at place ceil(D / 20), counted from 1 (the nearest-rank 5th
        percentile).  A key whose frequency is at most the threshold is rare, and so are all its pairs.
        Frequency alone decides: keys tied with the threshold are all in, so the rare keys can be more than
        5 %, and are never none.
        """
        if not len(self):
            return np.zeros(0, dtype=np.bool_)
        first = np.unique(self.key_rank, return_index=True)[1]
        frequencies = np.sort(self.frequency[first])
        threshold = frequencies[-(-self.keys // RARE_SHARE) - 1]
        return np.asarray(self.frequency <= threshold, dtype=np.bool_)

    @cached_property
    def mean_age_s(self) -> float | None:
        """Mean age in seconds."""
        return _mean_seconds(self.age)

    @cached_property
    def by_key(self) -> Binned:
        """Each pair by its key: equal ranges of the rank, bin = floor(BINS * rank / distinct keys)."""
        return Binned.of(self.key_rank * BINS // max(self.keys, 1))

    def by_age(self, window: int | None) -> Binned:
        """Each pair by its age over [0, window], or [0, largest age] when `window` is None.

        bin = min(BINS - 1, floor(BINS * age / window)), in integers.  Kept for each window asked for.  Raises
        SourceError for an age beyond the window.
        """
        if window not in self._by_age:
            self._by_age[window] = Binned.of(self._age_bins(window))
        return self._by_age[window]

    @cached_property
    def _by_age(self) -> dict[int | None, Binned]:
        return {}

    def _age_bins(self, window: int | None) -> Ints:
        oldest = int(self.age.max(initial=0))
        if window is None:
            width = oldest
        elif oldest <= window:
            width = window
        else:
            raise SourceError(
                f"exact pairs: needed ages within the window of {window} ns, got {oldest} ns; "
                "score with the window the exact join used"
            )
        if width == 0:
            return np.zeros(len(self), dtype=np.int64)
        edges = [-(-i * width // BINS) for i in range(1, BINS)]  # Python integers: BINS * age may pass 2**63
        return np.searchsorted(np.array(edges, dtype=np.int64), self.age, side="right").astype(np.int64)


@dataclass(frozen=True)
class Obtained:
    """The pairs a method output, in output order: left, right int64 ordinals; weight float64, finite and > 0.

    A pair is output once; later copies are repeats.  Weights are 1 but for samples (1 / inclusion
    probability). Raises SourceError for columns of unequal length or a weight that is no positive number.
    """

    left: Ints
    right: Ints
    weight: Floats

    def __post_init__(self) -> None:
        object.__setattr__(self, "left", np.asarray(self.left, dtype=np.int64))
        object.__setattr__(self, "right", np.asarray(self.right, dtype=np.int64))
        object.__setattr__(self, "weight", np.asarray(self.weight, dtype=np.float64))
        _same_length("obtained pairs", {"left": self.left, "right": self.right, "weight": self.weight})
        bad = np.flatnonzero(~(np.isfinite(self.weight) & (self.weight > 0)))
        if len(bad):
            raise SourceError(
                f"obtained pairs: needed finite weights > 0, got {self.weight[bad[0]]} at row {bad[0]}; "
                "weight a pair by 1 / its inclusion probability"
            )

    def __len__(self) -> int:
        return len(self.left)


@dataclass(frozen=True, slots=True)
class Score:
    """One answer against the exact one.  A figure that does not exist is None, never NaN.

    pairs: distinct exact pairs obtained; recall = pairs / exact_pairs.  false_pairs: outputs that are a
    repeat or no pair of the exact answer, so pairs + false_pairs = outputs.  hist_mse_*: lower is more
    faithful; *_ideal is what a uniform sample of as many pairs would have on average.  outlier_precision:
    outliers among all outputs, repeats and false pairs counting against; outlier_recall: obtained outliers
    among all outliers; *_paper: the same for `ExactPairs.paper_outliers`.  mean_age_s: seconds, over the
    distinct pairs obtained, unweighted.
    """

    exact_pairs: int
    pairs: int
    recall: float | None
    false_pairs: int
    hist_mse_key: float | None
    hist_mse_age: float | None
    hist_mse_key_ideal: float | None
    hist_mse_age_ideal: float | None
    outliers: int
    outlier_precision: float | None
    outlier_recall: float | None
    outliers_paper: int
    outlier_precision_paper: float | None
    outlier_recall_paper: float | None
    mean_age_s: float | None
    exact_mean_age_s: float | None

    def record(self) -> dict[str, Any]:
        """The fields by name, as they stand in a record of report.json."""
        return asdict(self)


def score(exact: ExactPairs, obtained: Obtained, *, window: int | None, outlier_cap: int) -> Score:
    """Score `obtained` against `exact`.  `window` in ns, None for the whole stream.  O((N + n) log N).

    Histograms are over the distinct true pairs obtained, each with the weight of its first output: a pair
    outside the exact answer has no key rank to be binned by, and shows in `false_pairs`. Raises ConfigError
    for a window or cap that is not positive, SourceError for pairs that contradict each other. Source:
    promising tuples, section 5.2; unlike there the window's own counts define an outlier, since whole-run
    counts punish drift.
    """
    if window is not None and window <= 0:
        raise ConfigError(f"window: needed a positive number of ns or None, got {window}")
    if outlier_cap < 1:
        raise ConfigError(f"outlier_cap: needed a whole number >= 1, got {outlier_cap}")
    hits, weights = _hits(exact, obtained)
    total, pairs, outputs = len(exact), len(hits), len(obtained)
    by_key, by_age = exact.by_key, exact.by_age(window)
    rare, rare_paper = exact.outliers(outlier_cap), exact.paper_outliers
    found, found_paper = int(rare[hits].sum()), int(rare_paper[hits].sum())
    return Score(
        exact_pairs=total,
        pairs=pairs,
        recall=_ratio(pairs, total),
        false_pairs=outputs - pairs,
        hist_mse_key=by_key.found(hits, weights).mse,
        hist_mse_age=by_age.found(hits, weights).mse,
        hist_mse_key_ideal=ideal_mse(by_key.counts, pairs),
        hist_mse_age_ideal=ideal_mse(by_age.counts, pairs),
        outliers=int(rare.sum()),
        outlier_precision=_ratio(found, outputs),
        outlier_recall=_ratio(found, int(rare.sum())),
        outliers_paper=int(rare_paper.sum()),
        outlier_precision_paper=_ratio(found_paper, outputs),
        outlier_recall_paper=_ratio(found_paper, int(rare_paper.sum())),
        mean_age_s=_mean_seconds(exact.age[hits]),
        exact_mean_age_s=exact.mean_age_s,
    )


def histograms(exact: ExactPairs, obtained: Obtained, *, window: int | None) -> tuple[Histogram, Histogram]:
    """By key and by age, as `score` compares them.  Raises SourceError."""
    hits, weights = _hits(exact, obtained)
    return exact.by_key.found(hits, weights), exact.by_age(window).found(hits, weights)


def _hits(exact: ExactPairs, obtained: Obtained) -> tuple[Ints, Floats]:
    """The distinct rows of the exact answer that were obtained, and the weight of the first output of each."""
    rows = exact.rows_of(obtained.left, obtained.right)
    true_at = np.flatnonzero(rows >= 0)[::-1]
    weight_of = np.zeros(len(exact))
    weight_of[rows[true_at]] = obtained.weight[true_at]  # the last one written stays: the first output
    hits = np.flatnonzero(weight_of)  # weights are above 0
    return hits, weight_of[hits]


def _mean_seconds(ages: Ints) -> float | None:
    """Mean in seconds, summed in integers: the halves are summed apart, for a sum of ns can pass 2**63."""
    if not len(ages):
        return None
    whole = (int((ages >> 32).sum()) << 32) + int((ages & 0xFFFFFFFF).sum())
    return whole / (len(ages) * _NS)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _places(values: Ints, wanted: Ints) -> tuple[Ints, Bools]:
    """Place of each wanted value in the sorted distinct `values` (a valid one even if absent), and if it is there."""
    least, most = int(values[0]), int(values[-1])
    if most - least > 4 * len(values):
        at = np.minimum(np.searchsorted(values, wanted), len(values) - 1).astype(np.int64)
        return at, values[at] == wanted
    table = np.full(most - least + 1, -1, dtype=np.int64)  # ordinals: nearly all of them are there
    table[values - least] = np.arange(len(values))
    inside = (wanted >= least) & (wanted <= most)
    at = table[np.where(inside, wanted, least) - least]
    return np.maximum(at, 0), inside & (at >= 0)


def _same_length(what: str, columns: dict[str, NDArray[Any]]) -> None:
    """Raise SourceError unless the columns are one-dimensional and equally long."""
    shapes = {name: column.shape for name, column in columns.items()}
    if len(set(shapes.values())) != 1 or len(next(iter(shapes.values()))) != 1:
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise SourceError(f"{what}: needed columns of one length, got {told}")
