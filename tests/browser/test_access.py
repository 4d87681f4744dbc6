"""Browser tests for the users and roles on the Access page."""

from playwright.sync_api import expect

from tests.browser.conftest import Open


def test_open_row_menu_stays_open_when_the_list_is_refreshed(opened: Open) -> None:
    with opened("ada") as (page, faults):
        page.goto("/access")
        menu = page.locator("details", has=page.get_by_label("Actions for dave")).first
        menu.locator("summary").click()
        expect(menu.get_by_role("link", name="Change the role of dave")).to_be_visible()
        menu.evaluate("element => { element.dataset.old = ''; }")
        page.evaluate("htmx.ajax('GET', '/access', '#members')")
        expect(page.locator("details[data-old]")).to_have_count(0)
        expect(menu.get_by_role("link", name="Change the role of dave")).to_be_visible()
        assert faults == []
