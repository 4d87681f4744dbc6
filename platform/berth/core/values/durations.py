"""Durations in seconds or as text, such as 8h or 1h30m."""

import re

DURATION = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,5})h)?(?:(\d{1,6})m)?(?:(\d{1,7})s)?", re.ASCII)


def parse_duration(duration: object) -> int | None:
    """Convert seconds or text such as "1h30m" to seconds. Return None for an invalid value."""
    if isinstance(duration, int) and not isinstance(duration, bool):
        return duration
    if isinstance(duration, str) and duration and (match := DURATION.fullmatch(duration)):
        days, hours, minutes, rest = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + rest
    return None


def format_duration(seconds: int) -> str:
    """Format a duration, such as 8h or 1h30m."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"
