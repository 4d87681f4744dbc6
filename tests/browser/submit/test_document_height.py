"""Browser tests for the height of the document below a long prediction."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.axe import accessibility_faults

# The number of whole lines of the document inside the window.
LINES = """(box) => {
  const style = getComputedStyle(box), area = box.getBoundingClientRect();
  const top = area.top + parseFloat(style.paddingTop), bottom = Math.min(area.bottom, innerHeight);
  return Math.floor((bottom - top) / parseFloat(style.lineHeight));
}"""


@pytest.mark.parametrize("height", [700, 900])
def test_six_lines_of_the_document_stay_visible_below_a_long_prediction(
    opened: Open, scene: Scene, height: int
) -> None:
    with opened("ada", viewport={"width": 1440, "height": height}) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['policy-sweep'].pk}/edit")
        expect(page.locator("#prediction-title")).to_be_visible()
        document, answer = page.locator("#document"), page.locator("#answer")
        document.fill(document.input_value() + "# comment\n" * 20)
        expect(page.get_by_role("heading", name="Stays queued")).to_be_visible()
        answer.locator("details").evaluate_all("all => all.forEach((details) => { details.open = true; })")
        # As on a page with many reasons.
        answer.evaluate("(answer, height) => { answer.firstElementChild.style.minHeight = height; }", "40rem")
        assert answer.evaluate("answer => answer.scrollHeight > answer.clientHeight")
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        assert document.evaluate(LINES) >= 6
        title = page.locator("#prediction-title").bounding_box()
        assert title and 0 < title["y"] < height / 2
        answer.evaluate("answer => answer.scrollTo(0, answer.scrollHeight)")
        last, card = answer.locator(":scope > *").last.bounding_box(), answer.bounding_box()
        assert last and card and last["y"] + last["height"] <= card["y"] + card["height"] + 1
        assert accessibility_faults(page) == []
        assert faults == []
