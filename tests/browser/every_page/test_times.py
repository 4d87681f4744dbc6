"""Browser tests for time formats, which are the same on all pages and in all browsers."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import open_settled
from tests.support.present import present

pytestmark = pytest.mark.heavy

CLOCK = re.compile(r"\b([01]\d|2[0-3]):[0-5]\d\b")
DATE = re.compile(r"\d+ \w{3}, \d\d:\d\d")
# Record the times of new parts before the browser shows them: observers run when the scripts end.
RECORD_NEW_TIMES = """() => {
  window.newTimes = [];
  new MutationObserver((records) => {
    for (const record of records) for (const node of record.addedNodes) {
      if (!(node instanceof Element)) continue;
      for (const time of node.querySelectorAll("time")) window.newTimes.push(time.textContent);
    }
  }).observe(document.getElementById("rows"), { childList: true, subtree: true });
}"""

CHOOSE = """(field, day) => {
  field.value = day;
  field.dispatchEvent(new Event("change", { bubbles: true }));
}"""


def test_live_updates_never_show_unconverted_utc_times(opened: Open, scene: Scene) -> None:
    with opened("ada") as (page, faults):
        open_settled(page, "/workloads")
        page.evaluate(RECORD_NEW_TIMES)
        page.evaluate("document.dispatchEvent(new CustomEvent('berth:done', { detail: { message: '' } }))")
        page.wait_for_function("() => window.newTimes.length > 0")
        times = page.evaluate("window.newTimes")
        assert faults == []
    assert [text for text in times if "UTC" in text] == []


def test_browser_set_to_american_english_shows_times_in_24_hour_format(opened: Open, scene: Scene) -> None:
    with opened("ada", locale="en-US") as (page, faults):
        open_settled(page, f"/workloads/{scene.workloads['detr-long'].pk}")
        expect(page.locator(".head-facts time")).to_have_text(CLOCK)
        page.goto("/schedules/new")
        expect(page.get_by_label("Time", exact=True)).to_have_value("03:00")
        assert page.get_by_label("Time", exact=True).get_attribute("type") == "text"
        assert faults == []


def test_day_chosen_in_a_filter_is_shown_in_the_date_format_of_the_page(opened: Open, scene: Scene) -> None:
    with opened("ada", locale="en-US") as (page, faults):
        open_settled(page, "/evictions")
        field = page.get_by_label("From", exact=True)
        expect(field).to_be_hidden()
        expect(page.get_by_role("link", name="Clear filters")).to_be_hidden()
        page.get_by_label("Period").select_option("Custom dates")
        expect(field).to_have_attribute("placeholder", "YYYY-MM-DD")
        calendar = page.locator(".date-field:has(#f-since) > [type=date]")
        calendar.evaluate(CHOOSE, "2026-07-02")
        expect(field).to_have_value("2026-07-02")
        page.wait_for_url("**/evictions?period=custom&since=2026-07-02")
        field.fill("31.12.2026")
        field.press("Enter")
        problem = page.get_by_text("From is “31.12.2026”, which is not a date.")
        expect(problem).to_be_visible()
        expect(field).to_have_attribute("aria-invalid", "true")
        page.reload()
        expect(field).to_have_value("31.12.2026")
        field.fill("2026-07-03")
        field.press("Enter")
        expect(problem).to_have_count(0)
        expect(page.locator("#filters .clear-filters")).to_be_visible()
        expect(field).not_to_have_attribute("aria-invalid", "true")
        page.get_by_label("Period").select_option("Any time")
        page.wait_for_url("**/evictions?period=all&since=2026-07-03")
        expect(field).to_be_hidden()
        assert faults == []


def test_expected_start_within_a_day_is_shown_without_a_date(opened: Open, scene: Scene) -> None:
    workload = scene.workloads["policy-sweep"]
    workload.refresh_from_db()
    start = datetime.fromisoformat(present(workload.explanation)["expected_start"])
    midnight = start.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for now, expected in ((midnight - timedelta(seconds=1), CLOCK), (midnight - timedelta(days=1), DATE)):
        with opened("ada", timezone_id="UTC") as (page, faults):
            page.clock.set_fixed_time(now)
            for path in ("/", "/workloads", "/queue"):
                open_settled(page, path)
                row = page.locator(".longest li, .workload-rows tr, .queue-rows tr").filter(
                    has_text="policy-sweep"
                )
                text = row.locator("[data-style=forecast]:visible, [data-style=near]:visible").inner_text()
                assert expected.match(text), (path, text)
            assert faults == []


def test_charts_are_labelled_in_the_users_time_zone_on_the_first_visit(opened: Open) -> None:
    with opened("ada", timezone_id="Asia/Kolkata") as (page, faults):  # five and a half hours after UTC
        page.goto("/")
        labels = page.locator(".time-axis text")
        expect(labels.first).to_be_attached()
        texts = labels.all_text_contents()
        assert faults == []
    assert {"08:00", "16:00"} & set(texts)
    assert [text for text in texts if text.endswith(":30")] == []
