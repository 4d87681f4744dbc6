"""Accessibility tests for the login page and dialogs with axe."""

import pytest

from tests.browser.conftest import Open
from tests.browser.driver.axe import accessibility_faults
from tests.browser.driver.chromium import open_settled

DIALOGS = (
    ("/notifications", "Create subscription"),
    ("/fair-share?pool=train", "explain the fair share of vision"),
    ("/usage?span=7d", "Create budget"),
    ("/account", "Create token"),
    ("/account", "Change password"),
)


def test_login_page_has_no_serious_accessibility_violation(opened: Open) -> None:
    with opened(None) as (page, _):
        page.goto("/login")
        assert accessibility_faults(page) == []


@pytest.mark.heavy
def test_dialogs_have_no_serious_accessibility_violation(opened: Open) -> None:
    with opened("ada") as (page, _):
        for path, name in DIALOGS:
            open_settled(page, path)
            page.get_by_role("link", name=name).first.click()
            page.wait_for_selector("dialog[open]")
            assert accessibility_faults(page, "dialog[open]") == [], path
