"""Browser tests for the message that the next page shows after a change."""

from playwright.sync_api import Page, expect

from tests.browser.conftest import Open

DOCUMENT = (
    "name: from-here\nproject: vision\npools: [train]\ncommand: sleep 1\nroles: [{replicas: 1, gpu: 1}]\n"
)


def submit(page: Page, document: str) -> None:
    page.goto("/submit")
    page.locator("#document").fill(document)
    page.get_by_role("button", name="Submit workload", exact=True).click()
    expect(page.get_by_role("heading", name="from-here")).to_be_visible()


def test_success_message_disappears(opened: Open) -> None:
    with opened("dave") as (page, faults):
        submit(page, DOCUMENT)
        expect(page.locator("#toasts")).to_have_text("Workload from-here submitted.")
        expect(page.locator(".main > .notice.good")).to_have_count(0)
        expect(page.locator("#toasts")).to_be_empty(timeout=60_000)
        assert faults == []


def test_message_with_warnings_stays_and_is_marked_as_a_warning(opened: Open) -> None:
    with opened("dave") as (page, faults):
        submit(page, DOCUMENT.replace("gpu: 1", "gpu: 64"))
        expect(page.locator(".main > .notice.warn")).to_contain_text("Workload from-here submitted. ")
        expect(page.locator("#toasts")).to_be_empty()
        assert faults == []
