"""Browser tests for the bar of a workload's periods: tooltips for the mouse, the keyboard and touch."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.axe import accessibility_faults

pytestmark = pytest.mark.heavy

TIMES = r"\d\d:\d\d(:\d\d)? to (now|about \d\d:\d\d|\d\d:\d\d(:\d\d)?)"


def centre(page: Page, place: int) -> tuple[float, float]:
    """Return the middle of a segment. It is found by a single script, because page updates replace the
    segments.
    """
    x, y = page.evaluate(
        """(place) => {
            const all = document.querySelectorAll(".period-bar .segment > rect:first-child");
            const box = all[place].getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }""",
        place,
    )
    return x, y


def test_every_segment_shows_its_details_on_hover_and_focus(opened: Open, scene: Scene) -> None:
    with opened("dave", timezone_id="UTC") as (page, faults):
        page.goto(f"/workloads/{scene.workloads['detr-long'].pk}/timeline")
        segments, tip = page.locator(".period-bar .segment"), page.locator(".periods > .readout")
        first_line = "each => each.getAttribute('aria-label').split('\\n')[0]"
        titles = segments.evaluate_all(f"all => all.map({first_line})")
        assert titles == [
            "Pending", "Starting", "Running", "Work lost", "Stopping", "Restart delay",
            "Restart delay, expected", "Pending, expected",
        ]  # fmt: skip
        for place, title in enumerate(titles):
            page.mouse.move(*centre(page, place))
            expect(tip).to_be_visible()
            expect(tip).to_have_text(re.compile(rf"{title}\n(now to .*|{TIMES})\n[\dhmins ]+( so far)?"))
        assert (
            page.evaluate(
                """() => document.querySelector(".periods > .readout").getBoundingClientRect().top
                - document.querySelector(".period-bar .segment > rect").getBoundingClientRect().bottom"""
            )
            > 0
        ), "the tooltip does not cover the marks above the bar"
        legend = page.evaluate(
            """() => document.querySelector(".periods > .legend").getBoundingClientRect().top
            - document.querySelector(".periods > .readout").getBoundingClientRect().bottom"""
        )
        assert legend >= 0, "the tooltip does not cover the legend"
        page.mouse.move(*centre(page, 4))
        expect(page.locator(".timeline li.lit")).to_contain_text("Reclaimed")
        expect(tip).to_have_text(re.compile(rf"Stopping\n{TIMES}\n1 min"))
        page.evaluate("htmx.ajax('GET', location.pathname, {source: '#main-part', target: '#main-part'})")
        expect(page.locator(".period-bar")).to_have_count(1)
        expect(tip).to_contain_text("Stopping")
        page.mouse.move(5, 5)
        expect(tip).to_be_hidden()
        page.locator("#tab-spec").focus()
        page.keyboard.press("Tab")
        expect(segments.first).to_be_focused()
        expect(tip).to_contain_text("Pending")
        for _ in titles:
            page.keyboard.press("ArrowRight")
        expect(segments.last).to_be_focused()
        expect(tip).to_contain_text("Pending, expected")
        page.keyboard.press("Escape")
        expect(tip).to_be_hidden()
        assert accessibility_faults(page) == [] and faults == []


def test_short_segments_can_be_tapped(opened: Open, scene: Scene) -> None:
    phone = {"width": 390, "height": 844}
    with opened("dave", viewport=phone, has_touch=True, is_mobile=True, timezone_id="UTC") as (page, faults):
        page.goto(f"/workloads/{scene.workloads['detr-long'].pk}/timeline")
        tip = page.locator(".periods > .readout")
        x, y = centre(page, 4)
        page.touchscreen.tap(x - 2, y)
        expect(tip).to_contain_text("Stopping")
        box = tip.bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
        page.touchscreen.tap(*centre(page, 2))
        expect(tip).to_contain_text("Running")
        page.touchscreen.tap(*centre(page, 3))
        expect(tip).to_contain_text("Work lost")
        page.locator("h1").tap()
        expect(tip).to_be_hidden()
        assert faults == []


@pytest.mark.parametrize("width", [390, 1440])
def test_wide_segments_show_their_duration_without_a_tooltip(opened: Open, scene: Scene, width: int) -> None:
    with opened("dave", viewport={"width": width, "height": 900}, timezone_id="UTC") as (page, _):
        page.goto(f"/workloads/{scene.workloads['detr-long'].pk}/timeline")
        texts = page.locator(".period-bar text:visible")
        states = texts.evaluate_all("all => all.map(each => each.parentElement.classList[1])")
        assert states == ["running", "pending"]
        inside = """all => all.every((each) => each.getBoundingClientRect().right
            <= each.parentElement.querySelector('rect').getBoundingClientRect().right)"""
        assert texts.evaluate_all(inside)
