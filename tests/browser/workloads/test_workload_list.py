"""Browser tests for the layout of the workload list."""

import re

import pytest
from playwright.sync_api import APIResponse, Route, expect

from projects.services import workloads
from tests.browser.conftest import Open
from tests.browser.data.requests import acting
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import NARROW, WIDE
from tests.support.present import present


@pytest.mark.heavy
def test_list_header_and_bulk_actions_stay_in_view(opened: Open) -> None:
    with opened("ada", viewport={**WIDE, "height": 500}) as (page, faults):
        page.goto("/workloads")
        head = page.get_by_role("columnheader", name="Workload")
        page.get_by_role("checkbox", name="Select embedding-refresh", exact=True).check()
        page.mouse.move(800, 400)
        page.mouse.wheel(0, 500)
        while page.evaluate("scrollY") <= 300:
            page.wait_for_timeout(20)
        expect(head).to_be_in_viewport(ratio=1)
        bar, box = present(page.locator("#bulk").bounding_box()), present(head.bounding_box())
        assert bar["y"] >= box["y"] + box["height"], "the actions do not cover the head"
        expect(page.locator("#bulk")).to_be_in_viewport(ratio=1)
        page.goto("/workloads?columns=state,gpus,status,submitted,department,pool,since,runs,cost,labels")
        wrap = page.locator(".table-wrap")
        assert wrap.evaluate("each => each.scrollWidth > each.clientWidth"), "a wide table scrolls"
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        assert faults == []


def test_first_workload_is_in_the_upper_half_of_a_phone_screen(opened: Open) -> None:
    with opened("dave", viewport=NARROW, has_touch=True) as (page, faults):
        page.goto("/workloads")
        assert present(page.locator(".workload-rows tbody tr").first.bounding_box())["y"] < 350
        submit = page.get_by_role("link", name="Submit workload")
        box = present(submit.bounding_box())
        assert (box["width"], box["height"]) == (40, 40)
        assert faults == []


def test_list_checkboxes_have_no_plus_sign(opened: Open) -> None:
    with opened("ada", viewport=WIDE) as (page, faults):
        page.goto("/workloads")
        contents = page.locator(".pick").evaluate_all(
            "each => each.map(cell => getComputedStyle(cell, '::before').content)"
        )
        assert set(contents) == {"none"}, "the plus sign belongs to the buttons that add secrets"
        assert faults == []


@pytest.mark.heavy
def test_late_live_update_does_not_undo_a_new_sort_order(opened: Open, scene: Scene) -> None:
    late: list[tuple[Route, APIResponse]] = []
    with opened("dave") as (page, faults):
        page.goto("/workloads")
        expect(page.locator(".live")).to_have_text("Connected")
        page.route(re.compile("/workloads$"), lambda route: late.append((route, route.fetch())))
        workloads.suspend(actor=acting(scene.people["carol"]), workload=scene.workloads["ablation-8"])
        while not late:
            page.wait_for_timeout(20)
        head = page.get_by_role("columnheader", name="GPUs", exact=True)
        head.click()
        expect(head).to_have_attribute("aria-sort", "descending")
        route, response = late.pop()
        with page.expect_response(re.compile("sort=-gpus")):
            route.fulfill(response=response)
        expect(head).to_have_attribute("aria-sort", "descending")
        assert faults == []


@pytest.mark.heavy
def test_menu_marks_the_current_view(opened: Open) -> None:
    with opened("dave", viewport=WIDE) as (page, faults):
        page.goto("/workloads")
        page.locator("summary", has_text="Views").click()
        view = page.get_by_role("link", name="Failing and pending first", exact=True)
        expect(view).not_to_have_attribute("aria-current", "true")
        view.click()
        order = page.locator("#sort-note")
        expect(order).to_have_text("Failing and pending first")
        page.locator("summary", has_text="Views").click()
        view = page.locator(".views").get_by_role("link", name="Failing and pending first", exact=True)
        expect(view).to_have_attribute("aria-current", "true")
        expect(view).to_have_css("font-weight", "600")
        order.click()
        expect(order).to_have_count(0)
        expect(page.locator(".views a").first).not_to_have_attribute("aria-current", "true")
        assert faults == []


@pytest.mark.heavy
def test_workloads_can_be_filtered_by_any_visible_user(opened: Open) -> None:
    with opened("ada") as (page, faults):
        page.goto("/workloads")
        field = page.get_by_label("Submitted by")
        field.press_sequentially("gra")
        expect(page.locator("#submitters option")).to_have_count(1)
        expect(page.locator("#submitters option")).to_have_attribute("value", "grace")
        field.fill("grace")
        field.press("Enter")
        page.wait_for_url("**/workloads?**user=grace**")
        expect(page.get_by_role("row", name="ctr-nightly")).to_be_visible()
        expect(page.get_by_role("row", name="ablation-7")).to_have_count(0)
        page.get_by_role("link", name="Clear filters").click()
        expect(page.get_by_role("row", name="ablation-7")).to_be_visible()
        assert faults == []
