"""Browser tests for errors and confirmations in the pool form."""

import pytest
from playwright.sync_api import expect

from pools.models import NodePool
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.axe import accessibility_faults


@pytest.mark.heavy
def test_error_summary_is_focused_and_links_to_the_fields(opened: Open, scene: Scene) -> None:
    with opened("ada") as (page, faults):
        page.goto("/node-pools/new")
        page.get_by_label("Name", exact=True).fill("My Pool!")
        page.get_by_label("Provider", exact=True).select_option("aws")
        page.get_by_role("button", name="Create node pool").click()
        summary = page.get_by_role("group", name="Correct these 5 fields")
        expect(summary).to_be_focused()
        assert accessibility_faults(page) == []
        summary.get_by_role("link", name="Subnets").click()
        expect(page.get_by_label("Subnets")).to_be_focused()
        assert [fault for fault in faults if "422" not in fault] == []


@pytest.mark.heavy
def test_reducing_the_hardware_of_a_pool_in_use_requires_confirmation(opened: Open, scene: Scene) -> None:
    with opened("ada") as (page, faults):
        page.goto("/node-pools/train/settings")
        page.get_by_label("GPUs per node").fill("4")
        page.get_by_role("button", name="Save settings").click()
        dialog = page.get_by_role("dialog", name="Reduce the hardware of train?")
        expect(dialog).to_contain_text("New nodes will have 4 instead of 8 GPUs.")
        assert accessibility_faults(page) == []
        dialog.get_by_role("button", name="Keep editing").click()
        expect(dialog).not_to_be_visible()
        expect(page.get_by_label("GPUs per node")).to_have_value("4")
        page.get_by_role("button", name="Save settings").click()
        dialog.get_by_role("button", name="Save settings").click()
        expect(page.get_by_text("Settings for train saved.")).to_be_visible()
        assert faults == []
    assert NodePool.objects.get(name="train").gpus_per_node == 4
