"""Browser tests for the time zone that the browser reports to the server."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import expect

from projects.models import QuotaExpiry
from tests import factories as make
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import open_settled
from tests.browser.quotas.test_quota_grid import cell

BERLIN, TYPED_EXPIRY = ZoneInfo("Europe/Berlin"), "%Y-%m-%dT%H:%M"


def tomorrow_at_nine() -> datetime:
    return (datetime.now(BERLIN) + timedelta(days=1)).replace(hour=9, minute=0, second=0, microsecond=0)


@pytest.mark.heavy
def test_pages_show_the_name_of_the_browsers_time_zone(opened: Open) -> None:
    with opened("ada") as (page, _):
        page.goto("/")  # the server sends this response before the browser has reported its time zone
        for path, text in (
            ("/", "(Europe/Berlin)"),
            ("/usage?span=24h", "Europe/Berlin time"),
            ("/admin/scheduler/eviction/", "Times in Europe/Berlin"),
        ):
            page.goto(path)
            expect(page.locator("body")).to_contain_text(text)


@pytest.mark.heavy
def test_page_without_a_known_time_zone_shows_utc(opened: Open) -> None:
    with opened("ada", java_script_enabled=False) as (page, _):
        for path, text in (("/usage?span=24h", "UTC time"), ("/", "(UTC)")):
            page.goto(path)
            expect(page.locator("body")).to_contain_text(text)


@pytest.mark.heavy
def test_expiry_entered_in_the_quota_grid_is_interpreted_in_the_browsers_time_zone(
    opened: Open, scene: Scene
) -> None:
    due = tomorrow_at_nine()
    with opened("ada") as (page, faults):
        open_settled(page, "/quotas")
        cell(page, "vision").focus()
        page.keyboard.type("9")
        page.keyboard.press("Enter")
        field = page.get_by_label("Expires")
        expect(page.locator("label[for=draft-until]")).to_contain_text("Europe/Berlin")
        field.fill(due.strftime(TYPED_EXPIRY))
        page.get_by_role("button", name="Apply").click()
        expect(page.get_by_text("1 quota saved.")).to_be_visible()
        assert faults == []
    assert QuotaExpiry.objects.get().due_at == due


@pytest.mark.heavy
def test_eviction_filter_days_are_in_the_browsers_time_zone(opened: Open, scene: Scene) -> None:
    late = datetime(2026, 7, 1, 22, 30, tzinfo=UTC)  # half past midnight of 2 July in Berlin
    workload = scene.workloads["segment-eval"]
    evicted = make.eviction(workload, scene.workloads["ctr-nightly"], scene.pools["train"], at=late)
    with opened("ada") as (page, _):
        page.goto("/evictions")
        for day, count in (("2026-07-02", 1), ("2026-07-01", 0)):
            page.goto(f"/evictions?since={day}&until={day}")
            expect(page.locator(f"a[href='/evictions/{evicted.pk}']")).to_have_count(count)
