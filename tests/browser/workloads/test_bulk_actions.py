"""Browser tests for actions on several workloads or tasks at once."""

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import NARROW, WIDE
from tests.support.present import present


def select(page: Page, name: str) -> None:
    page.get_by_role("checkbox", name=f"Select {name}", exact=True).click()


@pytest.mark.heavy
def test_selection_bar_shows_how_many_rows_an_action_applies_to(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/workloads?state=all")
        bar = page.locator("#bulk")
        select(page, "ablation-7")
        expect(bar.get_by_role("button", name="Cancel selected workloads")).to_be_visible()
        expect(bar.get_by_role("link", name="Edit a copy of the selected workload")).to_be_visible()
        expect(page.locator("#toasts")).to_be_empty()
        select(page, "vit-baseline")
        expect(bar.get_by_role("link", name="Edit a copy of the selected workload")).to_be_hidden()
        bar.get_by_role("button", name="Cancel 1 of 2 selected workloads").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("heading", name="Cancel 1 workload?")).to_be_visible()
        expect(dialog).to_contain_text("1 workload stays unchanged:")
        expect(dialog.get_by_role("listitem").last).to_have_text("Already ended: vision/vit-baseline")
        page.keyboard.press("Escape")
        select(page, "segment-eval")
        expect(bar.get_by_role("status")).to_have_text("3 selected, 1 read-only")
        assert faults == []


@pytest.mark.heavy
def test_selecting_rows_moves_neither_the_tabs_nor_the_table(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/workloads")
        row = page.get_by_role("row", name="ablation-7")
        position = row.bounding_box()
        color = "element => getComputedStyle(element.querySelector('td')).backgroundColor"
        unselected = row.evaluate(color)
        select(page, "ablation-7")
        expect(page.locator("#bulk")).to_be_visible()
        assert row.bounding_box() == position
        expect(page.locator("#state-live")).to_be_in_viewport(ratio=1)
        assert row.evaluate(color) != unselected
        assert faults == []


@pytest.mark.heavy
@pytest.mark.parametrize("viewport", [{**WIDE, "height": 500}, NARROW], ids=["wide", "phone"])
def test_bulk_actions_stay_in_view_until_the_selection_is_cleared(
    viewport: ViewportSize, opened: Open
) -> None:
    with opened("dave", viewport=viewport) as (page, faults):
        page.goto("/workloads?state=all")
        select(page, "ablation-7")
        select(page, "ablation-8")
        page.mouse.wheel(0, 400)
        while page.evaluate("scrollY") <= 200:
            page.wait_for_timeout(20)
        expect(page.locator("#bulk")).to_be_in_viewport(ratio=1)
        expect(page.get_by_role("button", name="Cancel 2 selected workloads")).to_be_visible()
        page.get_by_role("button", name="Clear selection").click()
        expect(page.locator("#bulk")).to_be_hidden()
        assert faults == []


@pytest.mark.heavy
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "phone"])
def test_checkboxes_are_aligned_with_the_names_and_have_no_extra_icon(
    viewport: ViewportSize, opened: Open
) -> None:
    with opened("dave", viewport=viewport) as (page, faults):
        page.goto("/workloads")
        marks = page.locator("td.pick").evaluate_all(
            "all => all.map(cell => getComputedStyle(cell, '::before').content)"
        )
        assert set(marks) == {"none"}
        box = present(page.get_by_role("checkbox", name="Select ablation-7", exact=True).bounding_box())
        name = present(page.get_by_role("row", name="ablation-7").get_by_role("rowheader").bounding_box())
        assert name["y"] <= box["y"] and box["y"] + box["height"] <= name["y"] + name["height"]
        assert faults == []


@pytest.mark.heavy
def test_all_actions_on_selected_rows_are_in_view_on_a_phone(opened: Open) -> None:
    with opened("ada", viewport=NARROW, has_touch=True) as (page, faults):
        page.goto("/workloads")
        for name in ("ablation-7", "paused-run"):
            select(page, name)
        buttons = page.locator("#bulk").get_by_role("button")
        names = ("Suspend 1 of 2", "Resume 1 of 2", "Cancel 2", "Clear selection")
        expect(buttons).to_contain_text(names)
        for button in buttons.all():
            expect(button).to_be_in_viewport(ratio=1)
        assert faults == []


