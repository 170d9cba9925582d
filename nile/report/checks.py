"""What must hold in every run for its numbers to be trusted, checked on the records themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nile.report.runs import Record, number
from nile.report.wording import grouped_digits, percent, times

__all__ = ["Check", "checks"]

OVERSPENT = 1.000001
"""A run has overspent when it used more than this much of its grant; less is rounding."""

OVERSPENT_BY_CLOCK = 1.05
"""The same under the wall clock, whose quanta cannot be divided."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at.  holds: True, False, or None when there was nothing to look at."""

    name: str
    holds: bool | None
    found: str


def checks(records: Sequence[Record]) -> list[Check]:
    """All checks over all records of a report."""
    return [_false_pairs(records), _accounting(records), _spent(records), _full(records), _coverage(records)]


def _false_pairs(records: Sequence[Record]) -> Check:
    counts = [count for record in records if (count := number(record, "false_pairs")) is not None]
    wrong = sum(count > 0 for count in counts)
    if not counts:
        return Check("No false pairs", None, "No run says how many false pairs it put out.")
    if not wrong:
        return Check(
            "No false pairs",
            True,
            f"None of the {len(counts)} runs put out a pair twice, or one that is not in the exact answer.",
        )
    return Check(
        "No false pairs",
        False,
        f"{wrong} of {len(counts)} runs put out {grouped_digits(sum(counts))} pairs that are repeats or not in "
        "the exact answer: a fault of the engine. Do not trust the other figures of those runs.",
    )


def _accounting(records: Sequence[Record]) -> Check:
    name = "Every tuple is accounted for"
    books = [book for record in records for book in _books(record.get("accounting"))]
    if not books:
        return Check(name, None, "No run carries its accounting.")
    open_books = sum(book[0] != sum(book[1:]) for book in books)
    late, shed, rejected = (max(book[place] for book in books) for place in (2, 3, 4))
    if open_books:
        found = f"In {open_books} of {len(books)} books tuples in are not applied + late + shed + rejected."
        return Check(name, False, found)
    return Check(
        name,
        True,
        f"In = applied + late + shed + rejected in all {len(books)} books; at most {grouped_digits(late)} late, "
        f"{grouped_digits(shed)} shed and {grouped_digits(rejected)} rejected in one of them.",
    )


def _books(accounting: Any) -> Iterator[tuple[float, ...]]:
    """(in, applied, late, shed, rejected) of every stream the accounting tells of."""
    if not isinstance(accounting, Mapping):
        return
    names = ("tuples_in", "applied", "late", "shed", "rejected")
    if all(number(accounting, name) is not None for name in names):
        yield tuple(number(accounting, name) or 0.0 for name in names)
    for part in accounting.values():
        yield from _books(part)


def _spent(records: Sequence[Record]) -> Check:
    name = "No run spent more than its budget"
    shares = [
        (spent / budget, record.get("reproducible") is False)
        for record in records
        if (spent := number(record, "budget_spent")) is not None and (budget := number(record, "budget"))
    ]
    if not shares:
        return Check(name, None, "No run says what it spent.")
    over = sum(share > (OVERSPENT_BY_CLOCK if clocked else OVERSPENT) for share, clocked in shares)
    least, most = min(shares)[0], max(shares)[0]
    by_clock = (
        f" By the clock, up to {percent(OVERSPENT_BY_CLOCK - 1)} more is allowed, since it is looked "
        "at in quanta; a budget below what refusing every tuple takes cannot be kept."
    )
    note = by_clock if any(clocked for _, clocked in shares) else ""
    if over:
        return Check(
            name, False, f"{over} of {len(shares)} runs spent more, up to {times(most)} times their budget.{note}"
        )
    return Check(name, True, f"The {len(shares)} runs spent from {percent(least)} to {percent(most)} of it.{note}")


def _full(records: Sequence[Record]) -> Check:
    name = "A full budget finds everything"
    wanted = {"desc": "recall", "weighted": "recall", "asc": "outlier_recall"}
    full = [
        found
        for record in records
        if record.get("guide") is not None
        and (number(record, "budget") or 0) >= 1
        and record.get("budget_unit") in (None, "fraction")
        and record.get("replay") in (None, "none")
        and not record.get("forgetting")
        and (found := number(record, wanted.get(str(record.get("preference")), ""))) is not None
    ]
    if not full:
        return Check(name, None, "No run of Nile had the whole budget without pacing and forgetting.")
    short = sum(found < 1 for found in full)
    if short:
        return Check(name, False, f"{short} of {len(full)} runs of Nile missed some, down to {percent(min(full))}.")
    return Check(name, True, f"All {len(full)} runs of Nile with the whole budget found all pairs (asc: all outliers).")


def _coverage(records: Sequence[Record]) -> Check:
    name = "Nothing was forgotten"
    shares = [share for record in records if (share := number(record, "coverage")) is not None]
    if not shares:
        return Check(name, None, "No run says how much of the window it kept.")
    short = sum(share < 1 for share in shares)
    if short:
        found = (
            f"{short} of {len(shares)} runs had forgotten part of the window: coverage down to {percent(min(shares))}."
        )
        return Check(name, False, found)
    return Check(name, True, f"All {len(shares)} runs kept all that their windows reach.")
