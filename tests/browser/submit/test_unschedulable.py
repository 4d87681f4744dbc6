"""Browser test for the submission form of a workload that can never start as specified."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open

pytestmark = pytest.mark.heavy


def test_field_with_an_excessive_value_is_marked_without_losing_the_focus(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/submit")
        gpus = page.get_by_label("GPUs per pod")
        gpus.fill("")
        gpus.press_sequentially("999")
        expect(page.locator("#f-roles-0-gpu-warning")).to_contain_text("No matching node has more than")
        expect(page.get_by_role("button", name="Submit anyway", exact=True)).to_be_visible()
        expect(gpus).to_be_focused()
        expect(gpus).to_have_value("999")
        page.locator("#document").focus()
        page.locator("#answer").get_by_role("link", name="GPUs per pod").click()
        expect(gpus).to_be_focused()
        gpus.fill("1")
        expect(page.locator("#f-roles-0-gpu-warning")).to_have_count(0)
        expect(page.get_by_role("button", name="Submit anyway")).to_have_count(0)
        assert faults == []
