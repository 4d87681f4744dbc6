"""Browser tests for resubmitting an ended workload."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.data.scene import Scene


@pytest.mark.heavy
def test_resubmission_that_would_evict_workloads_requires_confirmation(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{scene.workloads['vit-large-lr3'].pk}")
        page.get_by_role("button", name="Resubmit").click()
        page.get_by_role("button", name="Resubmit and evict").click()
        expect(page.get_by_role("heading", name="vit-large-lr3-2")).to_be_visible()
        expect(page.locator("#predicted")).to_contain_text("Would start and evict")
        assert faults == []


def resubmit_on_own_page(page: Page, path: str) -> None:
    page.goto(f"{path}/resubmit")


def resubmit_in_search(page: Page, path: str) -> None:
    page.goto(path)
    page.keyboard.press("Control+k")
    page.locator("#search-dialog input").fill("resubmit vit-large-lr3")
    page.get_by_role("link", name="Resubmit vit-large-lr3").click()


@pytest.mark.heavy
@pytest.mark.parametrize("open_form", [resubmit_on_own_page, resubmit_in_search])
def test_eviction_warning_replaces_the_confirmation_form(
    open_form: Callable[[Page, str], None], opened: Open, scene: Scene
) -> None:
    with opened("dave") as (page, faults):
        path = f"/workloads/{scene.workloads['vit-large-lr3'].pk}"
        open_form(page, path)
        page.locator("form.inset").get_by_role("button", name="Resubmit workload").click()
        dialog = page.locator("#dialog")
        expect(dialog.get_by_role("heading", name="Resubmit and evict?")).to_be_visible()
        expect(dialog.locator("form")).to_have_count(0)
        dialog.get_by_role("button", name="Cancel").click()
        expect(dialog).to_be_hidden()
        open_form(page, path)
        page.locator("form.inset").get_by_role("button", name="Resubmit workload").click()
        page.get_by_role("button", name="Resubmit and evict").click()
        expect(page.get_by_role("heading", name="vit-large-lr3-2")).to_be_visible()
        assert faults == []


@pytest.mark.heavy
def test_resubmitting_a_selected_row_requires_confirmation_if_it_would_evict_workloads(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/workloads?state=all")
        page.get_by_role("checkbox", name="Select vit-large-lr3", exact=True).click()
        page.locator("#bulk").get_by_role("button", name="Resubmit").click()
        page.get_by_role("button", name="Resubmit and evict").click()
        expect(page.get_by_role("heading", name="vit-large-lr3-2")).to_be_visible()
        expect(page.locator("#predicted")).to_contain_text("Would start and evict")
        assert faults == []
