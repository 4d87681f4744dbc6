"""Accessibility tests: axe finds no serious violation on any page, light or dark."""

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.chromium import settled
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


def accessibility_faults(page: Any, **options: Any) -> list[str]:
    violations = Axe().run(page, options=options or None).response["violations"]
    return [
        f"{each['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
        for each in violations
        if each["impact"] in SERIOUS
        for node in each["nodes"][:3]
    ]


@pytest.mark.timeout(300)
def test_pages_have_no_serious_axe_violation(opened: Open, scene: Scene) -> None:
    """In the dark theme only the contrast can differ."""
    violations = []
    with opened("ada") as (page, _):
        for path in all_paths(scene):
            page.emulate_media(color_scheme="light")
            settled(page, path)
            violations += [f"{path} {fault}" for fault in accessibility_faults(page)]
            page.emulate_media(color_scheme="dark")
            faults = accessibility_faults(page, runOnly=["color-contrast"])
            violations += [f"{path}, dark: {fault}" for fault in faults]
    assert not violations, "\n".join(violations)


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
