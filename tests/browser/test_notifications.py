"""Browser tests for notifications: resending, and the form of a subscription."""

import pytest
from playwright.sync_api import expect

from projects.models import Delivery
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import open_settled


@pytest.mark.heavy
def test_failed_delivery_is_resent_from_the_list(opened: Open, scene: Scene) -> None:
    delivery = Delivery.objects.get(state="failed")
    with opened("ada") as (page, faults):
        page.goto("/notifications")
        table = page.get_by_role("table", name="Deliveries, newest first")
        row = table.get_by_role("row").filter(has_text="Node pool failing")
        expect(row).to_contain_text("Failed")
        row.get_by_role("link", name="Send the notification to").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("The content and the delivery ID stay the same.")
        dialog.get_by_role("button", name="Send again").click()
        expect(dialog).not_to_be_visible()
        expect(row).to_contain_text("Pending")
        expect(row.get_by_role("link", name="Send the notification to")).to_have_count(0)
        assert faults == []
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts) == ("pending", 0)


@pytest.mark.heavy
def test_error_of_a_field_disappears_when_the_field_is_changed(opened: Open) -> None:
    with opened("ada") as (page, _):
        open_settled(page, "/notifications/new")
        page.get_by_label("Channel").select_option("Slack")
        expect(page.get_by_text("The URL of an incoming webhook in Slack.")).to_be_visible()
        expect(page.get_by_text("An email address, for example")).to_be_hidden()
        address = page.get_by_label("To", exact=True)
        address.fill("ada@example.com")
        page.get_by_role("button", name="Create subscription").click()
        error = page.get_by_text("Enter the URL of a Slack webhook")
        expect(error).to_be_visible()
        expect(address).to_have_attribute("aria-invalid", "true")
        expect(page.get_by_text("The URL of an incoming webhook in Slack.")).to_be_visible()
        address.press_sequentially("x")
        expect(error).to_be_hidden()
        expect(address).not_to_have_attribute("aria-invalid", "true")
