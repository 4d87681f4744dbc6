"""Browser tests for the height of the document below a long prediction."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.axe import accessibility_faults

# Whether a prediction that is longer than the window leaves six lines of the document, and can be scrolled
# from its title to its end. Each call opens everything again, because a new prediction replaces the old one.
LEAVES_SIX_LINES = """() => {
  const box = document.querySelector("#document"), answer = document.querySelector("#answer");
  for (const details of answer.querySelectorAll("details")) details.open = true;
  answer.querySelector("#prediction").style.minHeight = "40rem"; // as with many reasons
  scrollTo(0, document.body.scrollHeight);
  const style = getComputedStyle(box), area = box.getBoundingClientRect();
  const top = area.top + parseFloat(style.paddingTop), bottom = Math.min(area.bottom, innerHeight);
  answer.scrollTo(0, 0);
  const title = document.querySelector("#prediction-title").getBoundingClientRect();
  answer.scrollTo(0, answer.scrollHeight);
  const last = [...answer.children].filter((part) => part.offsetParent).at(-1).getBoundingClientRect();
  return answer.scrollHeight > answer.clientHeight
    && Math.floor((bottom - top) / parseFloat(style.lineHeight)) >= 6
    && title.top > 0 && title.top < innerHeight / 2
    && last.bottom <= answer.getBoundingClientRect().bottom + 1;
}"""


@pytest.mark.parametrize("height", [700, 900])
def test_six_lines_of_the_document_stay_visible_below_a_long_prediction(
    opened: Open, scene: Scene, height: int
) -> None:
    with opened("ada", viewport={"width": 1440, "height": height}) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['policy-sweep'].pk}/edit")
        expect(page.locator("#prediction-title")).to_be_visible()
        document = page.locator("#document")
        document.fill(document.input_value() + "# comment\n" * 20)
        expect(page.get_by_role("heading", name="Stays queued")).to_be_visible()
        page.wait_for_function(LEAVES_SIX_LINES)
        assert accessibility_faults(page) == []
        assert faults == []


# Whether the prediction and the cards with it are shown in full, with eight lines of the document below them.
SHOWS_ALL = """() => {
  const box = document.querySelector("#document"), answer = document.querySelector("#answer");
  const style = getComputedStyle(box), area = box.getBoundingClientRect();
  const height = Math.min(area.bottom, innerHeight) - area.top - parseFloat(style.paddingTop);
  const lines = height / parseFloat(style.lineHeight);
  return answer.scrollHeight <= answer.clientHeight && lines >= 8;
}"""


@pytest.mark.heavy
@pytest.mark.parametrize("width", [1024, 1440])
def test_prediction_with_its_action_and_the_changes_are_shown_without_scrolling(
    opened: Open, scene: Scene, width: int
) -> None:
    with opened("ada", viewport={"width": width, "height": 900}) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['policy-sweep'].pk}/edit")
        expect(page.locator("#make-change")).to_be_in_viewport(ratio=1)
        page.wait_for_function(SHOWS_ALL, timeout=10_000)
        page.get_by_label("Replicas", exact=True).fill("5")
        expect(page.locator("#prediction-title")).to_contain_text("evict")
        if width == 1440:
            page.wait_for_function(SHOWS_ALL, timeout=10_000)
        assert faults == []


@pytest.mark.heavy
def test_new_verdict_scrolls_the_prediction_back_to_its_title(opened: Open, scene: Scene) -> None:
    with opened("ada", viewport={"width": 1280, "height": 560}) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['policy-sweep'].pk}/edit")
        page.locator("#make-change").scroll_into_view_if_needed()
        assert page.locator("#answer").evaluate("answer => answer.scrollTop") > 0
        page.locator("#make-change").click()
        expect(page.locator("#prediction-title")).to_contain_text("evict")
        page.wait_for_function("document.querySelector('#answer').scrollTop === 0")
        assert faults == []
