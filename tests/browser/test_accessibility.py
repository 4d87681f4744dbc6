"""Claims about who can use the pages: axe finds nothing serious on any of them, light or dark."""

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.conftest import Open
from tests.browser.scene import Scene
from tests.browser.test_every_page import all_paths

SERIOUS = ("serious", "critical")
DIALOGS = (
    ("/notifications", "New subscription"),
    ("/templates", "New template"),
    ("/usage?span=7d", "New budget"),
    ("/access", "Create token"),
    ("/account", "Change password"),
    ("/fair-share?pool=train", "explain the fair share of vision"),
)


def faults_of(page: Any) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
        for each in found
        if each["impact"] in SERIOUS
        for node in each["nodes"][:3]
    ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_page(opened: Open, scene: Scene, scheme: str) -> None:
    with opened("ada", color_scheme=scheme) as (page, _):
        found = {}
        for path in all_paths(scene):
            page.goto(path, wait_until="load")
            if faults := faults_of(page):
                found[path] = faults
    assert found == {}, "\n".join(f"{path} {fault}" for path, faults in found.items() for fault in faults)


def test_axe_finds_nothing_serious_before_one_has_signed_in(opened: Open) -> None:
    with opened(None) as (page, _):
        page.goto("/login")
        assert faults_of(page) == []


def test_axe_finds_nothing_serious_in_dialogs(opened: Open, scene: Scene) -> None:
    with opened("ada") as (page, _):
        for path, name in DIALOGS:
            page.goto(path, wait_until="networkidle")
            page.get_by_role("link", name=name).first.click()
            page.wait_for_selector("dialog[open]")
            assert faults_of(page) == [], path
