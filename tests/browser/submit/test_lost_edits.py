"""Browser tests that edits of the submission form reach the document on slow and changing networks."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.driver.held_requests import hold_requests

IN_DOCUMENT = re.compile("name: early-bird")


@pytest.mark.heavy
def test_edits_made_before_the_script_has_loaded_are_applied_to_the_document(opened: Open) -> None:
    with opened("dave") as (page, faults):
        held = hold_requests(page, "**/js/submit*.js")
        page.goto("/submit", wait_until="commit")
        page.get_by_label("Name", exact=True).fill("early-bird")
        expect(page.locator("#document")).not_to_have_value(IN_DOCUMENT)
        for route in held:
            route.continue_()
        expect(page.locator("#document")).to_have_value(IN_DOCUMENT)
        assert faults == []


@pytest.mark.heavy
def test_failed_edit_request_is_sent_again(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/submit")
        page.route("**/submit", lambda route: route.abort("connectionaborted"), times=1)
        page.get_by_label("Name", exact=True).fill("early-bird")
        expect(page.get_by_text("The server cannot be reached.")).to_be_visible()
        expect(page.locator("#document")).to_have_value(IN_DOCUMENT)
        assert [
            fault for fault in faults if not re.search("ERR_CONNECTION_ABORTED|htmx:sendError", fault)
        ] == []
