"""Browser tests for the page of a pool with many nodes."""

import re

import pytest
from playwright.sync_api import Page, expect

from pools.models import Node
from tests.browser.conftest import Open
from tests.browser.data.pools.fleet import create_fleet
from tests.browser.data.scene import Scene

pytestmark = pytest.mark.heavy


def select(page: Page, name: str) -> None:
    page.get_by_role("checkbox", name=f"Select {name}", exact=True).click()


def test_diagnosis_action_uncordons_all_listed_nodes(opened: Open, scene: Scene) -> None:
    create_fleet(scene.projects["vision"], 200)
    with opened("ada") as (page, faults):
        page.goto("/node-pools/fleet")
        page.get_by_role("row", name="Cordoned nodes").get_by_role("link", name="Show 2 nodes").click()
        expect(page).to_have_url(re.compile(r"\?finding=cordoned\+nodes#nodes$"))
        expect(page.get_by_role("checkbox", name=re.compile("^Select fleet"))).to_have_count(2)
        page.get_by_role("link", name="Uncordon 2 nodes").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("heading", name="Uncordon 2 nodes?")).to_be_visible()
        expect(dialog).to_contain_text("fleet-113")
        dialog.get_by_role("button", name="Uncordon 2 nodes").click()
        expect(page.get_by_text("2 nodes are uncordoned.")).to_be_visible()
        expect(page.get_by_role("row", name="Cordoned nodes")).to_have_count(0)
        assert not faults
    assert not Node.objects.filter(pool__name="fleet", state="cordoned").exists()


def test_selected_nodes_can_be_cordoned_in_a_filtered_table(opened: Open, scene: Scene) -> None:
    create_fleet(scene.projects["vision"], 60)
    with opened("ada") as (page, faults):
        page.goto("/node-pools/fleet?nodes-sort=-utilization&state=ready")
        page.get_by_label("Node or problem").fill("fleet-4")
        boxes = page.get_by_role("checkbox", name=re.compile("^Select fleet"))
        expect(boxes).to_have_count(11)
        expect(page).to_have_url(re.compile("nodes-sort=-utilization&state=ready&nodes-search=fleet-4"))
        select(page, "fleet-4")
        select(page, "fleet-44")
        bar = page.locator("#bulk")
        expect(bar).to_be_in_viewport(ratio=1)
        expect(page.get_by_role("navigation", name="State")).to_be_visible()
        expect(bar).to_contain_text("2 selected")
        expect(bar.get_by_role("button", name="Uncordon")).to_be_hidden()
        bar.get_by_role("button", name=re.compile(r"Cordon \d+ selected nodes")).click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("heading", name="Cordon 2 nodes?")).to_be_visible()
        dialog.get_by_label("Reason").fill("fan is loud")
        dialog.get_by_role("button", name="Cordon 2 nodes").click()
        expect(page.get_by_text("2 nodes are cordoned.")).to_be_visible()
        expect(boxes).to_have_count(9)
        page.goto("/node-pools/fleet?state=cordoned")
        expect(page.get_by_role("row", name="Select fleet-44")).to_contain_text("Fan is loud (ada)")
        assert not faults


def test_table_on_a_phone_shows_the_key_facts_about_each_node(opened: Open, scene: Scene) -> None:
    create_fleet(scene.projects["vision"], 60)
    with opened("ada", viewport={"width": 390, "height": 844}, has_touch=True) as (page, faults):
        page.goto("/node-pools/fleet")
        row = page.locator(".node-rows tbody tr").nth(1)
        expect(row).to_contain_text("8 of 8")
        expect(row.get_by_text("492.2 GiB")).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert not faults
