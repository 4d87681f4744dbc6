"""Browser tests for the map of an array's tasks."""

import re

import pytest
from playwright.sync_api import WebSocketRoute, expect

from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.axe import accessibility_faults
from tests.browser.driver.chromium import NARROW, WIDE
from tests.browser.driver.held_requests import hold_requests
from tests.support.present import present

pytestmark = pytest.mark.heavy


def test_task_map_is_one_tab_stop_and_arrow_keys_move_within_it(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, faults):
        page.goto(f"/arrays/{present(scene.array).pk}")
        focused, note = page.locator("#task-map a:focus"), page.locator("#task-note")
        page.get_by_role("link", name="Download CSV").focus()
        page.keyboard.press("Tab")
        expect(focused).to_have_attribute("aria-label", re.compile("^lr-sweep-0: "))
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(focused).to_have_attribute("aria-label", re.compile("^lr-sweep-2: completed, LR="))
        expect(note).to_have_text(focused.get_attribute("aria-label") or "")
        above = present(focused.bounding_box())
        page.keyboard.press("ArrowDown")
        below = present(focused.bounding_box())
        assert above["x"] == below["x"] and above["y"] < below["y"]
        page.keyboard.press("ArrowUp")
        expect(focused).to_have_attribute("aria-label", re.compile("^lr-sweep-2: "))
        assert accessibility_faults(page) == []
        page.keyboard.press("Tab")
        expect(focused).to_have_count(0)
        expect(note).to_have_count(0)
        page.keyboard.press("Shift+Tab")
        expect(focused).to_have_attribute("aria-label", re.compile("^lr-sweep-2: "))
        page.keyboard.press("End")
        expect(focused).to_have_attribute("aria-label", re.compile("^lr-sweep-119: "))
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="lr-sweep-119")).to_be_visible()
        assert faults == []


def test_tapping_the_task_map_shows_a_link_to_the_nearest_task(opened: Open, scene: Scene) -> None:
    with opened("dave", viewport={"width": 390, "height": 844}, has_touch=True) as (page, faults):
        page.goto(f"/arrays/{present(scene.array).pk}")
        expect(page.locator("#smallest-change")).to_contain_text("The next task would start")
        task, note = page.locator("#task-12"), page.locator("#task-note")
        task.scroll_into_view_if_needed()
        frame = present(task.bounding_box())
        page.touchscreen.tap(frame["x"] + frame["width"] / 2, frame["y"] - 1)  # between two rows
        expect(note).to_contain_text(re.compile("^lr-sweep-12: failed, LR="))
        expect(note).to_be_in_viewport(ratio=1)
        assert accessibility_faults(page) == []
        page.locator("#tasks-title").tap()
        expect(note).to_have_count(0)
        frame = present(task.bounding_box())
        page.touchscreen.tap(frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2)
        note.get_by_role("link", name="Open task").tap()
        expect(page.get_by_role("heading", name="lr-sweep-12")).to_be_visible()
        assert faults == []


@pytest.mark.parametrize("link", ["#unfold-held", "#state-completed"])
def test_expanding_the_task_list_at_the_end_of_the_page_keeps_the_scroll_position(
    link: str, opened: Open, scene: Scene
) -> None:
    with opened("dave", viewport=NARROW) as (page, faults):
        page.goto(f"/arrays/{present(scene.array).pk}")
        expect(page.locator("#smallest-change")).to_contain_text("The next task would start")
        page.locator(link).scroll_into_view_if_needed()
        page.evaluate("scrollTo({ top: document.documentElement.scrollHeight, behavior: 'instant' })")
        page.locator(link).scroll_into_view_if_needed()
        place = page.evaluate("scrollY")
        page.locator(link).click()
        expect(page.locator("#tasks tbody tr").nth(20)).to_be_attached()
        assert abs(page.evaluate("scrollY") - place) < 100
        assert faults == []


@pytest.mark.parametrize(("width", "last"), [(1440, 1), (1024, 0)])
def test_task_list_of_a_pending_array_is_visible_without_scrolling(
    width: int, last: int, opened: Open, scene: Scene
) -> None:
    with opened("dave", viewport={"width": width, "height": 900}) as (page, faults):
        page.goto(f"/arrays/{present(scene.array).pk}")
        expect(page.locator("#smallest-change")).to_contain_text("The next task would start")
        expect(page.locator("#tasks tbody tr").nth(last)).to_be_in_viewport(ratio=1)
        assert faults == []


