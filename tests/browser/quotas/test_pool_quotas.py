"""Browser tests for the quotas of one pool and the sums above the quota grid."""

from playwright.sync_api import expect

from pools.models import NodePool
from projects.models import Quota
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.axe import accessibility_faults
from tests.browser.driver.chromium import open_settled
from tests.browser.quotas.test_quota_grid import cell


def test_typing_replaces_a_clicked_quota_value(opened: Open, scene: Scene) -> None:
    with opened("ada") as (page, faults):
        open_settled(page, "/quotas?pool=train")
        page.get_by_role("link", name="Limit of vision: 16 GPUs, change").click()
        field = page.locator("#quota_limit_gpu")
        expect(field).to_be_focused()
        page.keyboard.type("20")
        expect(field).to_have_value("20")
        assert accessibility_faults(page) == []
        page.keyboard.press("Enter")
        expect(page.get_by_text("Quota of vision in pool train saved.")).to_be_visible()
        expect(page.get_by_role("link", name="Limit of vision: 20 GPUs, change")).to_be_visible()
        assert faults == []
    assert Quota.objects.get(project__name="vision", pool__name="train").limit_gpu_milli == 20_000


def test_sums_above_the_grid_have_thousands_separators_while_the_user_types(
    opened: Open, scene: Scene
) -> None:
    NodePool.objects.filter(name="train").update(nodes_max=4000)
    with opened("ada") as (page, faults):
        open_settled(page, "/quotas")
        head = page.locator("th[data-pool-head=train] [data-total]")
        expect(head).to_have_text("32 of 32,000")
        cell(page, "research").focus()
        page.keyboard.type("1500")
        page.keyboard.press("Enter")
        expect(head).to_have_text("1,512 of 32,000")
        assert faults == []
