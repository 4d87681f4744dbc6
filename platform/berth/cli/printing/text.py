"""Format values and messages for the terminal, on one line and without control characters."""

import sys
from collections.abc import Mapping
from datetime import datetime, timezone

from berth.core.wording import words


def printable(text: object) -> str:
    """Escape control characters in the text, so that a terminal does not interpret them."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(text))


def message_line(message: object) -> str:
    """Format a message for stderr as one line that ends with punctuation."""
    return f"berth: {add_full_stop(printable(message))}"


def add_full_stop(text: str) -> str:
    """Add a full stop, unless the text already ends with punctuation."""
    return text if text.endswith((".", "!", "?", ":", "…")) else f"{text}."


def print_message(message: object) -> None:
    """Print an error, a warning or a note on stderr. Commands print all messages with this function."""
    print(message_line(message), file=sys.stderr)


def format_number(value: float | None, none: str = "-") -> str:
    """Format a number with thousands separators and at most three decimals: 8 rather than 8.0."""
    return none if value is None else words.format_number(value)


def format_duration(seconds: float) -> str:
    """Format a duration as 45s, 12m, 3h20m or 5d."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m"
    if whole < 86_400:
        minutes = whole % 3600 // 60
        return f"{whole // 3600}h{minutes}m" if minutes else f"{whole // 3600}h"
    return f"{whole // 86_400}d"


def format_age(moment: datetime | None, now: datetime) -> str:
    return "-" if moment is None else format_duration((now - moment).total_seconds())


def format_time(moment: datetime | None) -> str:
    """Format a time in the local time zone, followed by the name of the zone."""
    return "-" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def format_short_time(moment: datetime | None) -> str:
    """Format a time in the local time zone. Omit today's date and the current year."""
    if moment is None:
        return "-"
    local_time, today = moment.astimezone(), datetime.now().astimezone()
    if local_time.date() == today.date():
        return local_time.strftime("%H:%M:%S")
    return local_time.strftime("%m-%d %H:%M" if local_time.year == today.year else "%Y-%m-%d")


def utc_now() -> datetime:
    return datetime.now(timezone.utc)


def format_pairs(values: Mapping[str, object]) -> str:
    """Format values as "key value, key value", such as the numbers of a blocker."""
    return ", ".join(
        f"{printable(key).replace('_', ' ')} {format_value(value)}" for key, value in values.items()
    )


def format_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return format_number(value)
    if isinstance(value, Mapping):
        return "(" + format_pairs(value) + ")"
    if isinstance(value, list | tuple):
        return ", ".join(format_value(entry) for entry in value) or "none"
    return "none" if value is None else printable(value)