def test_figures_of_an_array_fit_and_fill_their_card_on_a_phone(opened: Open, scene: Scene) -> None:
    with opened("dave", viewport={"width": 390, "height": 844}) as (page, faults):
        page.goto(f"/arrays/{present(scene.array).pk}")
        end = page.locator(".figure", has=page.get_by_text("Expected end")).locator("time")
        end.evaluate("element => { element.textContent = '24 Dec, 00:00'; }")
        figure = page.locator(".figure", has=page.get_by_text("Expected end"))
        assert figure.evaluate("element => element.scrollWidth <= element.clientWidth")
        page.locator(".figure", has=page.get_by_text("GPU-hours")).evaluate("element => element.remove()")
        end, card = (
            each.evaluate("element => Math.round(element.getBoundingClientRect().right)")
            for each in (figure, page.locator(".task-figures"))
        )
        assert card - end <= 1, "the remaining figures fill the row"
        assert faults == []


def test_loading_the_smallest_change_of_an_array_does_not_move_the_page(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, faults):
        held = hold_requests(page, re.compile("/smallest-change"))
        page.goto(f"/arrays/{present(scene.array).pk}")
        expect(page.locator("#smallest-change")).to_contain_text("searching")
        place = present(page.locator(".task-figures").bounding_box())["y"]
        for each in held:
            each.continue_()
        expect(page.locator("#smallest-change")).to_contain_text("The next task would start")
        assert present(page.locator(".task-figures").bounding_box())["y"] == place
        assert faults == []


def test_smallest_change_of_an_array_is_fetched_again_after_an_action(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, faults):
        page.goto(f"/arrays/{present(scene.array).pk}")
        change = page.locator("#smallest-change")
        expect(change).to_contain_text("The next task would start")
        change.locator("strong").evaluate("title => { title.textContent = 'Outdated'; }")
        page.evaluate("document.dispatchEvent(new CustomEvent('berth:done', { detail: { message: '' } }))")
        expect(change).not_to_contain_text("Outdated")
        expect(change).to_contain_text("The next task would start")
        page.wait_for_load_state("networkidle")
        expect(change).to_contain_text("The next task would start")
        assert faults == []


def test_smallest_change_of_an_array_is_fetched_again_shortly_after_a_pool_change(
    opened: Open, scene: Scene
) -> None:
    with opened("dave") as (page, faults):
        sockets: list[WebSocketRoute] = []

        def accept(socket: WebSocketRoute) -> None:  # Playwright rejects the built-in `append`
            sockets.append(socket)

        page.route_web_socket("**/ws/live?*", accept)
        page.clock.install()
        page.goto(f"/arrays/{present(scene.array).pk}")
        change = page.locator("#smallest-change")
        expect(change).to_contain_text("The next task would start")
        change.locator("strong").evaluate("title => { title.textContent = 'Outdated'; }")
        sockets[-1].send('{"kind": "pools", "ids": []}')
        page.wait_for_load_state("networkidle")
        expect(change).to_contain_text("Outdated")
        page.clock.fast_forward("00:16")
        expect(change).not_to_contain_text("Outdated")
        expect(change).to_contain_text("The next task would start")

        change.locator("strong").evaluate("title => { title.textContent = 'Outdated'; }")
        sockets[-1].send('{"kind": "pools", "ids": []}')
        page.wait_for_load_state("networkidle")
        page.evaluate("Object.defineProperty(document, 'hidden', { configurable: true, value: true })")
        page.clock.fast_forward("00:16")
        expect(change).to_contain_text("Outdated")
        page.evaluate("""() => {
          Object.defineProperty(document, "hidden", { value: false });
          document.dispatchEvent(new Event("visibilitychange"));
        }""")
        expect(change).not_to_contain_text("Outdated")
        assert faults == []


