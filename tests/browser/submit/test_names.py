"""Browser tests of the names that the submission form offers."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open

pytestmark = pytest.mark.heavy

# Whether the button begins below the error's text.
BELOW_TEXT = """(button) => {
  const range = document.createRange();
  range.setStart(button.parentElement, 0);
  range.setEndBefore(button);
  return button.getBoundingClientRect().top >= range.getBoundingClientRect().bottom;
}"""


def test_form_offers_a_free_name_after_a_submission(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/submit")
        name = page.get_by_label("Name", exact=True)
        offered = name.input_value()
        page.get_by_role("button", name="Submit workload", exact=True).click()
        expect(page.locator("h1")).to_contain_text(offered)
        page.goto("/submit")
        expect(page.locator("#prediction-title")).to_be_visible()
        expect(name).to_have_value(f"{offered}-2")
        name.fill(offered)
        use = page.get_by_role("button", name=f"Use {offered}-2")
        expect(use).to_be_visible()
        assert use.evaluate(BELOW_TEXT)
        expect(name).to_have_attribute("aria-invalid", "true")
        use.click()
        expect(page.locator("#prediction-title")).to_be_visible()
        expect(page.locator("#faults-title")).to_have_count(0)
        assert faults == []


def test_choosing_a_starting_point_keeps_the_typed_name(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/submit")
        name, menu = page.get_by_label("Name", exact=True), page.locator("#starts")
        menu.locator("summary").click()
        menu.get_by_role("link", name="Elastic training").click()
        expect(page.get_by_label("Kind", exact=True)).to_have_value("elastic")
        expect(name).to_have_value("my-training")
        name.fill("mine")
        expect(page.locator("#document")).to_have_value(re.compile("^name: mine\n"))
        menu.locator("summary").click()
        menu.get_by_role("link", name="notebook", exact=True).click()
        expect(page.get_by_label("Kind", exact=True)).to_have_value("interactive")
        expect(name).to_have_value("mine")
        assert faults == []


def test_changing_the_kind_replaces_the_example_and_keeps_the_focus(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/submit")
        kind = page.get_by_label("Kind", exact=True)
        kind.focus()
        kind.select_option("interactive")
        expect(page.get_by_label("Command", exact=True)).to_have_value("sleep 8h")
        expect(page.get_by_label("Max runtime")).to_have_value("8h")
        expect(page.locator("#document")).to_have_value(re.compile("kind: interactive\ncommand: sleep 8h\n"))
        expect(page.locator("#f-command-hint")).to_contain_text("berth exec -it NAME")
        expect(kind).to_be_focused()
        kind.select_option("service")
        expect(page.get_by_label("Model", exact=True)).to_have_value("my-model")
        expect(page.get_by_label("Name", exact=True)).to_have_value("my-service")
        page.locator("#starts > summary").click()
        page.locator("#starts").get_by_role("link", name="Elastic training").click()
        expect(page.get_by_label("Name", exact=True)).to_have_value("my-training")
        assert faults == []
