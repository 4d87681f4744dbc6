"""Browser tests for rows of workloads that open with a click."""

import re

from playwright.sync_api import Page, expect

from projects.services import workloads
from tests.browser.conftest import Open
from tests.browser.data.inference_service import create_service
from tests.browser.data.requests import acting
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import NARROW
from tests.support.present import present

LIST = re.compile(r"/workloads(\?.*)?$")


def click_text(page: Page, row_name: str, text: str) -> None:
    page.get_by_role("row", name=row_name).get_by_text(text, exact=True).first.click()


def test_click_on_a_row_opens_its_workload_or_array(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, faults):
        for path in ("/workloads", "/"):
            page.goto(path)
            click_text(page, "ablation-7", "Would exceed fair share")
            page.wait_for_url(f"**/workloads/{scene.workloads['ablation-7'].pk}")
            page.goto(path)
            click_text(page, "lr-sweep", "Pending")
            page.wait_for_url(f"**/arrays/{present(scene.array).pk}")
        assert faults == []


def test_click_next_to_a_checkbox_selects_the_row(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/workloads")
        box = page.get_by_role("checkbox", name="Select ablation-7", exact=True)
        cell = present(page.locator("td.pick", has=box).bounding_box())
        page.mouse.click(cell["x"] + 3, cell["y"] + 3)
        expect(box).to_be_checked()
        expect(page.locator("[data-picked]")).to_have_text("1 selected")
        box.click()
        expect(box).not_to_be_checked()
        expect(page).to_have_url(LIST)
        assert faults == []


def test_links_and_selected_text_in_a_row_do_not_open_the_workload(opened: Open, scene: Scene) -> None:
    create_service(scene)
    with opened("dave") as (page, faults):
        page.goto("/workloads")
        page.get_by_role("link", name="Show 2 added engines").click()
        expect(page.get_by_role("link", name="Hide 2 added engines")).to_be_visible()
        name = page.get_by_role("row", name="ablation-7").get_by_text("Would exceed fair share", exact=True)
        place = present(name.bounding_box())
        middle = place["y"] + place["height"] / 2
        page.mouse.move(place["x"] + 1, middle)
        page.mouse.down()
        page.mouse.move(place["x"] + 60, middle, steps=4)
        page.mouse.up()
        assert page.evaluate("getSelection().toString()")
        page.mouse.click(place["x"] + place["width"] - 2, place["y"] + 4)
        assert not page.evaluate("getSelection().toString()"), "the second click clears the selection"
        expect(page).to_have_url(LIST)
        assert faults == []


def test_ctrl_click_on_a_row_opens_a_new_tab(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, faults):
        page.goto("/workloads")
        row = page.get_by_role("row", name="ablation-7")
        with page.context.expect_page() as created:
            row.get_by_text("Would exceed fair share", exact=True).click(modifiers=["Control"])
        created.value.wait_for_url(f"**/workloads/{scene.workloads['ablation-7'].pk}")
        created.value.close()
        expect(page).to_have_url(LIST)
        assert faults == []


def test_tap_on_a_row_opens_nothing_on_a_phone(opened: Open) -> None:
    with opened("dave", viewport=NARROW, has_touch=True) as (page, faults):
        page.goto("/workloads")
        page.get_by_role("row", name="ablation-7").get_by_text("Would exceed fair share", exact=True).tap()
        page.get_by_role("checkbox", name="Select ablation-7", exact=True).tap()
        expect(page.locator("[data-picked]")).to_have_text("1 selected")
        expect(page).to_have_url(LIST)
        assert faults == []


def test_selected_rows_and_their_count_survive_a_live_update(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, faults):
        page.goto("/workloads?sort=-gpus")
        expect(page.locator(".live")).to_have_text("Connected")
        for name in ("ablation-7", "lr-sweep"):
            page.get_by_role("checkbox", name=f"Select {name}", exact=True).check()
        other = scene.workloads["ablation-8"]
        workloads.suspend(actor=acting(scene.people["carol"]), workload=other)
        expect(page.get_by_role("row", name="ablation-8")).to_contain_text("Suspended")
        for name in ("ablation-7", "lr-sweep"):
            expect(page.get_by_role("checkbox", name=f"Select {name}", exact=True)).to_be_checked()
        expect(page.locator("[data-picked]")).to_contain_text("2 selected")
        expect(page.get_by_role("button", name="Cancel 2 selected workloads")).to_be_visible()
        expect(page.get_by_role("columnheader", name="GPUs", exact=True)).to_have_attribute(
            "aria-sort", "descending"
        )
        assert faults == []
