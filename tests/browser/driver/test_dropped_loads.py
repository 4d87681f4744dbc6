"""Tests that the browser driver reloads pages whose requests Chromium drops."""

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Open
from tests.browser.driver import chromium

pytestmark = pytest.mark.heavy

SCRIPT = "**/js/account*.js"


def drop(page: Page, loads: int) -> list[str]:
    requests: list[str] = []

    def abort(route: Route) -> None:
        requests.append(route.request.url)
        if len(requests) <= loads:
            route.abort("connectionaborted")
        else:
            route.continue_()

    page.route(SCRIPT, abort)
    return requests


def test_page_is_reloaded_if_the_request_for_a_script_was_dropped(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        chromium, "DROPPED", "net::ERR_CONNECTION_ABORTED"
    )  # a test cannot change the network
    with opened("ada") as (page, faults):
        requests = drop(page, loads=2)
        page.goto("/account")
        assert len(requests) == 3
        page.get_by_role("button", name="Dark", exact=True).click()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        assert faults == []


def test_script_that_fails_to_load_for_another_reason_is_reported(opened: Open) -> None:
    with opened("ada") as (page, faults):
        requests = drop(page, loads=1)
        page.goto("/account")
        assert len(requests) == 1
        assert any("ERR_CONNECTION_ABORTED" in fault for fault in faults)
