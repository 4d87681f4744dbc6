"""Browser tests for the search dialog: keyboard, results and recently visited pages."""

import re

import pytest
from playwright.sync_api import expect

from projects.models import Workload
from tests.browser.conftest import Open
from tests.browser.driver.held_requests import hold_requests


@pytest.mark.parametrize("width", [1280, pytest.param(360, marks=pytest.mark.heavy)])
def test_workload_can_be_found_with_the_keyboard_in_the_search_dialog(opened: Open, width: int) -> None:
    with opened("dave", viewport={"width": width, "height": 800}) as (page, faults):
        page.goto("/node-pools/train")
        page.keyboard.press("Control+k")
        dialog = page.get_by_role("dialog", name="Search")
        expect(dialog.get_by_role("region", name="My workloads").get_by_role("link")).not_to_have_count(0)
        page.keyboard.type("ablation-7")
        results = dialog.get_by_role("region", name="Workloads", exact=True)
        link = results.get_by_role("link", name=re.compile("^ablation-7"))
        expect(link).to_be_visible()
        page.keyboard.press("ArrowDown")
        expect(link).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="ablation-7")).to_be_visible()
        page.locator("[data-search]:visible").first.click()
        recent = page.get_by_role("region", name="Recently visited")
        expect(recent.get_by_role("link")).to_have_text([re.compile("ablation-7.*Pending"), "train"])
        expect(dialog.locator(".search-keys")).to_be_visible(visible=width > 400)
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        assert not faults


@pytest.mark.heavy
def test_enter_pressed_before_the_search_result_arrives_opens_the_result(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/node-pools/train")
        page.keyboard.press("Control+k")
        page.keyboard.type("ablation-7")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="ablation-7")).to_be_visible()
        assert not faults


@pytest.mark.parametrize("press", ["click", "key"])
def test_search_requested_before_the_scripts_have_run_opens_afterwards(opened: Open, press: str) -> None:
    with opened("dave") as (page, faults):
        held = hold_requests(page, re.compile(r"/htmx-2\.min"))
        page.goto("/node-pools/train", wait_until="commit")
        expect(page.get_by_role("heading", name="train", level=1)).to_be_visible()
        dialog = page.get_by_role("dialog", name="Search")
        if press == "click":
            page.locator("[data-search]:visible").first.click()
        else:
            page.keyboard.press("Control+k")
        expect(dialog).to_be_hidden()
        (script,) = held
        script.continue_()
        expect(dialog.get_by_role("region", name="My workloads").get_by_role("link")).not_to_have_count(0)
        assert not faults


def test_submission_form_works_before_the_scripts_have_run(opened: Open) -> None:
    with opened("dave") as (page, faults):
        held = hold_requests(page, re.compile(r"/htmx-2\.min"))
        page.goto("/submit", wait_until="commit")
        pool = page.get_by_label("train", exact=True)
        expect(pool).to_be_visible()
        was_checked = pool.is_checked()
        pool.click()
        expect(pool).to_be_checked(checked=not was_checked)
        details = page.locator("#submit-form details:has(> summary:visible)").first
        expect(details).not_to_have_attribute("open", "")
        details.locator("> summary").click()
        expect(details).to_have_attribute("open", "")
        (script,) = held
        script.continue_()
        expect(pool).to_be_checked(checked=not was_checked)
        assert not faults


@pytest.mark.heavy
def test_search_without_results_links_to_the_list_of_workloads(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/node-pools/train")
        page.keyboard.press("Control+k")
        page.keyboard.type("team=vision-9")
        dialog = page.get_by_role("dialog", name="Search")
        expect(dialog.get_by_role("link")).to_have_text(["Search all workloads for “team=vision-9”"])
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Workloads", level=1)).to_be_visible()
        expect(page.locator("#search")).to_have_value("team=vision-9")
        assert not faults


@pytest.mark.heavy
def test_pressing_enter_twice_on_a_destructive_action_changes_nothing(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/node-pools/train")
        page.keyboard.press("Control+k")
        page.keyboard.type("ablation-7 cancel")
        dialog = page.get_by_role("dialog", name="Search")
        expect(dialog.get_by_role("link").first).to_have_text(re.compile("^Cancel ablation-7"))
        expect(dialog.get_by_text("run", exact=True)).to_be_visible()
        tones = dialog.locator(".first :is(svg, mark)").evaluate_all(
            "all => [...new Set(all.map(each => getComputedStyle(each).borderTopColor))]"
        )
        assert len(tones) == 1, "icon and title keep the colour of destructive actions while selected"
        page.keyboard.press("Enter")
        form = page.locator("#dialog form")
        expect(form.get_by_role("heading", name="Cancel ablation-7?")).to_be_visible()
        expect(form.get_by_role("link")).to_be_focused()
        page.keyboard.press("Enter")
        expect(form).to_be_hidden()
        assert Workload.objects.get(name="ablation-7").phase == "pending"
        assert not faults
