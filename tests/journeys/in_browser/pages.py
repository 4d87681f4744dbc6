"""Open pages of a running installation as a signed-in user."""

import contextlib
from collections.abc import Iterator

from playwright.sync_api import Browser, Page, expect

from tests.browser.driver.chromium import reader
from tests.journeys.installation import Installation

SLOW = 120_000  # time limit in milliseconds; nodes boot and gangs write checkpoints


@contextlib.contextmanager
def signed_in(browser: Browser, berth: Installation, name: str) -> Iterator[Page]:
    """Sign a user in with a password. Fail if any request or script of the page fails."""
    passwords = dict(line.split(" ", 1) for line in (berth.home / "demo-passwords").read_text().splitlines())
    passwords["admin"] = (berth.home / "admin-password").read_text().strip()
    with reader(browser, f"http://127.0.0.1:{berth.port}", None) as (page, faults):
        page.goto("/login")
        page.get_by_label("Username").fill(name)
        page.get_by_label("Password", exact=True).fill(passwords[name])
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        yield page
        assert faults == []


def wait_until_running(page: Page) -> None:
    """Wait until the page shows Running without a reload."""
    expect(page.get_by_role("heading", level=1)).to_contain_text("Running", timeout=SLOW)
