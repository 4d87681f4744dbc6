"""Convert between the frequencies in the schedule form and cron expressions."""

from collections.abc import Mapping
from typing import Any

HOURLY, DAILY, WEEKDAYS, WEEKLY, MONTHLY, CUSTOM = (
    "hourly",
    "daily",
    "weekdays",
    "weekly",
    "monthly",
    "custom",
)
FREQUENCIES = (
    (HOURLY, "Every hour"),
    (DAILY, "Every day"),
    (WEEKDAYS, "Monday to Friday"),
    (WEEKLY, "Every week"),
    (MONTHLY, "Every month"),
    (CUSTOM, "Custom (cron)"),
)
WEEKDAY_NAMES = (
    ("1", "Monday"), ("2", "Tuesday"), ("3", "Wednesday"), ("4", "Thursday"), ("5", "Friday"),
    ("6", "Saturday"), ("0", "Sunday"),
)  # fmt: skip
DEFAULTS: Mapping[str, Any] = {"frequency": DAILY, "minute": 0, "at": "03:00", "weekday": "1", "day": 1}


def build_cron(values: Mapping[str, Any]) -> str:
    """Build the cron expression, or return the one that was entered.

    Return "" if a value for the frequency is missing.
    """
    frequency = values.get("frequency") or CUSTOM
    if frequency == CUSTOM:
        return str(values.get("cron") or "").strip()
    if frequency == HOURLY:
        minute = values.get("minute")
        return "" if minute in (None, "") else f"{minute} * * * *"
    hour, _, minute = str(values.get("at") or "").partition(":")
    if not (hour.isdecimal() and minute[:2].isdecimal()):
        return ""
    days = {
        DAILY: "* * *",
        WEEKDAYS: "* * 1-5",
        WEEKLY: f"* * {values.get('weekday') or ''}",
        MONTHLY: f"{values.get('day') or ''} * *",
    }.get(frequency, "")
    return f"{int(minute[:2])} {int(hour)} {days}" if len(days.split()) == 3 else ""


def split_cron(cron: str) -> dict[str, Any]:
    """Return the form's values for a cron expression. Less common expressions have the frequency "custom"."""
    parts = cron.split()
    values = {**DEFAULTS, "cron": cron, "frequency": CUSTOM}
    if len(parts) != 5 or parts[3] != "*" or not parts[0].isdecimal():
        return values
    minute, hour, day, _, weekday = parts
    if (hour, day, weekday) == ("*", "*", "*"):
        return {**values, "frequency": HOURLY, "minute": int(minute)}
    if not hour.isdecimal():
        return values
    values["at"] = f"{int(hour):02}:{int(minute):02}"
    if day == "*" and weekday in ("*", "1-5"):
        return {**values, "frequency": DAILY if weekday == "*" else WEEKDAYS}
    if day == "*" and weekday in dict(WEEKDAY_NAMES):
        return {**values, "frequency": WEEKLY, "weekday": weekday}
    if weekday == "*" and day.isdecimal():
        return {**values, "frequency": MONTHLY, "day": int(day)}
    return values
