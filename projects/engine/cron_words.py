"""Describe cron expressions in English."""

DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def describe_cron(expression: str) -> str:
    """Return a description such as "Weekdays at 03:00", or "" for less common expressions."""
    fields = expression.split()
    if len(fields) != 5 or fields[3] != "*":
        return ""
    minute, hour, day, _, weekday = fields
    if (hour, day, weekday) == ("*", "*", "*"):
        return _describe_hourly(minute)
    if not (minute.isdecimal() and hour.isdecimal()):
        every = hour.removeprefix("*/")
        if minute.isdecimal() and every != hour and every.isdecimal() and (day, weekday) == ("*", "*"):
            return f"Every {every} hours{_describe_minute(minute)}"
        return ""
    days = _describe_days(day, weekday)
    return f"{days} at {int(hour):02}:{int(minute):02}" if days else ""


def _describe_hourly(minute: str) -> str:
    every = minute.removeprefix("*/")
    if minute == "*":
        return "Every minute"
    if every != minute and every.isdecimal():
        return f"Every {every} minutes"
    return f"Every hour{_describe_minute(minute)}" if minute.isdecimal() else ""


def _describe_minute(minute: str) -> str:
    return f" at minute {int(minute)}" if int(minute) else ""


def _describe_days(day: str, weekday: str) -> str:
    if (day, weekday) == ("*", "*"):
        return "Daily"
    if weekday == "*":
        return f"Monthly on day {int(day)}" if day.isdecimal() else ""
    if day != "*":
        return ""
    if weekday == "1-5":
        return "Weekdays"
    numbers = weekday.split(",")
    if not all(number.isdecimal() and int(number) < len(DAYS) for number in numbers):
        return ""
    return ", ".join(f"{DAYS[int(number)]}s" for number in numbers)
