"""The reader's time zone, which the browser stores in a cookie."""

from urllib.parse import unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.http import HttpRequest

COOKIE = "berth_zone"
UTC = ZoneInfo("UTC")


def reader_zone(request: HttpRequest) -> ZoneInfo:
    """Return the reader's time zone, or UTC if the cookie is missing or invalid.

    The script percent-encodes the name (`Europe%2FBerlin`), and Django does not decode cookies.
    """
    try:
        return ZoneInfo(unquote(request.COOKIES.get(COOKIE) or "UTC"))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC
