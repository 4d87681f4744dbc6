"""The reader's time zone, which the browser stores in a cookie."""

from datetime import datetime, time
from urllib.parse import unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.http import HttpRequest
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.timezone import is_naive, make_aware

COOKIE = "berth_zone"
UTC = ZoneInfo("UTC")


def user_time_zone(request: HttpRequest) -> ZoneInfo:
    """Return the reader's time zone from the cookie, or UTC."""
    try:
        return ZoneInfo(unquote(request.COOKIES.get(COOKIE) or "UTC"))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def known_time_zone(request: HttpRequest) -> ZoneInfo | None:
    """Return the reader's time zone, or None if the browser has not stored it yet."""
    return user_time_zone(request) if request.COOKIES.get(COOKIE) else None


def parse_time(text: str, zone: ZoneInfo, *, end: bool = False) -> datetime | None:
    """Parse a time from a URL, in `zone` unless it has an offset. Return None if it is invalid.

    A date means the start of the day, or its end if `end` is set.
    """
    try:
        if day := parse_date(text):  # try this first, because a date would also parse as a time at midnight
            return make_aware(datetime.combine(day, time.max if end else time.min), zone)
        at = parse_datetime(text)
    except ValueError:
        return None
    return make_aware(at, zone) if at is not None and is_naive(at) else at
