"""Layout tests of every page, wide and on a phone: all controls in view, all labels readable."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.chromium import settled
from tests.browser.conftest import Open
from tests.browser.scene import Scene
from tests.browser.test_every_page import OVERFLOW, all_paths

PHONE: ViewportSize = {"width": 360, "height": 780}
DESK: ViewportSize = {"width": 1440, "height": 900}
FORMS = (
    "/notifications/new", "/budgets/new", "/departments/new", "/departments/research/new-project",
    "/projects/vision/change", "/access/grant", "/access/users/new", "/access/tokens/new",
    "/workloads/views/new", "/quotas/projects/vision/train", "/templates/vision/new", "/node-pools/new",
    "/node-pools/train/settings", "/node-pools/train/scale", "/services",
)  # fmt: skip
UNFOLD = """summary => new Promise(done => {
  const details = summary.parentElement;
  details.addEventListener('toggle', () => requestAnimationFrame(() => done(true)), { once: true });
  details.open = true;
})"""
FAULTS = (Path(__file__).parent / "layout.js").read_text()


def layout_faults(page: Page) -> list[str]:
    """Return layout faults of the page, first as loaded, then with each menu and fold open."""
    faults: list[str] = page.evaluate(FAULTS)
    summaries = page.locator("details > summary:visible")
    for number in range(summaries.count()):
        folded = summaries.nth(number)
        if folded.evaluate("each => each.parentElement.open"):
            continue
        folded.evaluate(UNFOLD)
        name = folded.inner_text()
        faults += [f"with {name!r} open: {fault}" for fault in page.evaluate(FAULTS) if fault not in faults]
        if page.evaluate(OVERFLOW) > 0:
            faults.append(f"with {name!r} open the page scrolls sideways")
        folded.evaluate("each => { each.parentElement.open = false; }")
    return faults


@pytest.mark.timeout(600)
@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_controls_stay_on_screen_and_labels_are_readable(
    viewport: ViewportSize, opened: Open, scene: Scene
) -> None:
    faults: list[str] = []
    with opened("ada", viewport=viewport) as (page, _):
        for path in (*all_paths(scene), *FORMS):
            page.emulate_media(color_scheme="light")
            assert settled(page, path).status == 200, path
            if page.evaluate(OVERFLOW) > 0:
                faults.append(f"{path} scrolls sideways")
            faults += [f"{path}: {fault}" for fault in layout_faults(page)]
            page.emulate_media(color_scheme="dark")
            faults += [f"{path}, dark: {fault}" for fault in page.evaluate(FAULTS)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_admin_date_filter_is_usable_on_the_first_visit(
    viewport: ViewportSize, opened: Open, scene: Scene
) -> None:
    """Its library covers the first field with a note on server time while the time zone is unknown."""
    with opened("ada", viewport=viewport) as (page, faults):
        page.goto("/admin/scheduler/eviction/", wait_until="networkidle")
        page.get_by_text("Filters").first.click()
        note = page.locator(".timezonewarning")
        assert note.count() > 0
        assert [each.is_visible() for each in note.all()] == [False] * note.count()
        for name in ("at_from_0", "at_from_1", "at_to_0", "at_to_1"):
            page.locator(f"[name={name}]").click()
        page.locator("[name=at_to_0]").fill("2020-01-01")
        page.get_by_role("button", name="Apply Filters").click()
        expect(page.get_by_text("0 evictions")).to_be_visible()
        assert faults == []


def test_menu_button_stays_in_place_when_the_menu_opens(opened: Open) -> None:
    with opened("ada", viewport=DESK) as (page, _):
        page.goto("/quotas")
        button = page.locator("summary", has_text="Values")
        before = button.bounding_box()
        button.click()
        expect(page.get_by_role("group", name="Values")).to_be_visible()
        assert button.bounding_box() == before
        button.click()
        expect(page.get_by_role("group", name="Values")).to_be_hidden()


def test_menu_without_room_to_the_right_is_aligned_with_its_button(opened: Open) -> None:
    with opened("ada", viewport=DESK) as (page, _):
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


def test_confirmation_of_a_lower_maximum_is_in_view(opened: Open, scene: Scene) -> None:
    """The form is longer than the screen and was scrolled to its button."""
    with opened("ada", viewport=DESK) as (page, _):
        page.goto("/node-pools/train")
        page.locator("#pool-settings").click()
        page.locator("dialog [name=nodes_min]").fill("1")
        page.locator("dialog [name=nodes_max]").fill("2")
        page.locator("dialog").get_by_role("button", name="Save").click()
        expect(page.get_by_role("heading", name="Reduce train to 2 nodes?")).to_be_in_viewport()
