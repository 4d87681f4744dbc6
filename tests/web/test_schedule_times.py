"""Tests for cron errors and time zones on the schedule pages."""

import re

import pytest
from django.utils import timezone

from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.test_schedule_pages import FORM, HTMX, create, text


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("99 * * *", "Has 4 fields instead of 5"),
        ("0 2 30 2 *", "Never fires: none of the months has this day."),
    ],
)
def test_cron_error_is_shown_at_the_cron_field(cast: Cast, sign_in: SignIn, cron: str, message: str) -> None:
    dave = sign_in("dave")
    query = {"frequency": "custom", "cron": cron, "time_zone": "UTC"}
    typed = dave.get("/schedules/times", query).content.decode()
    (live,) = re.findall(r'id="schedule_cron_error" hx-swap-oob="true">(.*?)</span>', typed)
    assert live.startswith(message)
    assert message not in typed.partition("<span")[0], "the list of runs does not repeat the error"
    wrong = {**FORM, "frequency": "custom", "cron": cron, "name": "Bad Name!"}
    errors = dave.post("/schedules/new", wrong, headers=HTMX).context["form"].errors
    assert errors["cron"][0].startswith(message)
    assert errors["name"] == ["Use lowercase letters, digits and hyphens, for example bad-name."]
    page = dave.get("/schedules/new").content.decode()
    assert "*/15 * * * * (every 15 minutes)" in page and 'id="schedule_cron_error"' in page


@pytest.mark.parametrize(
    ("frequency", "name", "value", "message"),
    [
        ("daily", "at", "25:99", "Enter a time from 00:00 to 23:59."),
        ("weekly", "at", "soon", "Enter a time from 00:00 to 23:59."),
        ("hourly", "minute", "77", "&quot;77&quot; is too high. Enter 59 or less."),
        ("monthly", "day", "0", "&quot;0&quot; is too low. Enter 1 or more."),
        ("hourly", "at", "25:99", ""),
        ("hourly", "minute", "", ""),
    ],
)
def test_invalid_time_is_reported_at_its_field_while_typing(
    cast: Cast, sign_in: SignIn, frequency: str, name: str, value: str, message: str
) -> None:
    query = {"frequency": frequency, "minute": "5", "at": "03:00", "weekday": "1", "day": "1", name: value}
    page = sign_in("dave").get("/schedules/times", {**query, "time_zone": "UTC"}).content.decode()
    assert f'id="schedule_{name}_error" hx-swap-oob="true">{message}</span>' in page
    assert "cron expression" not in page
    assert ("Correct the time to see the next runs." in page) is bool(message)


def test_invalid_schedule_name_is_reported_once(cast: Cast, sign_in: SignIn) -> None:
    answer = sign_in("dave").post("/schedules/new", {**FORM, "name": "My Job"}, headers=HTMX)
    assert set(answer.context["form"].errors) == {"name"}


@pytest.mark.parametrize(("zone", "is_shown"), [("Europe/Berlin", False), ("Asia/Tokyo", True)])
def test_next_run_is_shown_in_both_time_zones_if_they_differ(
    cast: Cast, sign_in: SignIn, zone: str, is_shown: bool
) -> None:
    schedule = create(cast, cron="30 3 * * *", time_zone="Europe/Berlin")
    schedule.runs.create(due_at=timezone.now(), outcome="skipped")
    dave = sign_in("dave")
    dave.cookies["berth_zone"] = zone
    listed = dave.get("/schedules").content.decode()
    assert listed.count("your time") == (2 if is_shown else 0), "for the last and the next run"
    for path in ("/schedules", "/schedules/vision/nightly"):
        page = text(dave.get(path))
        assert ("03:30 Europe/Berlin" in page) is is_shown
        assert ("your time" in page) is is_shown
    times = text(dave.get("/schedules/times", {"cron": "30 3 * * *", "time_zone": "Europe/Berlin"}))
    assert ("your time" in times) is is_shown
