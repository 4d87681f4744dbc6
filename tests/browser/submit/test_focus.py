"""Browser tests for the keyboard focus in the submission form."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.data.scene import Scene

pytestmark = pytest.mark.heavy

TEXT = "name: night-run\nproject: visionx\ncommand: sleep 1\nroles:\n  - name: worker\n    gpu: 1\n"


@pytest.mark.parametrize("unfinished", ["labels: [", "env: {A: 1"])
def test_focus_stays_in_the_document_while_its_yaml_is_unfinished(opened: Open, unfinished: str) -> None:
    with opened("dave") as (page, faults):
        page.goto("/submit")
        document = page.locator("#document")
        document.fill(TEXT)
        expect(page.get_by_label("Project", exact=True)).to_have_attribute("aria-invalid", "true")
        document.press("Control+End")
        page.keyboard.type(unfinished)
        expect(page.get_by_text("The document is not valid YAML (line")).to_be_visible()
        expect(document).to_be_focused()
        page.keyboard.type("# typed on")
        expect(document).to_have_value(f"{TEXT}{unfinished}# typed on")
        assert faults == []


@pytest.mark.parametrize("path", ["/submit?kind=train", "/workloads/{}/edit"])
def test_added_form_section_receives_the_focus(opened: Open, scene: Scene, path: str) -> None:
    with opened("ada") as (page, faults):
        page.goto(path.format(scene.workloads["policy-sweep"].pk))
        expect(page.locator("#prediction-title")).to_be_visible()
        disclosures = page.locator("#fields section details:not(#code-details)")
        disclosures.evaluate_all("all => all.forEach(each => { each.open = true; })")
        before, now_open = disclosures.count(), disclosures.and_(page.locator("[open]"))
        page.get_by_role("button", name="Add role").press("Enter")
        added = page.get_by_role("region", name="Role role-2")
        expect(added.get_by_label("Role name")).to_be_focused()
        assert now_open.count() == before
        page.get_by_role("button", name="Add notification").press("Enter")
        expect(page.get_by_role("group", name="Notification 1").get_by_label("To")).to_be_focused()
        assert now_open.count() == before
        added.get_by_role("button", name="Remove").press("Enter")
        expect(page.get_by_role("button", name="Add role")).to_be_focused()
        assert now_open.count() == before
        assert faults == []


@pytest.mark.parametrize("path", ["/submit?kind=train", "/workloads/{}/edit"])
def test_form_comes_before_prediction_and_document_in_the_tab_order(
    opened: Open, scene: Scene, path: str
) -> None:
    with opened("ada") as (page, faults):
        page.goto(path.format(scene.workloads["policy-sweep"].pk))
        expect(page.locator("#prediction-title")).to_be_visible()
        page.locator("#submit-form > .page-head .button:enabled, #discard").last.focus()
        page.keyboard.press("Tab")
        expect(page.locator("#fields :focus")).to_be_visible()
        page.locator("#document").focus()
        page.keyboard.press("Tab")
        expect(page.locator("#fields :focus")).to_have_count(0)
        assert faults == []


def test_focus_moves_to_the_document_after_a_key_is_renamed(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/submit")
        document = page.locator("#document")
        document.fill(document.input_value().replace("command:", "comand:"))
        page.get_by_role("button", name="Use command", exact=True).press("Enter")
        expect(document).to_have_value(re.compile("command:"))
        expect(document).to_be_focused()
        assert faults == []
