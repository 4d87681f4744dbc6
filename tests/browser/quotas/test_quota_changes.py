"""Browser tests for reverting a quota change."""

import pytest
from playwright.sync_api import expect

from projects.models import QuotaChange
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.axe import accessibility_faults
from tests.browser.driver.chromium import open_settled

# The left and right edges of the columns of the first and the last row.
EDGES = """table => [table.tHead.rows[0], [...table.tBodies[0].rows].at(-1)].map(
  row => [...row.cells].map(cell => cell.getBoundingClientRect()).map(({ left, right }) => [left, right]))"""


@pytest.mark.heavy
def test_revert_dialog_with_evictions_keeps_its_button_and_columns_in_view(
    opened: Open, scene: Scene
) -> None:
    change = next(row for row in QuotaChange.objects.all() if row.written[0]["name"] == "vision")
    with opened("ada", viewport={"width": 1440, "height": 900}) as (page, faults):
        open_settled(page, "/quotas/changes")
        page.get_by_label(f"Revert change {change.pk}", exact=True).click()
        dialog = page.locator("#dialog")
        expect(dialog.get_by_role("table", name="Predicted evictions")).to_be_visible()
        head, row = dialog.get_by_role("table", name="Predicted evictions").evaluate(EDGES)
        assert head == row, "the heads are above their columns"
        confirm = dialog.get_by_role("button", name="Revert change")
        box = confirm.bounding_box()
        assert box and box["y"] + box["height"] <= 900, "the button is in view without scrolling"
        assert "danger" in (confirm.get_attribute("class") or "")
        assert accessibility_faults(page) == []
        assert faults == []
