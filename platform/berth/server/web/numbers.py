"""Format GPUs, cores, memory, durations and money with units."""

import re
from decimal import Decimal

from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe

from berth.core.values.amounts import MILLI

NO_VALUE = "\N{EN DASH}"
MIB_PER_GIB = 1024
DECIMALS_BELOW_HOURS = 1000  # longer durations are shown without decimals
HOURS_MIN = 0.001  # smaller values are shown as "< 0.001"
MINUTE, HOUR, DAY = 60, 3600, 86_400
SEPARATOR = re.compile(r"([@./_:](?=\w))")
HYPHENATED_UNIT = re.compile(r"\b(GPU-(?:hours?|h|min))\b")


def thousandths(milli: float | str | None) -> str:
    """Format an amount in thousandths as a number of units: 4000 as 4, and 500 as 0.5.

    None means unlimited. Templates pass a string for a missing value, which is shown as a dash.
    """
    if isinstance(milli, str):
        return NO_VALUE
    if milli is None:
        return "∞"
    whole = milli / MILLI
    return f"{whole:,.0f}" if float(whole).is_integer() else f"{whole:,.3f}".rstrip("0")


def gpu_count(milli: int) -> str:
    """Format an amount in milli-GPU with its noun: 0 as "no GPU", and 32000000 as "32,000 GPUs"."""
    if not milli:
        return "no GPU"
    return f"{thousandths(milli)} {'GPU' if milli == MILLI else 'GPUs'}"


def count(number: int) -> str:
    """Format a count with thousands separators."""
    return f"{number:,}"


def memory(mib: int | None) -> str:
    if mib is None:
        return "∞"
    if mib < MIB_PER_GIB:
        return f"{mib:,} MiB"
    return f"{mib / MIB_PER_GIB:,.1f}".removesuffix(".0") + " GiB"


def used_memory(mib: int) -> str:
    """Format measured memory. Zero is shown as less than 1 MiB, because a process always uses some memory."""
    return memory(mib) if mib else "< 1 MiB"


def duration(seconds: float | None) -> str:
    """Format a duration in its two largest units, such as "3 h 20 min"."""
    if seconds is None:
        return NO_VALUE
    if 0 < seconds < 1:
        return "< 1 s"
    remaining = int(seconds)
    if remaining < MINUTE:
        return f"{remaining} s"
    for unit, name, below, below_name in (
        (DAY, "d", HOUR, "h"),
        (HOUR, "h", MINUTE, "min"),
        (MINUTE, "min", 1, "s"),
    ):
        if remaining >= unit:
            rest = remaining % unit // below
            return (
                f"{remaining // unit} {name} {rest} {below_name}" if rest else f"{remaining // unit} {name}"
            )
    return f"{remaining} s"


def elapsed(seconds: float | None) -> str:
    """Format the duration of a period that has ended. Less than a second is shown as "< 1 s", even if it is
    0.
    """
    return "< 1 s" if seconds is not None and 0 <= seconds < 1 else duration(seconds)


def hours(value: float | None) -> str:
    """Format hours, with decimals only for small numbers."""
    if value is None:
        return NO_VALUE
    if 0 < value < HOURS_MIN:
        return f"< {HOURS_MIN}"
    if value >= DECIMALS_BELOW_HOURS or isinstance(value, int):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if value >= 1 or value == 0 else f"{value:,.2g}"


def as_percentage(value: int) -> str:
    """Format thousandths as a percentage: 485 as 48.5."""
    return f"{value / 10:,.1f}".removesuffix(".0")


def money(value: Decimal | float) -> str:
    """Format an amount of money without its currency."""
    return f"{value:,.2f}"


def seconds(milliseconds: float | None) -> str:
    """Format milliseconds as seconds, with up to two decimals for short times."""
    if milliseconds is None:
        return NO_VALUE
    value = milliseconds / 1000
    return f"{value:,.0f} s" if value >= 100 else f"{value:,.1f} s" if value >= 1 else f"{value:.2g} s"


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f}%" if whole else NO_VALUE


def milliseconds(value: float | None) -> str:
    if value is None:
        return NO_VALUE
    return f"{value:.1f} ms" if value < 100 else f"{value:,.0f} ms"


def breakable(text: str) -> SafeString:
    """Return HTML that lets the browser break a name or a URL after its separators."""
    return mark_safe(SEPARATOR.sub(r"\1<wbr>", conditional_escape(text)))  # noqa: S308


def unbroken_units(text: str) -> SafeString:
    """Return HTML in which units such as GPU-hours are not broken at the hyphen."""
    return mark_safe(HYPHENATED_UNIT.sub(r'<span class="nowrap">\1</span>', conditional_escape(text)))  # noqa: S308
