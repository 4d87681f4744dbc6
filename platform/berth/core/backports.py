"""Backports from Python 3.11's standard library, because the command line and client also run on 3.10."""

import re
import sys
from datetime import datetime

__all__ = ["StrEnum", "parse_iso_time"]

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """Backport of `enum.StrEnum`: `str()` and f-strings yield the member's value."""

        __str__ = str.__str__

        def __format__(self, format_spec: str) -> str:
            return str.__format__(self, format_spec)


_ISO_TIME = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d|\d{8})"
    r"(?:[T ](?P<time>\d\d(?::\d\d)?|\d{4}|(?:\d\d:\d\d:\d\d|\d{6})(?:[.,]\d+)?)"
    r"(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)


def parse_iso_time(text: str) -> datetime:
    """Parse an ISO 8601 time as `datetime.fromisoformat` does on Python 3.11. Raises ValueError."""
    return datetime.fromisoformat(text) if sys.version_info >= (3, 11) else parse_iso_time_on_3_10(text)


def parse_iso_time_on_3_10(text: str) -> datetime:
    """Parse any ISO 8601 time that Python 3.11 accepts, except week dates and offsets with seconds.

    Raises ValueError.
    """
    match = _ISO_TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"not an ISO 8601 time: {text!r}")
    digits = re.sub(r"\D", "", match["date"]) + re.sub(r"\D", "", match["time"] or "")[:12].ljust(12, "0")
    if match["zone"] is None:
        return datetime.strptime(digits, "%Y%m%d%H%M%S%f")  # noqa: DTZ007 (the text has no time zone)
    offset = "+0000" if match["zone"] == "Z" else match["zone"].replace(":", "").ljust(5, "0")
    return datetime.strptime(digits + offset, "%Y%m%d%H%M%S%f%z")
