"""Tests for the backports of Python 3.11's standard library."""

from datetime import datetime

import pytest

from berth.core.backports import parse_iso_time_on_3_10


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31", "20260131", "2026-01-31T09", "2026-01-31T09:05", "2026-01-31 09:05:07",
        "20260131T090507", "2026-01-31T09:05Z", "2026-01-31T09:05:07.123456Z", "2026-01-31T09:05:07.1+02:00",
        "2026-01-31T09:05:07,123456789-0530", "2026-01-31T0905+01", "20260131T090507.25Z",
    ],
)  # fmt: skip
def test_timestamp_is_parsed_as_on_python_3_11(text: str) -> None:
    expected, parsed = datetime.fromisoformat(text), parse_iso_time_on_3_10(text)
    assert (parsed, parsed.utcoffset()) == (expected, expected.utcoffset())


@pytest.mark.parametrize(
    "text",
    [
        "", "today", "2026-01", "2026-1-31", "2026-13-01", "2026-01-31T", "2026-01-31Z", "2026-01-31T24:30",
        "2026-01-31T09:05:60", "2026-01-31T09:05z", "2026-01-31T09:05ZZ", "2026-01-31T09:05:07.",
        "2026-01-31T09:05+25:00", "\u0662026-01-31T09:05Z", "2026-01-31T09:05\n",
    ],
)  # fmt: skip
def test_invalid_timestamp_is_rejected_as_on_python_3_11(text: str) -> None:
    for parse in (datetime.fromisoformat, parse_iso_time_on_3_10):
        with pytest.raises(ValueError, match=r"\w"):
            parse(text)