def test_parameter_filter_lists_the_matching_tasks_in_all_states(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, faults):
        page.goto(f"/arrays/{present(scene.array).pk}")
        page.get_by_label("LR", exact=True).select_option("1e-2")
        expect(page.locator("#state-all")).to_have_attribute("aria-current", "true")
        expect(page.locator("#tasks tbody tr")).to_have_count(40)
        expect(page.locator("#task-map .other")).to_have_count(80)
        page.get_by_role("link", name="Clear filter").click()
        expect(page.locator("#task-map .other")).to_have_count(0)
        expect(page.locator("#state-pending")).to_have_attribute("aria-current", "true")
        assert faults == []


@pytest.mark.parametrize("width", [390, 1024])
def test_state_tabs_above_the_task_map_dim_other_tasks(opened: Open, scene: Scene, width: int) -> None:
    with opened("dave", viewport={"width": width, "height": 844}) as (page, faults):
        page.goto(f"/arrays/{present(scene.array).pk}")
        expect(page.locator("#smallest-change")).to_contain_text("The next task would start")
        failed, tasks = page.locator("#state-failed"), page.locator("#task-map a")
        box, task_map = present(failed.bounding_box()), present(page.locator("#task-map").bounding_box())
        assert box["y"] + box["height"] <= task_map["y"]
        assert box["x"] + box["width"] <= width - 40
        expect(page.locator("#task-map a.other")).to_have_count(0)
        failed.click()
        expect(page.locator("#task-map a.failed")).to_have_count(2)
        expect(page.locator("#task-map a.other")).to_have_count(tasks.count() - 2)
        expect(page.locator("#task-map a.failed.other")).to_have_count(0)
        assert faults == []


@pytest.mark.parametrize("width", [1440, 1024])
def test_completed_tasks_take_one_line_and_failures_come_first(
    width: int, opened: Open, scene: Scene
) -> None:
    with opened("dave", viewport={**WIDE, "width": width}) as (page, faults):
        page.goto(f"/arrays/{present(scene.array).pk}?state=completed")
        heights = page.locator("#tasks tbody tr:has(.chip)").evaluate_all(
            "all => all.map(row => row.offsetHeight)"
        )
        assert len(heights) == 44 and max(heights) <= 36
        failures, notice = (
            present(page.locator(each).bounding_box()) for each in (".failures", ".idle-tasks")
        )
        assert failures["y"] < notice["y"]
        page.goto(f"/arrays/{present(scene.array).pk}?state=pending&rows=all")
        page.get_by_role("link", name="Fold tasks with the same state").click()
        expect(page.get_by_role("link", name="Show 71 waiting tasks")).to_be_visible()
        assert faults == []


def test_pending_tasks_have_one_colour(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, faults):
        page.goto(f"/arrays/{present(scene.array).pk}")
        colours = {
            page.locator(place).first.evaluate(f"each => getComputedStyle(each).{part}")
            for place, part in (
                ("#task-47", "backgroundColor"), (".tasks-legend .pending", "backgroundColor"),
                (".task-figures .bar .pending", "fill"), (".idle-tasks", "borderLeftColor"),
            )
        }  # fmt: skip
        assert len(colours) == 1
        assert faults == []


def test_array_actions_fit_on_one_line_and_a_map_above_the_list_on_a_phone(
    opened: Open, scene: Scene
) -> None:
    with opened("dave", viewport={"width": 390, "height": 844}, has_touch=True) as (page, faults):
        page.goto(f"/arrays/{present(scene.array).pk}")
        buttons = page.locator(".array-actions > .button")
        tops = buttons.evaluate_all("all => all.map(each => each.getBoundingClientRect().top)")
        assert len(tops) == 4 and len(set(tops)) == 1
        expect(page.get_by_role("link", name="Retry 2 failed tasks")).to_be_visible()
        row, task_map = page.locator(".task-rows tr th:visible").first, page.locator("#task-map")
        frame = present(task_map.bounding_box())
        assert frame["height"] < 140 and frame["y"] < present(row.bounding_box())["y"]
        task_map.evaluate(
            "map => { for (let n = 0; n < 13; n++) map.append(map.lastElementChild.cloneNode()) }"
        )
        after = present(task_map.bounding_box())["y"]
        assert present(row.bounding_box())["y"] < after, "a map of 250 tasks comes after the list"
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert faults == []
