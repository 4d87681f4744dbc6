"""Tests for the due times of cron expressions, including clock changes."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from projects.engine.due_times import latest_due_time, next_due_times

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        # The clocks go forward on 2026-03-29 at 02:00, and back on 2026-10-25 at 03:00.
        ("0 3 * * 1-5", "2026-03-27T12:00", ["2026-03-30T01:00", "2026-03-31T01:00"]),
        ("30 2 * * *", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        ("30 2 * * *", "2026-10-24T12:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),
        ("30 * * * *", "2026-10-25T00:00", ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"]),
        ("*/30 * * * *", "2026-03-29T00:15", ["2026-03-29T00:30", "2026-03-29T01:00", "2026-03-29T01:30"]),
        ("0 0 29 2 *", "2026-01-01T00:00", ["2028-02-28T23:00", "2032-02-28T23:00"]),
    ],
)
def test_due_times_follow_daylight_saving_time(cron: str, after: str, expected: list[str]) -> None:
    assert next_due_times(cron, BERLIN, at(after), len(expected)) == [at(text) for text in expected]


@pytest.mark.parametrize(
    ("cron", "first", "now", "expected"),
    [
        ("0 3 * * *", "2026-01-05T02:00", "2026-01-05T02:00", "2026-01-05T02:00"),
        ("0 3 * * *", "2026-01-05T02:00", "2026-01-06T01:59", "2026-01-05T02:00"),
        ("0 3 * * *", "2026-01-05T02:00", "2026-03-01T12:00", "2026-03-01T02:00"),
        ("* * * * *", "2016-01-05T02:00", "2026-03-01T12:00", "2026-03-01T12:00"),
        ("0 3 1 1 *", "2020-01-01T02:00", "2026-03-01T12:00", "2026-01-01T02:00"),
        ("0 0 29 2 *", "2020-02-28T23:00", "2026-03-01T12:00", "2024-02-28T23:00"),
    ],
)
def test_latest_due_time_is_not_in_the_future(cron: str, first: str, now: str, expected: str) -> None:
    assert latest_due_time(cron, BERLIN, at(first), at(now)) == at(expected)
