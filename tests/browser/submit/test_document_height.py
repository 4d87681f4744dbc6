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
  answer.firstElementChild.style.minHeight = "40rem"; // as with many reasons
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