@pytest.mark.heavy
def test_click_next_to_the_text_of_a_column_header_sorts_the_table(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/workloads")
        head = page.get_by_role("columnheader", name="GPUs", exact=True)
        head.click(position={"x": 4, "y": 4})
        expect(head).to_have_attribute("aria-sort", "descending")
        assert faults == []


@pytest.mark.heavy
def test_column_menu_restores_the_default_columns(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/workloads?columns=state,cost")
        page.locator("#columns > summary").click()
        page.get_by_role("button", name="Show default columns").click()
        expect(page.get_by_role("columnheader", name="GPUs", exact=True)).to_be_visible()
        expect(page.get_by_role("columnheader", name="Cost", exact=True)).to_have_count(0)
        assert "columns" not in page.url
        assert faults == []


@pytest.mark.heavy
def test_shift_selects_a_range_of_rows_and_escape_clears_the_selection(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/workloads")
        boxes = page.locator("input[form=bulk]")
        counter = page.locator("[data-picked]")
        boxes.nth(1).click()
        boxes.nth(4).click(modifiers=["Shift"])
        expect(counter).to_contain_text("4 selected")
        page.keyboard.press("j")
        page.keyboard.press("Shift+X")
        expect(counter).to_contain_text("5 selected")
        page.keyboard.press("Escape")
        expect(counter).to_have_text("None selected")
        assert faults == []


@pytest.mark.heavy
def test_only_one_menu_is_open_and_an_outside_click_or_escape_closes_it(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/workloads")
        columns, views = (
            page.locator("details.chooser", has_text=name).first for name in ("Columns", "Views")
        )
        columns.locator("summary").click()
        columns.get_by_role("checkbox").first.focus()
        views.locator("summary").click()
        expect(columns).not_to_have_attribute("open", "")
        expect(views).to_have_attribute("open", "")
        page.keyboard.press("Escape")
        expect(views).not_to_have_attribute("open", "")
        columns.locator("summary").click()
        page.get_by_role("heading", name="Workloads").click()
        expect(columns).not_to_have_attribute("open", "")
        assert faults == []


def test_selection_without_applicable_actions_shows_the_reason(opened: Open) -> None:
    with opened("erin") as (page, faults):
        page.goto("/workloads?state=ended")
        for name in ("vit-baseline", "vit-large-lr3"):
            select(page, name)
        bar = page.locator("#bulk")
        expect(bar).to_contain_text("Your role does not allow you to change the selected workloads.")
        expect(bar.get_by_role("button")).to_have_text("Clear selection")
        assert faults == []


@pytest.mark.heavy
def test_ended_workload_is_resubmitted_from_the_list_and_from_its_page(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/workloads?state=ended")
        select(page, "vit-baseline")
        page.locator("#bulk").get_by_role("button", name="Resubmit selected workloads").click()
        expect(page.get_by_role("heading", name="vit-baseline-2 Pending")).to_be_visible()
        page.go_back()
        page.get_by_role("link", name="vit-baseline", exact=True).click()
        page.get_by_role("button", name="Resubmit workload").click()
        expect(page.get_by_role("heading", name="vit-baseline-3 Pending")).to_be_visible()
        page.goto("/workloads?state=ended")
        for name in ("vit-baseline", "vit-large-lr3"):
            select(page, name)
        page.locator("#bulk").get_by_role("button", name="Resubmit 2 selected workloads").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("heading", name="Resubmit 2 workloads?")).to_be_visible()
        dialog.get_by_role("button", name="Resubmit 2 workloads").click()
        expect(page.locator("#toasts")).to_contain_text("2 workloads submitted again.")
        assert faults == []


def test_copying_a_selected_workload_opens_the_submission_form(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/workloads?state=ended")
        select(page, "vit-baseline")
        copy = page.locator("#bulk").get_by_role("link", name="Edit a copy of the selected workload")
        expect(copy).to_be_visible()
        copy.click()
        expect(page.get_by_role("heading", name="Submit workload")).to_be_visible()
        assert faults == []


@pytest.mark.heavy
def test_retry_dialog_shows_which_tasks_its_button_retries(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, faults):
        page.goto(f"/arrays/{present(scene.array).pk}")
        page.get_by_role("link", name="Retry 2 failed tasks").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("radio", name="2 failed tasks (12, 30)")).to_be_checked()
        expect(dialog.get_by_label("Indexes")).to_be_hidden()
        dialog.get_by_role("radio", name="Other tasks").check()
        expect(dialog.get_by_role("button", name="Retry tasks", exact=True)).to_be_visible()
        expect(dialog.get_by_label("Indexes")).to_be_enabled()
        dialog.get_by_role("radio", name="2 failed tasks (12, 30)").check()
        dialog.get_by_role("button", name="Retry 2 tasks").click()
        expect(page.locator("#toasts")).to_contain_text("2 tasks of lr-sweep queued again.")
        expect(page.get_by_role("region", name="Failures")).to_be_hidden()
        assert faults == []


@pytest.mark.heavy
def test_selection_is_cleared_after_a_bulk_action(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/workloads")
        select(page, "ablation-7")
        page.get_by_role("button", name="Cancel selected workloads").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("link", name="Keep workload")).to_be_focused()
        dialog.get_by_role("button", name="Cancel 1 workload").click()
        expect(dialog).to_be_hidden()
        expect(page.locator("[data-picked]")).to_have_text("None selected")
        assert faults == []
