"""The functions of lists: a row of one table each, which feeds reading, types, evaluation and tests.

Names and values are DuckDB's, but that list_distinct and list_intersect keep the order of the first list, and that
list_sum of whole numbers is one of 64 bits, null where it overflows.  A function is null where its list is, unless
`nulls` says that its kernel sees to that.  Cost: O(elements), where order matters O(elements log elements).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from nile.expressions.lists.values import Lists, Numbers, codes
from nile.expressions.tree import Kind
from nile.summaries.errors import MemoryRefused
from nile.summaries.heavy import pa, pc

__all__ = ["LISTS", "SLICE_END", "OfLists"]

Array = Any
"""A pyarrow Array."""
Takes = Literal["list", "element", "integer", "text"]
Gives = Literal["list", "element", "integer", "boolean", "number", "text"]
SLICE_END = 2**63 - 1
"""The end of a slice that has none."""


@dataclass(frozen=True, slots=True)
class OfLists:
    """takes: what the arguments are; "text" is a literal; more: whether the last may come any number of times.

    gives: of what kind the value is; kernel: of Lists for lists and Arrow arrays for the rest.
    of: the kinds of elements that it takes, () all; nulls: whether it has a value of NULL.
    names: how else it is called; examples: over columns l, m (whole numbers), d (doubles), s (texts), b, n, t.
    """

    takes: tuple[Takes, ...]
    gives: Gives
    kernel: Callable[..., Lists | Array]
    examples: tuple[str, ...]
    names: tuple[str, ...] = ()
    of: tuple[Kind, ...] = ()
    more: bool = False
    nulls: bool = False


_MOST = 1 << 26
"""Elements that lists of one batch of rows may have."""
_NUMBER: tuple[Kind, ...] = ("integer", "number")


def _made(*elements: Array) -> Lists:
    n, k = len(elements[0]), len(elements)
    places = (np.arange(k) * n + np.arange(n)[:, None]).ravel()
    return Lists(pa.concat_arrays(elements).take(pa.array(places)), np.full(n, k), np.ones(n, bool))


def _null_where(found: Numbers, null: Numbers) -> Array:
    return pa.array(found, mask=null)


def _length(lists: Lists) -> Array:
    return pa.array(lists.lengths)


def _matched(lists: Lists, element: Array) -> tuple[Numbers, Numbers]:
    """(which elements are the one wanted in their list, null as null; which rows want null)."""
    inside, wanted = codes(lists.values, element)
    return inside == wanted[lists.parents], wanted < 0


def _contains(lists: Lists, element: Array) -> Array:
    same, null = _matched(lists, element)
    return _null_where(np.bincount(lists.parents[same], minlength=len(element)) > 0, null)


def _position(lists: Lists, element: Array) -> Array:
    same, _ = _matched(lists, element)
    places = np.flatnonzero(same)[::-1]  # the first is written last
    found = np.zeros(len(element), np.int64)
    found[lists.parents[places]] = places - lists.starts[lists.parents[places]] + 1
    return _null_where(found, found == 0)


def _known(lists: Lists) -> Lists:
    """Without the elements that are null."""
    return lists.kept(lists.values.is_valid().to_numpy(zero_copy_only=False))


def _reduced(work: Callable[[Numbers, Numbers], Numbers]) -> Callable[[Lists], Array]:
    """An aggregate of the elements that are not null; null of none.  work: of them and where each list begins."""

    def kernel(lists: Lists) -> Array:
        known = _known(lists)
        some = known.lengths > 0
        numbers = known.values.to_numpy(zero_copy_only=False)
        found = np.zeros(some.shape[0], numbers.dtype if numbers.dtype != bool else np.int64)
        if some.any():
            with np.errstate(all="ignore"):
                made = work(numbers, known.starts[some])
            found = found.astype(made.dtype)
            found[some] = made
        return _null_where(found, ~some)

    return kernel


def _sum(lists: Lists) -> Array:
    whole = _reduced(lambda numbers, starts: np.add.reduceat(numbers, starts))(lists)
    if not pa.types.is_integer(lists.values.type):
        return whole
    about = _reduced(lambda numbers, starts: np.add.reduceat(numbers.astype(np.float64), starts))(lists)
    # A sum that wrapped is off by 2^64; of fewer than 2^31 elements the double is not off by a half of that.
    apart = np.abs(whole.to_numpy(zero_copy_only=False).astype(np.float64) - about.to_numpy(zero_copy_only=False))
    return pc.if_else(pa.array(apart < 2.0**63), whole, pa.scalar(None, pa.int64()))


def _average(lists: Lists) -> Array:
    total = _reduced(lambda numbers, starts: np.add.reduceat(numbers.astype(np.float64), starts))(lists)
    count = pa.array(np.maximum(_known(lists).lengths, 1).astype(np.float64))
    return pc.divide(total, count)


_product = _reduced(lambda numbers, starts: np.multiply.reduceat(numbers.astype(np.float64), starts))


def _at(lists: Lists, places: Numbers, there: Numbers) -> Array:
    """One element of each list; null where it is not there."""
    if not len(lists.values):
        return pa.nulls(there.shape[0], lists.values.type)
    return lists.values.take(pa.array(np.where(there, places, 0), mask=~there))


def _ends(descending: bool) -> Callable[[Lists], Array]:
    """The first of the elements in order, or of those that are largest."""

    def kernel(lists: Lists) -> Array:
        known = _in_order(_known(lists), descending)
        return _at(known, known.starts, known.lengths > 0)

    return kernel


def _in_order(lists: Lists, descending: bool) -> Lists:
    """Each list in order, nulls last."""
    (values,) = codes(lists.values)
    key = np.where(values < 0, np.iinfo(np.int64).max, -values if descending else values)
    return lists.taken(np.lexsort((key, lists.parents)), lists.lengths)


def _median(lists: Lists) -> Array:
    known = _in_order(_known(lists), False)
    some = known.lengths > 0
    low = _at(known, known.starts + (known.lengths - 1) // 2, some).cast(pa.float64(), safe=False)
    high = _at(known, known.starts + known.lengths // 2, some).cast(pa.float64(), safe=False)
    half = pc.divide(pc.subtract(high, low), 2.0)
    return pc.if_else(pc.equal(low, high), low, pc.add(low, half))


def _distinct(lists: Lists) -> Lists:
    (values,) = codes(lists.values)
    parents = lists.parents
    first = np.zeros(values.shape[0], bool)
    known = np.flatnonzero(values >= 0)
    pairs = parents[known] * (values.max(initial=0) + 1) + values[known]
    first[known[np.unique(pairs, return_index=True)[1]]] = True
    return lists.kept(first)


def _member(left: Lists, right: Lists) -> Numbers:
    """Which elements of the left lists the right lists of the same rows have; null is in none."""
    one, other = codes(left.values, right.values)
    most = max(one.max(initial=0), other.max(initial=0)) + 1
    theirs = (right.parents * most + other)[other >= 0]
    return np.isin(left.parents * most + one, theirs) & (one >= 0)


def _intersect(left: Lists, right: Lists) -> Lists:
    return _distinct(left.kept(_member(left, right)))


def _has_any(left: Lists, right: Lists) -> Array:
    return pa.array(np.bincount(left.parents[_member(left, right)], minlength=left.lengths.shape[0]) > 0)


def _has_all(left: Lists, right: Lists) -> Array:
    known = _known(right)
    inside = np.bincount(known.parents[_member(known, left)], minlength=left.lengths.shape[0])
    return pa.array(inside == known.lengths)


def _joined(*lists: Lists) -> Lists:
    """Lists of the same row, one behind the other; NULL as an empty one, unless all are."""
    lengths = np.stack([each.lengths for each in lists])
    if (total := int(lengths.sum())) > _MOST:
        raise MemoryRefused(
            f"list_concat(): needed at most {_MOST:,} elements for one batch of rows; got {total:,}; join shorter lists"
        )
    bases = np.cumsum([0, *(len(each.values) for each in lists[:-1])])
    starts = np.stack([each.starts + base for each, base in zip(lists, bases, strict=True)])
    flat, begin = lengths.T.ravel(), starts.T.ravel()
    places = np.arange(flat.sum()) - np.repeat(np.cumsum(flat) - flat, flat) + np.repeat(begin, flat)
    values = pa.concat_arrays([each.values for each in lists]).take(pa.array(places))
    return Lists(values, lengths.sum(axis=0), np.any([each.valid for each in lists], axis=0))


def _appended(lists: Lists, element: Array) -> Lists:
    return _joined(lists, _made(element))


def _prepended(element: Array, lists: Lists) -> Lists:
    return _joined(_made(element), lists)


def _whole(numbers: Array) -> Numbers:
    found: Numbers = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    return found


def _element(lists: Lists, index: Array) -> Array:
    """The index-th from 1, or from the end below 0."""
    at = _whole(index)
    at = np.where(at < 0, lists.lengths + at, at - 1)
    return _at(lists, lists.starts + at, (at >= 0) & (at < lists.lengths))


def _slice(lists: Lists, begin: Array, end: Array) -> Lists:
    """From an index to an index, both in; those below 0 count from the end."""
    first, last = _whole(begin), _whole(end)
    first = np.maximum(np.where(first < 0, lists.lengths + first + 1, first), 1)
    last = np.minimum(np.where(last < 0, lists.lengths + last + 1, last), lists.lengths)
    known = pc.and_(begin.is_valid(), end.is_valid()).to_numpy(zero_copy_only=False)
    lengths = np.where(known, np.maximum(last - first + 1, 0), 0)
    begins = np.repeat(lists.starts + first - 1, lengths)
    places = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths) + begins
    return lists.taken(places, lengths, lists.valid & known)


def _reversed(lists: Lists) -> Lists:
    back = np.repeat(lists.starts * 2 + lists.lengths - 1, lists.lengths) - np.arange(len(lists.values))
    return lists.taken(back, lists.lengths)


def _to_text(lists: Lists, separator: str) -> Array:
    """The texts that are not null, with a separator between them."""
    known = _known(lists)
    nothing = pa.array((known.lengths == 0) & (lists.lengths > 0))
    return pc.if_else(nothing, pa.scalar(None, pa.string()), pc.binary_join(known.array(), separator))


def _last(lists: Lists) -> Array:
    return _at(lists, lists.starts + lists.lengths - 1, lists.lengths > 0)


def _any(lists: Lists) -> Array:
    return _first(_known(lists))


def _first(lists: Lists) -> Array:
    return _at(lists, lists.starts, lists.lengths > 0)


def _both(least: bool) -> Callable[[Lists], Array]:
    """bool_and, bool_or: the least or the greatest truth value."""
    return _ends(not least)


LISTS: Mapping[str, OfLists] = {
    "list_value": OfLists(
        ("element",), "list", _made, ("[n, 2]", "list_value(t, 'x')", "[n, NULL]", "[]"), (), (), True, True
    ),
    "len": OfLists(("list",), "integer", _length, ("len(l)", "length(s)", "cardinality(l)"), ("cardinality",)),
    "list_contains": OfLists(
        ("list", "element"), "boolean", _contains,
        ("list_contains(l, 2)", "array_has(s, 'a')", "list_contains(d, 1)", "2 IN l", "list_contains(l, n)"),
    ),
    "list_position": OfLists(
        ("list", "element"), "integer", _position,
        ("list_position(l, 2)", "list_indexof(s, 'b')", "list_position(l, NULL)"),
        ("list_indexof", "array_indexof"),
    ),
    "list_sum": OfLists(("list",), "element", _sum, ("list_sum(l)", "list_sum(d)"), (), _NUMBER),
    "list_avg": OfLists(("list",), "number", _average, ("list_avg(l)", "list_avg(d)"), (), _NUMBER),
    "list_product": OfLists(("list",), "number", _product, ("list_product(l)",), (), _NUMBER),
    "list_median": OfLists(("list",), "number", _median, ("list_median(l)",), (), _NUMBER),
    "list_min": OfLists(("list",), "element", _ends(False), ("list_min(l)", "list_min(s)", "list_min(d)")),
    "list_max": OfLists(("list",), "element", _ends(True), ("list_max(l)", "list_max(s)", "list_max(d)")),
    "list_count": OfLists(("list",), "integer", lambda v: _length(_known(v)), ("list_count(l)",)),
    "list_first": OfLists(("list",), "element", _first, ("list_first(l)",)),
    "list_last": OfLists(("list",), "element", _last, ("list_last(s)",)),
    "list_any_value": OfLists(("list",), "element", _any, ("list_any_value(l)",)),
    "list_bool_and": OfLists(("list",), "element", _both(True), ("list_bool_and(b)",), (), ("boolean",)),
    "list_bool_or": OfLists(("list",), "element", _both(False), ("list_bool_or(b)",), (), ("boolean",)),
    "list_sort": OfLists(
        ("list",), "list", lambda v: _in_order(v, False), ("list_sort(l)", "list_sort(s)", "list_sort(d)")
    ),
    "list_reverse_sort": OfLists(
        ("list",), "list", lambda v: _in_order(v, True), ("list_reverse_sort(l)", "list_sort(s, 'DESC')")
    ),
    "list_reverse": OfLists(("list",), "list", _reversed, ("list_reverse(l)", "array_reverse(s)")),
    "list_distinct": OfLists(("list",), "list", _distinct, ("list_sort(list_distinct(l))",)),
    "list_unique": OfLists(
        ("list",), "integer", lambda v: _length(_distinct(v)), ("list_unique(l)", "list_unique(d)"), ("array_unique",)
    ),
    "list_intersect": OfLists(
        ("list", "list"), "list", _intersect, ("list_sort(list_intersect(l, m))",), ("array_intersect",),
        (), False, True,
    ),
    "list_has_any": OfLists(("list", "list"), "boolean", _has_any, ("list_has_any(l, m)", "l && m")),
    "list_has_all": OfLists(
        ("list", "list"), "boolean", _has_all, ("list_has_all(l, m)", "list_has_all(l, [1])"), ("array_has_all",)
    ),
    "list_concat": OfLists(
        ("list", "list"), "list", _joined, ("list_concat(l, m)", "list_concat(l, m, l)"), ("list_cat", "array_cat"),
        (), True, True,
    ),
    "list_append": OfLists(
        ("list", "element"), "list", _appended, ("list_append(l, n)",), ("array_push_back",), (), False, True
    ),
    "list_prepend": OfLists(
        ("element", "list"), "list", _prepended, ("list_prepend(n, l)",), (), (), False, True
    ),
    "list_slice": OfLists(
        ("list", "integer", "integer"), "list", _slice,
        ("l[1:2]", "l[2:]", "l[:-2]", "s[-2:]", "list_slice(l, n, 3)", "l[0:1]"),
    ),
    "list_extract": OfLists(
        ("list", "integer"), "element", _element,
        ("l[1]", "l[-1]", "s[2]", "l[0]", "l[n]", "list_extract(l, n)"), ("list_element", "array_extract"),
    ),
    "array_to_string": OfLists(
        ("list", "text"), "text", _to_text, ("array_to_string(s, '-')", "array_to_string(l, ',')"), (),
    ),
}  # fmt: skip
