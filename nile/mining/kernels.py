"""Kernels of mining: each reads a series once, and what it finds does not depend on where batches are cut."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import allocating_kernel

__all__ = ["clustered", "peaks", "profiled", "smoothed"]

Array = np.ndarray[Any, Any]


@allocating_kernel
def smoothed(values: Array, weights: Array, begin: int, end: int) -> Array:
    """Weighted means around places begin to end of values, with the weights of what is there: float64 [end - begin].

    weights: [2 reach + 1].
    """
    reach = weights.shape[0] // 2
    found = np.empty(max(end - begin, 0))
    for k in range(begin, end):
        total, weight = 0.0, 0.0
        for j in range(max(k - reach, 0), min(k + reach + 1, values.shape[0])):
            total += weights[j - k + reach] * values[j]
            weight += weights[j - k + reach]
        found[k - begin] = total / weight
    return found


@allocating_kernel
def peaks(series: Array, begin: int, half: int, ended: bool) -> Any:
    """Local maxima from place `begin` on that are decided: (places, prominences, the place that decides each,
    how many values from the front nobody needs any more, where to go on).

    A local maximum is a place, or the middle of a plateau, with lower ones on both sides; its prominence is its height
    above the higher of the two lowest values, to the left and to the right, before a higher one, within half.
    ended: no values will follow.
    """
    n = series.shape[0]
    places, prominences, decided = np.empty(n, np.int64), np.empty(n), np.empty(n, np.int64)
    count, k = 0, begin
    while k < n - 1:
        if not series[k - 1] < series[k]:
            k += 1
            continue
        last = k
        while last < n - 1 and series[last + 1] == series[k]:
            last += 1
        if last == n - 1:
            break  # the plateau may go on
        if series[last + 1] > series[k]:
            k = last + 1
            continue
        middle = (k + last) // 2
        by = max(middle + half, last + 1)
        if by > n - 1 and not ended:
            break
        top, left, right = series[middle], series[middle], series[middle]
        j = middle
        while j >= max(middle - half, 0) and series[j] <= top:
            left = min(left, series[j])
            j -= 1
        j = middle
        while j <= min(middle + half, n - 1) and series[j] <= top:
            right = min(right, series[j])
            j += 1
        places[count], prominences[count], decided[count] = middle, top - max(left, right), by
        count += 1
        k = last + 1
    k = min(k, max(n - 1, 1))
    return places[:count], prominences[:count], decided[:count], max(k - half - 1, 0), k


@allocating_kernel
def profiled(
    series: Array, begin: int, length: int, span: int, apart: int, dots: Array, means: Array, deviations: Array
) -> Any:
    """Of each subsequence that ends at place `begin` or later its nearest one before it: (distances, places).

    Distances are Euclidean, of subsequences of mean 0 and deviation 1; places those of its first value; -1: there is
    none.  Only those whose first values lie apart to span before its own are looked at.  dots: of the last subsequence
    with the one that began j earlier, [span + 1]; means, deviations: of each, by the place of its first value; all
    three are brought up to date.
    A constant subsequence is at 0 from another and at sqrt(length) from all that vary.
    Source: Yeh and others, matrix profile I, with the dot products of STOMPI (section 3 of matrix profile II).
    """
    n = series.shape[0]
    count = max(n - begin, 0)
    distances, nearest = np.full(count, np.inf), np.full(count, -1, np.int64)
    for s in range(max(begin - length + 1, 0), n - length + 1):
        mean, varies = 0.0, False
        for j in range(s, s + length):
            mean += series[j]
            varies = varies or series[j] != series[s]
        mean /= length
        spread = 0.0
        for j in range(s, s + length):
            spread += (series[j] - mean) ** 2
        means[s], deviations[s] = mean, np.sqrt(spread / length) if varies else 0.0
    for end in range(max(begin, length - 1), n):
        s = end - length + 1
        # The lag j of this one is the lag j of the last one, both ends moved on by one.
        for lag in range(1, min(s, span) + 1):
            if lag == s:  # the first subsequence of all: nothing to go on from
                total = 0.0
                for j in range(length):
                    total += series[j] * series[s + j]
                dots[lag] = total
            else:
                gone = series[s - 1] * series[s - 1 - lag]
                dots[lag] += series[end] * series[end - lag] - gone
        best = np.inf
        for lag in range(apart, min(s, span) + 1):
            other = s - lag
            scale = deviations[s] * deviations[other]
            if scale > 0.0:
                likeness = (dots[lag] - length * means[s] * means[other]) / (length * scale)
                squared = 2.0 * length * (1.0 - min(max(likeness, -1.0), 1.0))
            else:
                squared = 0.0 if deviations[s] == deviations[other] else float(length)
            if squared < best:
                best, nearest[end - begin] = squared, other
        distances[end - begin] = np.sqrt(best)
    return distances, nearest


@allocating_kernel
def clustered(
    values: Array, ts: Array, usable: Array, radius: float, half_life: float, most: int,
    centres: Array, weights: Array, times: Array, ids: Array, counts: Array,
) -> Any:  # fmt: skip
    """The cluster of each list, 0 for none, its distance from the centre before (-1: it is the first) and its weight.

    values: [n, width]; ts, half_life: ns; usable: bool [n], whether it belongs to any.  centres: [room, width],
    weights: as they were at times: [room]; ids: [room]; counts: how many there are and how many there have been.
    The last five are brought up to date; there is room for all that may begin.
    """
    n, width = values.shape
    which, distances, heavy = np.zeros(n, np.int64), np.full(n, -1.0), np.zeros(n)
    for k in range(n):
        if not usable[k]:
            continue
        best, nearest = np.inf, -1
        for c in range(counts[0]):
            squared = 0.0
            for j in range(width):
                squared += (values[k, j] - centres[c, j]) ** 2
            if squared < best:
                best, nearest = squared, c
        distance = np.sqrt(best)
        if nearest >= 0 and distance <= radius:
            c = nearest
            weights[c] = weights[c] * 2.0 ** (-(ts[k] - times[c]) / half_life) + 1.0
            for j in range(width):
                centres[c, j] += (values[k, j] - centres[c, j]) / weights[c]
            distances[k] = distance
        else:
            c = counts[0]
            if c == most:
                lightest = np.inf
                for other in range(most):
                    weight = weights[other] * 2.0 ** (-(ts[k] - times[other]) / half_life)
                    if weight < lightest or (weight == lightest and ids[other] < ids[c]):
                        lightest, c = weight, other
            else:
                counts[0] += 1
            counts[1] += 1
            ids[c], weights[c] = counts[1], 1.0
            for j in range(width):
                centres[c, j] = values[k, j]
        times[c] = ts[k]
        which[k], heavy[k] = ids[c], weights[c]
    return which, distances, heavy
