"""Browser tests for the page of joined machines."""

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from pools import services
from pools.models import JoinToken, Machine, NodePool
from pools.services.joining import MachineReport
from projects.actor import Actor
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import NARROW, WIDE
from tests.browser.every_page.pages import DUPLICATE_IDS, OVERFLOW, UNNAMED

PAGE = "/node-pools/metal/machines"


@pytest.fixture
def metal_pool(scene: Scene) -> NodePool:
    actor, now, hour = Actor.system("tests"), timezone.now(), timedelta(hours=1)
    shape = {"provider": "static", "runtime": "ray", "gpus_per_node": 8, "cpu_milli": 96000}
    pool = services.create_pool(actor=actor, name="metal", nodes=(0, 4), memory_mib=1048576, **shape)
    for number in range(3):
        _, token = services.issue_join_token(
            actor=actor, pool=pool, lifetime=hour, at=now, comment=f"rack 7, place {number}"
        )
        gpus = tuple(f"GPU-{number}-{index}" for index in range(8))
        measured = MachineReport(
            f"box-{number}", f"10.1.0.{number + 5}", 192000, 2097152, gpus, "H100 80GB HBM3"
        )
        services.join(pool_name="metal", token=token, measured=measured, at=now)
    services.issue_join_token(actor=actor, pool=pool, lifetime=hour, at=now, comment="rack 8, place 0")
    return pool


@pytest.mark.heavy
def test_machine_page_and_its_dialogs_work_on_a_phone(opened: Open, metal_pool: NodePool) -> None:
    with opened("ada") as (page, faults):
        page.goto("/node-pools/metal")
        page.get_by_role("link", name="Show machines").first.click()
        expect(page.locator("h1")).to_have_text("Machines in metal")
        assert page.evaluate(UNNAMED) == []
        assert page.evaluate(DUPLICATE_IDS) == []
        page.set_viewport_size(NARROW)
        assert page.evaluate(OVERFLOW) <= 0
        page.set_viewport_size(WIDE)
        page.get_by_role("link", name="Create token").click()
        page.get_by_role("textbox", name="Comment").fill("rack 9")
        page.get_by_role("button", name="Issue token").click()
        secret = page.locator("#secret").inner_text()
        assert secret.startswith("join_")
        assert JoinToken.objects.filter(comment="rack 9", revoked_at=None).count() == 1
        page.goto(PAGE)
        assert secret not in page.content()
        page.get_by_role("link", name="Remove box-1").click()
        page.get_by_label("Reason").fill("sold")
        page.get_by_role("button", name="Remove").click()
        page.get_by_role("link", name="Remove box-1").wait_for(state="detached")
        assert Machine.objects.get(name="box-1").departed_at is not None
        assert faults == []
