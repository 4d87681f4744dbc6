"""Browser test for resending a failed notification."""

import pytest
from playwright.sync_api import expect

from projects.models import Delivery
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene


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
