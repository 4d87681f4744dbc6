"""Browser tests for resubmitting an ended workload."""

from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.data.scene import Scene


def test_resubmission_that_would_evict_workloads_asks_first(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{scene.workloads['vit-large-lr3'].pk}")
        page.get_by_role("button", name="Resubmit").click()
        page.get_by_role("button", name="Resubmit and evict").click()
        expect(page.get_by_role("heading", name="vit-large-lr3-2")).to_be_visible()
        expect(page.locator("#predicted")).to_contain_text("Would start and evict")
        assert faults == []
