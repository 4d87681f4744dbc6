"""Browser tests for the bar at the bottom of the submission page on phones."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open


@pytest.mark.heavy
def test_phone_bar_keeps_its_height_while_the_prediction_changes(opened: Open) -> None:
    with opened("dave", viewport={"width": 390, "height": 844}, has_touch=True) as (page, faults):
        page.goto("/submit?kind=train")
        bar, heights = page.locator(".verdict-bar"), set()
        for replicas, title, links in (
            ("1", "Would start", 1),
            ("40", "Can never", 1),
            ("none", "1 error", 0),
        ):
            page.get_by_label("Replicas", exact=True).fill(replicas)
            expect(page.locator("#verdict")).to_contain_text(title)
            expect(bar.get_by_role("link").filter(visible=True)).to_have_count(links)
            heights.add(bar.evaluate("bar => bar.offsetHeight"))
        assert len(heights) == 1 and max(heights) < 72, heights
        shows_error = page.get_by_role("button", name="Show 1 error", exact=True)
        button = shows_error.bounding_box()
        card = page.locator("#fields section").first.bounding_box()
        assert button and card and button["x"] + button["width"] == card["x"] + card["width"]
        errors = page.locator("#faults-title").bounding_box()
        assert errors and errors["y"] > card["y"], "the form does not move while errors come and go"
        shows_error.click()
        expect(page.get_by_label("Replicas", exact=True)).to_be_focused()
        assert faults == []
