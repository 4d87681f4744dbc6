"""Accessibility tests: axe finds no serious violation on any page, light or dark."""

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


def accessibility_faults(page: Any) -> list[str]:
    violations = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
        for each in violations
        if each["impact"] in SERIOUS
        for node in each["nodes"][:3]
    ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_no_serious_axe_violation(opened: Open, scene: Scene, scheme: str) -> None:
    with opened("ada", color_scheme=scheme) as (page, _):
        violations = {}
        for path in all_paths(scene):
            page.goto(path, wait_until="load")
            if faults := accessibility_faults(page):
                violations[path] = faults
    assert violations == {}, "\n".join(
        f"{path} {fault}" for path, faults in violations.items() for fault in faults
    )


def test_login_page_has_no_serious_axe_violation(opened: Open) -> None:
    with opened(None) as (page, _):
        page.goto("/login")
        assert accessibility_faults(page) == []


def test_dialogs_have_no_serious_axe_violation(opened: Open, scene: Scene) -> None:
    with opened("ada") as (page, _):
        for path, name in DIALOGS:
            page.goto(path, wait_until="networkidle")
            page.get_by_role("link", name=name).first.click()
            page.wait_for_selector("dialog[open]")
            assert accessibility_faults(page) == [], path
