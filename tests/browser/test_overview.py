"""Browser tests for the charts and bars of the overview."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.driver.chromium import WIDE, open_settled


@pytest.mark.heavy
def test_hourly_average_readout_shows_the_hour_of_its_bar(opened: Open) -> None:
    with opened("ada") as (page, faults):
        open_settled(page, "/")
        chart, readout = (
            page.get_by_role("img", name="Used, allocated and free GPUs"),
            page.locator(".readout.on"),
        )
        column = chart.locator("rect.free").nth(5).bounding_box()
        frame = chart.bounding_box()
        assert column is not None and frame is not None
        texts = set()
        for share in (0.1, 0.5, 0.9):
            at = column["x"] - frame["x"] + share * column["width"]
            chart.hover(position={"x": at, "y": frame["height"] / 2}, force=True)
            expect(readout).to_have_text(re.compile(r"^\d+ \w{3}, (\d\d):00\u2013(\d\d):00\s+used [\d.]+"))
            texts.add(readout.inner_text())
        assert len(texts) == 1, "all points of a bar have the same hour and numbers"
        rows = [row.split("\n")[:2] for row in readout.locator("div").all_inner_texts()]
        assert [name for name, _ in rows] == [
            "used", "allocated, idle", "allocated, not measured", "free", "total",
        ]  # fmt: skip
        assert readout.locator("rect").count() == 4, "each series has its colour, and the total has none"
        frame = chart.bounding_box()
        band, box = page.locator(".readout-marker").bounding_box(), readout.bounding_box()
        assert frame is not None and band is not None and box is not None
        chart.evaluate("svg => { svg.dataset.old = 'yes'; }")
        page.evaluate("document.dispatchEvent(new CustomEvent('berth:done', {detail: {message: 'x'}}))")
        expect(chart).not_to_have_attribute("data-old", "yes")
        expect(readout).to_contain_text(re.compile(r"^\d+ \w{3}"))
        assert abs(band["width"] - frame["width"] / 24) < 1, "the whole hour is highlighted"
        assert box["x"] >= band["x"] + band["width"] and box["y"] >= frame["y"] - 1, "the legend is visible"
        assert faults == []


@pytest.mark.heavy
@pytest.mark.parametrize(("user", "path"), [("ada", "/"), ("dave", "/"), ("ada", "/?pool=local")])
def test_overview_columns_of_similar_length_end_together(user: str, path: str, opened: Open) -> None:
    with opened(user) as (page, faults):
        open_settled(page, path)
        ends = page.locator(".balanced > .stack").evaluate_all(
            "stacks => stacks.map(stack => Math.round(stack.lastElementChild.getBoundingClientRect().bottom))"
        )
        assert len(ends) == 2 and (abs(ends[0] - ends[1]) <= 1 or path != "/")
        chart = page.get_by_role("img", name="Used, allocated and free GPUs").bounding_box()
        assert chart and 208 <= chart["height"] <= 208 + 6 * 16, "the chart grows a little with its card"
        assert faults == []


@pytest.mark.heavy
def test_quota_and_fair_share_marks_have_different_shapes(opened: Open) -> None:
    with opened("ada") as (page, faults):
        open_settled(page, "/")
        bar = page.locator(".queues-card .queue").filter(has_text="speech").locator("svg.bar")
        shapes = bar.locator("line").evaluate_all(
            "all => Object.fromEntries(all.map(each => [each.getAttribute('class'), "
            "[getComputedStyle(each).strokeLinecap, each.y1.baseVal.value === each.y2.baseVal.value]]))"
        )
        assert shapes == {
            "edge": ["butt", False],
            "quota": ["butt", False],
            "edge round": ["round", True],
            "share": ["round", True],
        }
        assert faults == []


@pytest.mark.heavy
def test_average_utilization_and_its_data_table_fit_in_their_cards(opened: Open) -> None:
    overflow = "each => each.scrollWidth - each.clientWidth"
    with opened("ada", viewport=WIDE) as (page, faults):
        open_settled(page, "/")
        note = page.locator(".overview-figures .figure").first.locator(".note > span")
        expect(note).to_have_text(re.compile(r"^\d+% used (in the last hour|\(1 h\), \d+% measured)$"))
        note.evaluate("each => { each.textContent = '100% used (1 h), 68% measured' }")
        assert note.evaluate(overflow) == 0
        chart, body = (page.locator(f".utilization-card {name}") for name in (".step-chart", ".card-body"))
        space = [each.evaluate("each => each.getBoundingClientRect().bottom") for each in (chart, body)]
        assert space[1] - space[0] < 60, "the chart fills its card above the data table"
        page.get_by_text("Data table").click()
        expect(page.get_by_role("columnheader", name="Total")).to_be_visible()
        assert page.locator("#course-table .table-wrap").evaluate(overflow) == 0
        assert faults == []
