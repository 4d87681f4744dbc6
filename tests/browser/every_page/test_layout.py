"""Layout tests for menus, dialogs and admin site filters."""

import pytest
from playwright.sync_api import ViewportSize, expect

from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import NARROW, WIDE, open_settled


@pytest.mark.heavy
@pytest.mark.parametrize(
    "viewport",
    [pytest.param(WIDE, id="desk", marks=pytest.mark.heavy), pytest.param(NARROW, id="phone")],
)
def test_admin_site_date_filter_works_on_the_first_visit(
    viewport: ViewportSize, opened: Open, scene: Scene
) -> None:
    # Django covers the first field with a note on server time if the server has another time zone. The first
    # page is therefore loaded again in the zone of the browser, and the note is never shown.
    with opened("ada", viewport=viewport) as (page, faults):
        open_settled(page, "/admin/scheduler/eviction/")
        page.get_by_text("Filters").first.click()
        expect(page.locator(".timezonewarning:visible")).to_have_count(0)
        for name in ("at_from_0", "at_from_1", "at_to_0", "at_to_1"):
            page.locator(f"[name={name}]").click()
        page.locator("[name=at_to_0]").fill("2020-01-01")
        page.get_by_role("button", name="Apply Filters").click()
        expect(page.get_by_text("0 evictions")).to_be_visible()
        assert faults == []


@pytest.mark.heavy
def test_menu_button_stays_in_place_when_the_menu_opens(opened: Open) -> None:
    with opened("ada", viewport=WIDE) as (page, _):
        page.goto("/quotas")
        button = page.locator("summary", has_text="Fields")
        before = button.bounding_box()
        button.click()
        expect(page.get_by_role("group", name="Fields")).to_be_visible()
        assert button.bounding_box() == before
        button.click()
        expect(page.get_by_role("group", name="Fields")).to_be_hidden()


@pytest.mark.heavy
def test_menu_near_the_right_edge_is_aligned_with_its_button(opened: Open) -> None:
    with opened("ada", viewport=WIDE) as (page, _):
        page.goto("/workloads")
        button = page.locator("summary", has_text="Columns")
        button.click()
        menu = page.locator("details[open].chooser > .menu")
        expect(menu).to_be_visible()
        page.wait_for_function(
            """pair => {
              const [a, b] = pair.map(each => each.getBoundingClientRect().right);
              return Math.abs(a - b) <= 1;
            }""",
            arg=[button.element_handle(), menu.element_handle()],
        )


@pytest.mark.heavy
def test_confirmation_for_lowering_the_pool_maximum_is_scrolled_into_view(opened: Open, scene: Scene) -> None:
    # The form is longer than the screen, and the test scrolls down to the button.
    with opened("ada", viewport=WIDE) as (page, _):
        page.goto("/node-pools/train")
        page.locator("#pool-settings").click()
        page.locator("dialog [name=nodes_min]").fill("1")
        page.locator("dialog [name=nodes_max]").fill("2")
        page.locator("dialog").get_by_role("button", name="Save").click()
        expect(page.get_by_role("heading", name="Reduce train to 2 nodes?")).to_be_in_viewport()
        page.get_by_role("button", name="Keep editing").click()
        expect(page.locator("dialog [name=nodes_max]")).to_have_value("2")
        page.locator("dialog").get_by_role("button", name="Save settings").click()
        page.get_by_role("button", name="Save and drain nodes").click()
        expect(page.get_by_text("Elastic, 1 to 2 nodes")).to_be_visible()
