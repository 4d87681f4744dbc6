"""Tests for cron schedules: latest runs and errors."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from pools.engine.schedule import InvalidSchedule, parse_schedule

BERLIN = ZoneInfo("Europe/Berlin")
DAY, WEEK = timedelta(days=1), timedelta(days=7)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "now", "last"),
    [
        ("0 9 * * *", "2026-06-01 09:00", "2026-06-01 09:00"),
        ("0 9 * * *", "2026-06-01 08:59", "2026-05-31 09:00"),
        ("*/15 * * * *", "2026-06-01 08:59", "2026-06-01 08:45"),
        ("5/20 8 * * *", "2026-06-01 08:59", "2026-06-01 08:45"),
        ("0 9 * * mon-fri", "2026-06-07 12:00", "2026-06-05 09:00"),  # a Sunday, and the Friday before it
        ("0 9 * * 7", "2026-06-08 12:00", "2026-06-07 09:00"),
        ("0 0 1,15 * *", "2026-06-20 00:00", "2026-06-15 00:00"),
        ("0 0 13 * fri", "2026-06-18 00:00", "2026-06-13 00:00"),  # a Saturday, the 13th
        ("0 0 13 * fri", "2026-06-20 00:00", "2026-06-19 00:00"),  # a Friday
        ("@hourly", "2026-06-01 08:59", "2026-06-01 08:00"),
        ("0 0 1 JAN *", "2026-01-05 00:00", "2026-01-01 00:00"),
    ],
)
def test_cron_schedule_yields_its_last_run_before_a_time(text: str, now: str, last: str) -> None:
    assert parse_schedule(text).last_run(at(now), UTC, within=WEEK) == at(last)


def test_run_outside_the_window_is_ignored() -> None:
    assert (
        parse_schedule("0 9 * * *").last_run(at("2026-06-01 17:00"), UTC, within=timedelta(hours=8)) is None
    )
    assert (
        parse_schedule("0 9 * * *").last_run(at("2026-06-01 16:59"), UTC, within=timedelta(hours=8))
        is not None
    )


def test_schedule_follows_daylight_saving_time_of_its_zone() -> None:
    nine = parse_schedule("0 9 * * *")
    assert nine.last_run(at("2026-06-01 08:00"), BERLIN, within=DAY) == at("2026-06-01 07:00")
    assert nine.last_run(at("2026-12-01 08:00"), BERLIN, within=DAY) == at("2026-12-01 08:00")


def test_schedule_runs_once_at_a_local_time_that_occurs_twice() -> None:
    # In Berlin, clocks go back from 3:00 to 2:00 on 25 October 2026.
    half_past_two = parse_schedule("30 2 * * *")
    assert half_past_two.last_run(at("2026-10-25 01:10"), BERLIN, within=DAY) == at("2026-10-25 00:30")
    assert half_past_two.last_run(at("2026-10-25 01:40"), BERLIN, within=DAY) == at("2026-10-25 00:30")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 9 * *", "has 4 fields instead of 5"),
        ("60 9 * * *", "has an invalid minute '60'; allowed: 0 to 59"),
        ("60 25 * * *", "has an invalid minute '60' and hour '25'; allowed: minute 0 to 59, hour 0 to 23"),
        ("0 9 * * mo", "invalid day-of-week 'mo'; allowed: 0 to 7 or sun to sat"),
        ("0 17-9 * * *", "invalid hour"),
        ("0 0 31 feb,apr *", "invalid day-of-month"),
        ("*/0 * * * *", "invalid minute"),
        ("0 ٣ * * *", "invalid hour"),
        ("", "has 0 fields instead of 5"),
    ],
)
def test_error_names_the_invalid_field_and_the_allowed_values(text: str, message: str) -> None:
    with pytest.raises(InvalidSchedule, match=message.replace("*", r"\*")):
        parse_schedule(text)
