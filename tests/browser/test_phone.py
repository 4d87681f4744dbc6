"""Browser tests for phone screens: tables, tabs, forms and the admin site."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.data.inference_service import create_service
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import NARROW, WIDE
from tests.support.present import present

OUTSIDE = """bars => bars.map(bar => bar.getBoundingClientRect())
  .filter(box => box.width < 100 || box.left < 0 || box.right > innerWidth).length"""

MISPLACED_CHIPS = """rows => rows.filter((row) => {
  const chip = row.querySelector("td > .chip").getBoundingClientRect(), box = row.getBoundingClientRect();
  return chip.top - box.top > 24 || box.right - chip.right > (row.closest(".members") ? 48 : 24);
}).length"""

# "label:text" of each cell of a card except the one with the checkbox.
CARD_TEXTS = """cells => cells.filter((cell) => !cell.querySelector("input")).map((cell) => {
  const before = getComputedStyle(cell, "::before");
  const label = before.display === "none" ? "" : before.content.slice(1, -1);
  return `${label}:${cell.textContent.trim()}`;
})"""

# Links and buttons inside sentences are exempt: their targets extend beyond their letters.
SMALL_TARGETS = """() => [...document.querySelectorAll("button, .button, .icon-button, select, .tabs a")]
  .filter((one) => one.closest(".main") && !one.matches(".explained, .sorter") && one.offsetHeight)
  .filter((one) => one.checkVisibility() && one.getBoundingClientRect().height < 40)
  .map((one) => one.outerHTML.slice(0, 120))"""


def bars(page: Page) -> int:
    all_bars = page.locator("td.bar-column svg.bar")
    assert all_bars.evaluate_all(OUTSIDE) == 0
    return all_bars.count()


@pytest.mark.heavy
def test_fair_share_and_quota_bars_fit_on_a_phone_screen(opened: Open) -> None:
    with opened("ada", viewport=NARROW) as (page, faults):
        for path in ("/fair-share?pool=train", "/quotas?pool=train"):
            page.goto(path)
            assert bars(page) >= 5, path
            assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
        page.get_by_label("Actions for speech").click()
        page.get_by_role("link", name="Edit the quota for speech").click()
        expect(page.locator("#quota_gpu")).to_be_focused()
        expect(page.locator("#quota_gpu")).to_be_in_viewport()
        expect(page.get_by_role("button", name="Save quota")).to_be_in_viewport(ratio=1)
        assert faults == []


@pytest.mark.heavy
def test_select_all_selects_all_workloads_and_arrays_on_the_page(opened: Open) -> None:
    with opened("dave", viewport=NARROW) as (page, faults):
        page.goto("/workloads")
        boxes = page.locator("input[form=bulk]")
        page.get_by_label("Select all on this page").and_(page.locator(".pick-all input")).check()
        assert boxes.evaluate_all("boxes => boxes.every(box => box.checked)")
        expect(page.locator("[data-picked]")).to_contain_text(f"{boxes.count()} selected")
        page.get_by_role("checkbox", name="Select lr-sweep").uncheck()
        expect(page.locator("[data-picked]")).to_contain_text(f"{boxes.count() - 1} selected")
        page.get_by_role("checkbox", name="Select lr-sweep").check()
        page.get_by_role("button", name=re.compile(r"Cancel \d of \d selected")).click()
        expect(page.get_by_role("dialog")).to_contain_text("and 1 array?")
        assert faults == []


def test_workloads_and_the_queue_can_be_sorted_on_a_phone(opened: Open) -> None:
    with opened("ada", viewport=NARROW) as (page, faults):
        page.goto("/workloads")
        page.get_by_label("Sort by").select_option("Name")
        expect(page.locator("tbody th .plain-link").first).to_have_text("ablation-7")
        expect(page.get_by_label("Sort by")).to_have_value("name")
        page.goto("/queue")
        page.get_by_role("button", name="Filters").click()
        page.get_by_label("Sort by").select_option("Highest priority")
        page.wait_for_url(re.compile("sort=-priority"))
        expect(page.get_by_label("Sort by")).to_have_value("-priority")
        assert faults == []


@pytest.mark.heavy
def test_workload_state_is_at_the_top_right_of_each_row(opened: Open) -> None:
    with opened("ada", viewport=NARROW) as (page, faults):
        for path in ("/workloads", "/secrets", "/access", "/decisions"):
            page.goto(path)
            rows = page.locator("table.stacked").first.locator("tbody tr:has(> td > .chip)")
            assert rows.count() > 1 and rows.evaluate_all(MISPLACED_CHIPS) == 0, path
        page.set_viewport_size({"width": 1440, "height": 700})
        sign_out = page.get_by_role("button", name="Sign out")
        assert sign_out.evaluate("button => button.getBoundingClientRect().bottom <= innerHeight")
        assert faults == []


@pytest.mark.heavy
def test_current_tab_is_scrolled_into_view(opened: Open, scene: Scene) -> None:
    with opened("ada", viewport=NARROW) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['detr-long'].pk}")
        tabs = page.get_by_role("navigation", name="Workload", exact=True)
        tabs.get_by_role("link").last.click()
        current = tabs.locator("[aria-current=page]")
        expect(current).to_have_text(tabs.get_by_role("link").last.inner_text())
        box = current.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= NARROW["width"]
        assert faults == []


@pytest.mark.heavy
def test_edit_form_has_one_bar_with_both_actions_at_the_bottom(opened: Open, scene: Scene) -> None:
    with opened("ada", viewport=NARROW) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['policy-sweep'].pk}/edit")
        cancel = page.get_by_role("link", name="Back to workload")
        save = page.get_by_role("button", name="Save changes")
        tops = [button.evaluate("button => button.getBoundingClientRect().top") for button in (cancel, save)]
        assert tops[0] == tops[1] > NARROW["height"] - 100
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        last = page.locator("#document").evaluate("element => element.getBoundingClientRect().bottom")
        assert last <= tops[0], "the bar does not cover the end of the form"
        assert faults == []


@pytest.mark.heavy
def test_six_workloads_fit_on_a_phone_screen(opened: Open) -> None:
    box = "cells => cells.map(cell => cell.getBoundingClientRect())"
    with opened("ada", viewport={"width": 390, "height": 844}) as (page, faults):
        page.goto("/workloads")
        rows = page.locator(".workload-rows tbody tr")
        assert rows.nth(5).evaluate("row => row.getBoundingClientRect().bottom") <= 844
        row = page.locator("tr", has=page.get_by_role("link", name="whisper-tune"))
        gpus, utilization = row.locator("td.fact:visible").evaluate_all(box)
        assert gpus["top"] == utilization["top"], "details share a line"
        expect(row.locator("th")).to_contain_text("train · hiro")
        expect(row.locator("[data-label=Submitted]")).to_be_hidden()
        page.goto("/workloads?sort=-submitted")
        expect(row.locator("[data-label=Submitted]")).to_contain_text(
            re.compile(r"submitted 1 h 4\d min ago\s*by hiro")
        )
        page.set_viewport_size(NARROW)
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
        assert faults == []


def test_admin_site_shows_a_card_with_a_title_and_labels_for_each_row(opened: Open) -> None:
    with opened("ada", viewport=NARROW) as (page, faults):
        page.goto("/admin/scheduler/eviction/")
        cells = page.locator("#result_list tbody").first.locator("tr > *")
        assert cells.locator("visible=true").count() == cells.count()
        title = cells.filter(has=page.get_by_role("link", name="vision/detr-long"))
        box = cells.get_by_role("checkbox")
        expect(box).to_be_visible()
        tops = {round(cell["y"]) for cell in (title.bounding_box(), box.bounding_box()) if cell}
        assert max(tops) - min(tops) < 8, "the checkbox stands beside the title"
        shown = cells.evaluate_all(CARD_TEXTS)
        labels = ["Time", "Node pool", "GPUs", "Work lost", "Preemptor", "Rule"]
        assert sorted(text.split(":")[0] for text in shown if not text.startswith(":")) == sorted(labels)
        assert ":vision/detr-long" in shown and ":Reclaimed" in shown
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
        assert faults == []


@pytest.mark.heavy
def test_admin_site_cards_leave_out_empty_values(opened: Open) -> None:
    with opened("ada", viewport=NARROW) as (page, faults):
        page.goto("/admin/projects/quota/")
        research = page.locator("#result_list tbody", has=page.get_by_role("link", name="research")).first
        expect(research.locator(".field-part_of")).to_be_hidden()
        expect(research.locator(".field-limit")).to_be_visible()
        assert faults == []


@pytest.mark.heavy
def test_save_is_the_first_button_of_an_admin_form_on_a_phone(opened: Open) -> None:
    with opened("ada", viewport=NARROW) as (page, faults):
        page.goto("/admin/projects/project/")
        page.get_by_role("link", name="vision").click()
        buttons = [page.get_by_role("button", name="Save", exact=True)]
        buttons.append(page.get_by_role("button", name="Save and continue editing"))
        buttons.append(page.get_by_role("link", name="Delete project"))
        tops = [present(button.bounding_box())["y"] for button in buttons]
        assert tops == sorted(tops) and len(set(tops)) == 3
        assert faults == []


@pytest.mark.heavy
def test_admin_site_shows_the_title_instead_of_breadcrumbs(opened: Open, scene: Scene) -> None:
    with opened("ada", viewport=NARROW) as (page, faults):
        page.goto(f"/admin/scheduler/eviction/{present(scene.eviction).pk}/change/")
        path = page.locator("#header-inner h1 > :is(.crumb:not(.last), .page-name)")
        expect(path.last).to_be_visible()
        expect(path.last).to_contain_text("ctr-nightly", ignore_case=True)
        expect(path.filter(visible=True)).to_have_count(1)
        expect(page.get_by_text("Times in Europe/Berlin").filter(visible=True)).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
        page.set_viewport_size(WIDE)
        expect(path.filter(visible=True)).to_have_count(path.count())
        expect(page.get_by_text("Times in Europe/Berlin").filter(visible=True)).to_have_count(1)
        assert faults == []


@pytest.mark.heavy
def test_pool_header_stays_next_to_the_first_column_of_the_quota_grid(opened: Open) -> None:
    scroll = "head => { head.closest('.grid-wrap').scrollLeft = head.offsetLeft - 128; }"
    with opened("ada", viewport=NARROW, has_touch=True) as (page, faults):
        page.goto("/quotas")
        corner = page.locator("#quota-grid th.corner").bounding_box()
        head = page.locator("#quota-grid [data-pool-head=local] .pool-head")
        for column in (1, 2):
            page.locator("#quota-grid thead [data-pool=local]").nth(column).evaluate(scroll)
            box = head.bounding_box()
            assert corner and box and box["x"] >= corner["x"] + corner["width"], column
        assert faults == []


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/workloads",
        "/queue",
        "/services",
        "/usage",
        "/access",
        "/secrets",
        "/notifications",
        "/account",
        "/node-pools/train",
    ],
)
def test_controls_on_a_phone_are_at_least_40_pixels_high(opened: Open, path: str) -> None:
    with opened("ada", viewport=NARROW, has_touch=True) as (page, faults):
        page.goto(path)
        assert page.evaluate(SMALL_TARGETS) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
        assert faults == []


@pytest.mark.heavy
def test_controls_of_workload_pages_on_a_phone_are_at_least_40_pixels_high(
    opened: Open, scene: Scene
) -> None:
    names = ("diffusion-xl", "policy-sweep", "detr-long")
    paths = [f"/workloads/{scene.workloads[name].pk}" for name in names]
    with opened("ada", viewport=NARROW, has_touch=True) as (page, faults):
        for path in (*paths, f"/arrays/{present(scene.array).pk}"):
            page.goto(path)
            assert page.evaluate(SMALL_TARGETS) == [], path
            assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"], path
        assert faults == []


@pytest.mark.parametrize("path", ["/workloads", "/queue", "/evictions", "/decisions", "/services"])
def test_page_with_open_filters_is_no_wider_than_a_phone(opened: Open, scene: Scene, path: str) -> None:
    create_service(scene)
    with opened("ada", viewport={"width": 390, "height": 844}, has_touch=True) as (page, faults):
        page.goto(path)
        tabs = page.locator("#main nav.tabs a").evaluate_all("links => links.map(link => link.href)")
        for address in tabs or [path]:
            page.goto(address)
            toggle = page.get_by_role("button", name="Filters")
            if toggle.count():
                toggle.click()
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, address
        assert faults == []


@pytest.mark.heavy
def test_log_tools_fit_on_one_line(opened: Open, scene: Scene) -> None:
    with opened("dave", viewport=NARROW) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['diffusion-xl'].pk}")
        tools = page.locator(".log-head > h2, .log-head > .actions > *:visible")
        assert tools.count() >= 5
        tops = tools.evaluate_all("all => all.map(each => each.getBoundingClientRect())")
        assert max(box["top"] for box in tops) < min(box["bottom"] for box in tops)
        box = page.get_by_role("link", name="Full screen").bounding_box()
        assert box and box["width"] >= 40
        assert faults == []


@pytest.mark.heavy
def test_segmented_controls_fit_on_one_line_on_a_phone(opened: Open, scene: Scene) -> None:
    tops = "items => new Set(items.map(item => Math.round(item.getBoundingClientRect().top))).size"
    with opened("ada", viewport={"width": 360, "height": 780}) as (page, faults):
        page.goto("/submit")
        assert page.locator("#code-card .sources label").evaluate_all(tops) == 1
        page.get_by_role("radio", name="Files from this computer").check(force=True)
        page.goto(f"/workloads/{scene.workloads['diffusion-xl'].pk}/resources")
        assert page.get_by_role("navigation", name="Time range").get_by_role("link").evaluate_all(tops) == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert faults == []


@pytest.mark.parametrize("way", ["button", "key"])
def test_closing_the_menu_returns_the_focus_to_its_button(opened: Open, way: str) -> None:
    with opened("dave", viewport=NARROW) as (page, faults):
        page.goto("/workloads")
        menu = page.locator("[data-menu]")
        menu.click()
        expect(page.locator("#nav a.nav-link").first).to_be_focused()
        if way == "button":
            page.locator("[data-menu-close]:visible").click()
        else:
            page.keyboard.press("Escape")
        expect(menu).to_be_focused()
        expect(menu).to_have_attribute("aria-expanded", "false")
        assert faults == []


@pytest.mark.heavy
def test_filters_and_columns_of_the_workload_list_are_aligned_on_a_phone(opened: Open) -> None:
    boxes = """all => all.map(each => each.getBoundingClientRect())
      .map(box => [box.left, box.width, box.top])"""
    with opened("ada", viewport={"width": 390, "height": 844}, has_touch=True) as (page, faults):
        page.goto("/workloads")
        page.get_by_role("button", name="Filters").click()
        fields = page.locator("#filters .field:not(.search) > :is(select, input)").evaluate_all(boxes)
        assert len(fields) == 4
        assert len({width for _, width, _ in fields}) == 1, "the fields have equal widths"
        assert len({left for left, *_ in fields}) == len({top for *_, top in fields}) == 2
        search, download = (
            page.locator("#search").bounding_box(),
            page.locator("#filters .csv").bounding_box(),
        )
        assert search and download and download["y"] == search["y"], "the download stays beside the search"
        page.locator("#columns > summary").click()
        menu, title = (
            page.locator("#columns > .menu").bounding_box(),
            page.get_by_role("heading", level=1).bounding_box(),
        )
        assert menu and title and menu["x"] >= title["x"]
        heights = page.locator("#columns .check").evaluate_all("all => all.map(each => each.offsetHeight)")
        assert min(heights) >= 40
        assert faults == []


def test_wrapped_workload_facts_do_not_begin_with_a_dot(opened: Open) -> None:
    starts = """dots => dots.filter((dot) => {
      const box = dot.getBoundingClientRect(), row = dot.closest(".facts").getBoundingClientRect();
      return box.left >= row.left && dot.parentElement.getBoundingClientRect().left <= row.left;
    }).length"""
    with opened("ada", viewport={"width": 390, "height": 844}, has_touch=True) as (page, faults):
        page.goto("/workloads")
        dots = page.locator(".workload-rows .facts .dot:visible")
        assert dots.count() > 10 and dots.evaluate_all(starts) == 0
        separators = page.locator(".workload-rows td").evaluate_all(
            "all => all.filter(each => getComputedStyle(each, '::after').content.includes('·')).length"
        )
        assert separators == 0
        assert faults == []


def test_own_workloads_on_the_overview_include_a_running_workload(opened: Open) -> None:
    with opened("dave", viewport=NARROW) as (page, faults):
        page.goto("/")
        rows = page.get_by_role("region", name=re.compile("^My workloads")).locator("tbody tr:visible")
        expect(rows).to_have_count(3)
        for state in ("Pending", "Running"):
            expect(rows.get_by_text(state, exact=True).first).to_be_visible()
        assert faults == []


@pytest.mark.heavy
def test_chart_tooltip_is_above_the_plot(opened: Open) -> None:
    with opened("ada", viewport=NARROW, has_touch=True) as (page, faults):
        page.goto("/")
        chart = page.get_by_role("region", name=re.compile("^GPU utilization")).locator(".step-chart")
        plot, tooltip = chart.locator("svg[data-points]"), chart.locator(".readout")
        plot.tap()
        expect(tooltip).to_be_visible()
        box, under = tooltip.bounding_box(), plot.bounding_box()
        assert box and under and box["y"] + box["height"] <= under["y"]
        assert box["x"] >= 0 and box["x"] + box["width"] <= NARROW["width"]
        assert faults == []


@pytest.mark.heavy
def test_dates_do_not_break_across_lines(opened: Open, scene: Scene) -> None:
    with opened("dave", viewport=NARROW) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['detr-long'].pk}")
        page.locator("#why time[data-style=moment]").first.wait_for()
        breakable = "all => all.filter((one) => getComputedStyle(one).whiteSpace !== 'nowrap').length"
        assert page.locator("time[data-style=moment]").evaluate_all(breakable) == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
        assert faults == []


@pytest.mark.parametrize("path", ["/", "/workloads", "/queue"])
def test_links_on_a_phone_are_at_least_24_pixels_high(opened: Open, path: str) -> None:
    with opened("ada", viewport=NARROW, has_touch=True) as (page, faults):
        page.goto(path)
        heights = page.locator(".main a:visible").evaluate_all(
            "all => all.map(link => [link.textContent, Math.round(link.getBoundingClientRect().height)])"
        )
        assert heights and [each for each in heights if each[1] < 24] == []
        assert faults == []
