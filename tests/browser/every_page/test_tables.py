"""Browser tests for tables and charts: sorting, search and CSV export."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.driver.chromium import WIDE, open_settled


@pytest.mark.heavy
def test_small_table_stays_sorted_after_updates(opened: Open) -> None:
    with opened("ada") as (page, faults):
        open_settled(page, "/node-pools/train?tab=capacity")
        page.get_by_text("Data table").click()
        table = page.locator("table").filter(has=page.locator("caption", has_text="Nodes over time"))
        head = table.get_by_role("columnheader", name="Current")
        cells = table.locator("tbody tr td:nth-child(3)")
        for order, downwards in (("ascending", False), ("descending", True)):
            head.get_by_role("button").press("Enter")
            expect(head).to_have_attribute("aria-sort", order)
            numbers = sorted((int(text) for text in cells.all_inner_texts()), reverse=downwards)
            expect(cells).to_have_text([str(number) for number in numbers])
        table.evaluate("table => { table.dataset.old = 'yes'; }")
        page.evaluate("document.dispatchEvent(new CustomEvent('berth:done', {detail: {message: 'x'}}))")
        expect(table).not_to_have_attribute("data-old", "yes")
        expect(head).to_have_attribute("aria-sort", "descending")  # a refresh does not change the order
        with page.expect_download() as download:
            page.get_by_role("button", name="Download Nodes over time, newest first as CSV").click()
        text = download.value.path().read_text()
        assert text.splitlines()[0] == "From,Desired nodes,Current nodes,Pending nodes,Draining nodes"
        assert len(text.splitlines()) == 1 + cells.count()
        assert faults == []


def test_list_is_searched_while_typing_without_a_reload(opened: Open) -> None:
    with opened("ada") as (page, faults):
        open_settled(page, "/access")
        page.evaluate("window.stillTheSame = true")
        search = page.get_by_placeholder("User, role, scope")
        search.press_sequentially("dave")
        expect(page.locator("table").first.locator("tbody tr")).to_have_count(1)
        expect(search).to_be_focused()
        page.wait_for_url("**people-search=dave**")
        page.get_by_role("columnheader", name="Since").get_by_role("link").click()
        page.wait_for_url("**people-sort=since**")
        assert page.evaluate("window.stillTheSame")
        with page.expect_download() as download:
            page.locator("#members a[download]").first.click()
        rows = download.value.path().read_text().splitlines()
        assert rows[0] == "User,Email,Role,Scope,Since,State,Created,Last sign-in"
        assert [row.split(",")[0] for row in rows[1:]] == ["dave"]
        assert faults == []


@pytest.mark.heavy
def test_expanded_chart_table_has_a_search_field(opened: Open) -> None:
    with opened("ada") as (page, faults):
        open_settled(page, "/nodes/train-0")
        search = page.get_by_role("searchbox", name="Search Used and allocated resources per minute")
        expect(search).to_have_count(0)  # the search is hidden together with the table
        page.locator("#use-table > summary").click()
        expect(search).to_be_visible()
        assert faults == []


@pytest.mark.heavy
def test_expanded_chart_table_fits_in_its_card(opened: Open) -> None:
    with opened("ada", viewport=WIDE) as (page, faults):
        open_settled(page, "/")
        page.locator("#course-table summary").click()
        card, table = page.locator(".utilization-card"), page.locator("#course-table")
        expect(table.get_by_role("row").last).to_be_visible()
        ends = [each.evaluate("each => each.getBoundingClientRect().bottom") for each in (table, card)]
        assert ends[0] <= ends[1], "the table lies over the next card"
        assert faults == []


@pytest.mark.heavy
def test_live_updates_set_no_inline_styles(opened: Open) -> None:
    with opened("ada") as (page, faults):
        open_settled(page, "/workloads")
        link = page.locator("#rows th a[id]").first
        link.evaluate("link => { link.dataset.old = 'yes'; link.style.opacity = '0.5'; }")
        page.evaluate("document.dispatchEvent(new CustomEvent('berth:done', {detail: {message: 'x'}}))")
        expect(link).not_to_have_attribute("data-old", "yes")
        assert faults == []


@pytest.mark.heavy
def test_hyphen_in_a_unit_has_its_normal_width_in_number_columns(opened: Open) -> None:
    width = """text => {
      const range = document.createRange(), node = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
      let found = node.nextNode();
      while (!found.data.includes("-")) found = node.nextNode();
      const at = found.data.indexOf("-");
      range.setStart(found, at);
      range.setEnd(found, at + 1);
      return range.getBoundingClientRect().width / parseFloat(getComputedStyle(found.parentElement).fontSize);
    }"""
    with opened("ada") as (page, faults):
        open_settled(page, "/usage?span=7d")
        plain = page.get_by_text("GPU-hours and cost").evaluate(width)
        assert page.get_by_role("columnheader", name="Idle GPU-hours").evaluate(width) < 1.2 * plain
        open_settled(page, "/evictions")
        assert page.locator("td[data-label='Work lost'] .unit").first.evaluate(width) < 1.2 * plain
        assert faults == []
