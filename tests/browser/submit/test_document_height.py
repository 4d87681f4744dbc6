"""Browser tests for the full prediction and for the height of the document below it."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.axe import accessibility_faults

pytestmark = pytest.mark.heavy

LENGTHEN = (
    """() => { document.querySelector("#prediction").style.minHeight = "45rem"; }"""  # as with many reasons
)
SCROLLING_PARTS = """() => [...document.querySelectorAll("#submit-form *:not(textarea)")]
  .filter((part) => part.scrollHeight > part.clientHeight + 1)
  .filter((part) => /auto|scroll/.test(getComputedStyle(part).overflowY))
  .map((part) => part.id)"""
AT_THE_END = "scrollY + innerHeight >= document.documentElement.scrollHeight - 1"
# Whether eight lines of the document are visible below the prediction.
SHOWS_EIGHT_LINES = """() => {
  const box = document.querySelector("#document"), area = box.getBoundingClientRect();
  const style = getComputedStyle(box);
  const height = Math.min(area.bottom, innerHeight) - area.top - parseFloat(style.paddingTop);
  return height / parseFloat(style.lineHeight) >= 8;
}"""


@pytest.mark.parametrize("height", [700, 900])
def test_long_prediction_scrolls_with_the_page_below_its_title(
    opened: Open, scene: Scene, height: int
) -> None:
    with opened("ada", viewport={"width": 1440, "height": height}) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['policy-sweep'].pk}/edit")
        expect(page.get_by_role("heading", name="Stays queued")).to_be_visible()
        expect(page.locator("#make-change")).to_be_attached()
        page.evaluate(LENGTHEN)
        expect(page.locator("#document")).to_be_hidden()
        assert page.evaluate(SCROLLING_PARTS) == []
        for target in ("500", "document.body.scrollHeight"):
            page.evaluate(f"scrollTo(0, {target})")
            expect(page.locator("#prediction-title")).to_be_in_viewport(ratio=1)
        page.wait_for_function(AT_THE_END)
        expect(page.locator("#expand")).to_be_in_viewport(ratio=1)
        assert accessibility_faults(page) == []
        page.get_by_role("button", name="Expand document").click()
        expect(page.locator("#document")).to_be_focused()
        page.wait_for_function(SHOWS_EIGHT_LINES)
        assert faults == []


@pytest.mark.parametrize("width", [1024, 1440])
def test_predicted_eviction_and_several_changes_fit_without_scrolling(
    opened: Open, scene: Scene, width: int
) -> None:
    with opened("ada", viewport={"width": width, "height": 900}) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['policy-sweep'].pk}/edit")
        expect(page.locator("#make-change")).to_be_in_viewport(ratio=1)
        page.wait_for_function(SHOWS_EIGHT_LINES)
        for label, value in (
            ("Replicas", "5"),
            ("CPU cores", "4"),
            ("Max runtime", "2h"),
            ("Memory", "16 GiB"),
        ):
            page.get_by_label(label, exact=True).fill(value)
        page.evaluate("scrollTo(0, 0)")
        expect(page.locator("#prediction-title")).to_contain_text("evict")
        expect(page.locator("#change-summary")).to_have_text("4 unsaved changes")
        for part in ("#prediction-title", "#prediction-basis", "#changes", "#reset-reason", "#expand"):
            expect(page.locator(part)).to_be_in_viewport(ratio=1)
        assert page.evaluate(SCROLLING_PARTS) == []
        assert faults == []


def test_focused_document_stays_visible_below_a_long_prediction(opened: Open, scene: Scene) -> None:
    with opened("ada", viewport={"width": 1440, "height": 900}) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['policy-sweep'].pk}/edit")
        expect(page.locator("#make-change")).to_be_attached()
        document = page.locator("#document")
        document.fill(document.input_value() + "# a comment\n" * 20)
        page.evaluate(LENGTHEN)
        document.press("End")
        page.wait_for_function(SHOWS_EIGHT_LINES)
        expect(page.locator("#prediction-title")).to_be_in_viewport(ratio=1)
        assert faults == []


def test_following_a_field_link_closes_the_expanded_document(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/submit")
        page.locator("#document").fill("name: My Run\nproject: vision\ncommand: 'true'\nroles: [{gpu: 1}]\n")
        expect(page.locator(".problems a").first).to_be_visible()
        page.get_by_role("button", name="Expand document").click()
        expect(page.get_by_label("Name", exact=True)).to_be_hidden()
        page.locator(".problems a").first.click()
        expect(page.get_by_label("Name", exact=True)).to_be_in_viewport()
        assert faults == []
