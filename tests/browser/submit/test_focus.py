"""Browser tests for the keyboard focus in the submission form."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open

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
