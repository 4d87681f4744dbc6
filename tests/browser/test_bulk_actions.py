"""Browser tests for the bar of actions on selected workloads."""

from playwright.sync_api import Page, expect

from tests.browser.conftest import Open


def select(page: Page, name: str) -> None:
    page.get_by_role("checkbox", name=f"Select {name}", exact=True).click()


def test_selection_bar_shows_how_many_rows_an_action_applies_to(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/workloads?state=all")
        bar = page.locator("#bulk")
        select(page, "ablation-7")
        expect(bar.get_by_role("button", name="Cancel selected workloads")).to_be_visible()
        expect(bar.get_by_role("link", name="Clone selected workload")).to_be_visible()
        select(page, "vit-baseline")
        expect(bar.get_by_role("link", name="Clone selected workload")).to_be_hidden()
        bar.get_by_role("button", name="Cancel 1 of 2 selected workloads").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("heading", name="Cancel 1 workload?")).to_be_visible()
        expect(dialog).to_contain_text("1 workload stays unchanged:")
        expect(dialog.get_by_role("listitem").last).to_have_text("Already ended: vision/vit-baseline")
        assert faults == []


def test_selection_without_possible_action_shows_the_reason(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/workloads?state=ended")
        for name in ("vit-baseline", "vit-large-lr3"):
            select(page, name)
        bar = page.locator("#bulk")
        expect(bar).to_contain_text("Your role does not allow you to change the selected workloads.")
        expect(bar.get_by_role("button")).to_have_count(0)
        select(page, "vit-baseline")
        clone = bar.get_by_role("link", name="Clone selected workload")
        expect(clone).to_be_visible()
        clone.click()
        expect(page.get_by_role("heading", name="Submit workload")).to_be_visible()
        assert faults == []
