"""Requests that a test holds back until it continues them."""

import re

from playwright.sync_api import Page, Route


def hold_requests(page: Page, address: str | re.Pattern[str]) -> list[Route]:
    """Hold back all requests to matching addresses. Return the list to which they are added."""
    held: list[Route] = []
    page.route(address, lambda route: held.append(route))  # noqa: PLW0108 - Playwright rejects built-in methods
    return held
