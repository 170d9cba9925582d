"""Numbers and lists as a person reads them: `38.2 %`, `2.4 × 10⁻⁴`, `5 %, 10 % and 20 %`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nile.base.durations import format_duration

__all__ = [
    "Amount",
    "asked",
    "at_budgets",
    "duration",
    "grouped_digits",
    "listing",
    "percent",
    "plain_number",
    "shown",
    "small",
    "tick",
    "times",
]

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SPACE = "\N{NO-BREAK SPACE}"
_THIN = "\N{NARROW NO-BREAK SPACE}"
_MANY = 10.0  # times the exact cost; more reads badly in per cent


class Amount(float):
    """A budget with its unit, one of `nile.preferences.budget.BUDGET_UNITS`; a plain float is a fraction.

    text: how any other place on an axis is written, where it is no budget.
    """

    unit: str = "fraction"
    text: str | None = None

    @classmethod
    def of(cls, value: float, unit: str) -> Amount:
        """`value` in `unit`."""
        amount = cls(value)
        amount.unit = unit
        return amount

    @classmethod
    def named(cls, value: float, text: str) -> Amount:
        """`value`, written as `text`."""
        amount = cls(value)
        amount.text = text
        return amount


def asked(budget: float) -> str:
    """A budget in a sentence: `20 %`, `20 % of a core`, `1,000 outputs`, `2.5 µs of CPU per tuple`."""
    after = {
        "share": "of a core", "seconds": "of CPU", "seconds_per_tuple": "of CPU per tuple", "outputs": "outputs",
        "deadline": "by the clock",
    }  # fmt: skip
    unit, text = _told(budget)
    if unit == "fraction" and budget >= _MANY and text is None:
        return f"{grouped_digits(budget)} times the exact cost"
    noun = after.get(unit)
    return f"{tick(budget)} {noun}" if noun else tick(budget)


def tick(budget: float) -> str:
    """A budget in as few characters as possible, where its unit is told elsewhere."""
    unit, text = _told(budget)
    if text is not None:
        return text
    if unit == "outputs":
        return grouped_digits(budget)
    if unit in ("seconds", "seconds_per_tuple", "deadline"):
        return duration(budget)
    return f"{grouped_digits(budget)}×" if unit == "fraction" and budget >= _MANY else percent(budget)


def _told(budget: float) -> tuple[str, str | None]:
    """(unit, text) of a budget."""
    return (budget.unit, budget.text) if isinstance(budget, Amount) else ("fraction", None)


def percent(share: float) -> str:
    """A share in per cent, three figures; never rounded up to all nor down to nothing."""
    value = 100 * share
    if value == 0 or value == 100:
        return f"{value:.0f}{_THIN}%"
    if 99.95 <= value < 100:
        return f"over{_SPACE}99.9{_THIN}%"
    if 0 < value < 0.01:
        return f"under{_SPACE}0.01{_THIN}%"
    digits = 0 if value >= 1000 else 1 if value >= 10 else 2
    return f"{_trimmed(f'{value:.{digits}f}')}{_THIN}%"


def small(value: float) -> str:
    """A distance: plain from 0.001 on, else a power of ten."""
    if value == 0:
        return "0"
    if abs(value) >= 0.001:
        return f"{value:.2g}" if abs(value) < 100 else f"{value:,.0f}"
    exponent = math.floor(math.log10(abs(value)))
    mantissa = f"{value / 10**exponent:.1f}"
    if mantissa == "10.0":
        mantissa, exponent = "1.0", exponent + 1
    power = f"10{str(exponent).translate(_SUPERSCRIPT)}"
    return power if mantissa == "1.0" else f"{mantissa}{_THIN}×{_THIN}{power}"


def plain_number(value: float) -> str:
    """Any number of a table, three figures: `0.0123`, `8.61`, `74.2`, `1,230`."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return small(value) if abs(value) < 0.001 else f"{value:.3g}"


def times(ratio: float) -> str:
    """A ratio: `2.4`, `0.83`, `12`; near one it keeps two decimals, so that it never reads as one."""
    if ratio >= 9.95:
        return f"{ratio:,.0f}"
    if ratio >= 1.095:
        return f"{ratio:.1f}"
    return f"{ratio:.2f}" if ratio >= 0.095 else f"{ratio:.1g}"


def duration(seconds: float) -> str:
    """Seconds in the units a person would choose: `340 ms`, `12.5 s`, `14 min`, `3.2 h`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"), (0.001, "ms"), (1e-6, "µs"), (1e-9, "ns")):
        if seconds >= size:
            value = seconds / size
            return f"{_trimmed(f'{value:.1f}') if value < 100 else f'{value:,.0f}'}{_SPACE}{unit}"
    return f"0{_SPACE}s" if seconds == 0 else f"{small(seconds)}{_SPACE}s"


def span(seconds: float) -> str:
    """A setting that is a duration, exactly: `1 h 30 min`."""
    return format_duration(round(seconds * 1_000_000_000)).replace(" ", _SPACE)


def grouped_digits(count: float) -> str:
    """A count with its thousands apart."""
    return f"{count:,.0f}"


def shown(value: float | None, unit: str) -> str:
    """A figure in its unit (share, distance, seconds, number); a dash where it does not exist."""
    if value is None:
        return "–"
    return {"share": percent, "distance": small, "seconds": duration, "number": plain_number}[unit](value)


def listing(parts: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def at_budgets(chosen: Sequence[float], among: Sequence[float]) -> str:
    """`at every budget`, `at 10 %`, `from 5 % to 20 %`, `at 5 % and 50 %`."""
    if len(among) > 1 and list(chosen) == list(among):
        return "at every budget"
    first = among.index(chosen[0])
    if len(chosen) > 2 and list(among[first : first + len(chosen)]) == list(chosen):
        return f"from {asked(chosen[0])} to {asked(chosen[-1])}"
    return f"at {listing([asked(budget) for budget in chosen])}"


def _trimmed(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number
