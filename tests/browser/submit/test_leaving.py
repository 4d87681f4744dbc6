"""Browser tests that workload forms ask for confirmation before unsaved input is lost."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Dialog, Page, expect

from tests.browser.conftest import Open
from tests.browser.data.scene import Scene


def follow_link(page: Page) -> None:
    page.get_by_role("link", name="Queue", exact=True).click()


def use_search(page: Page) -> None:
    page.keyboard.press("Control+k")
    mine = page.get_by_role("dialog", name="Search").get_by_role("region", name="My workloads")
    mine.get_by_role("link").first.click()


WAYS: dict[str, Callable[[Page], object]] = {
    "link": follow_link,
    "back": lambda page: page.evaluate("history.back()"),
    "reload": lambda page: page.evaluate("location.reload()"),
    "search": use_search,
}


def record_questions(page: Page) -> list[str]:
    """Stay on the page whenever the browser asks. Return a list that records the types of the dialogs."""
    questions: list[str] = []

    def stay(dialog: Dialog) -> None:
        questions.append(dialog.type)
        dialog.dismiss()

    page.on("dialog", stay)
    return questions


@pytest.mark.heavy
@pytest.mark.parametrize("way", WAYS)
def test_leaving_the_submission_form_with_unsaved_input_requires_confirmation(opened: Open, way: str) -> None:
    with opened("dave") as (page, faults):
        page.goto("/queue")
        page.goto("/submit")
        questions = record_questions(page)
        page.get_by_label("Name", exact=True).fill("keep-me")
        WAYS[way](page)
        page.wait_for_timeout(300)
        assert questions == ["beforeunload"]
        expect(page.get_by_label("Name", exact=True)).to_have_value("keep-me")
        assert faults == []


@pytest.mark.heavy
def test_form_can_be_left_without_confirmation_if_no_input_would_be_lost(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/submit")
        questions = record_questions(page)
        page.get_by_label("Name", exact=True).click()
        follow_link(page)
        expect(page.get_by_role("heading", name="Queue", level=1)).to_be_visible()
        page.goto("/submit")
        page.get_by_label("Name", exact=True).fill("goes-through")
        page.get_by_label("Project", exact=True).select_option("vision")
        page.get_by_role("button", name="Submit workload", exact=True).click()
        expect(page.get_by_role("heading", name="goes-through")).to_be_visible()
        assert (questions, faults) == ([], [])


@pytest.mark.heavy
def test_leaving_the_edit_page_requires_confirmation_unless_changes_are_discarded(
    opened: Open, scene: Scene
) -> None:
    with opened("ada") as (page, faults):
        workload = scene.workloads["policy-sweep"]
        page.goto(f"/workloads/{workload.pk}/edit")
        questions, text = record_questions(page), page.locator("#document").input_value()
        page.get_by_label("Max runtime").fill("2h")
        expect(page.get_by_text("1 unsaved change", exact=True)).to_be_visible()
        follow_link(page)
        page.wait_for_timeout(300)
        assert questions == ["beforeunload"]
        page.locator("#document").fill(text)
        page.get_by_role("link", name="Back to workload").click()
        expect(page.get_by_role("heading", name="policy-sweep", level=1)).to_be_visible()
        page.goto(f"/workloads/{workload.pk}/edit")
        page.get_by_label("Max runtime").fill("2h")
        page.get_by_role("link", name="Discard changes").click()
        expect(page.get_by_role("heading", name="policy-sweep", level=1)).to_be_visible()
        assert "/edit" not in page.url
        assert (questions, faults) == (["beforeunload"], [])
