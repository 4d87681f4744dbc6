"""Browser contexts that tests reuse."""

import contextlib
import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from django.contrib.auth.models import User
from playwright.sync_api import Browser, BrowserContext, Page

from tests.browser.driver.chromium import Faults, new_context, open_page


class WarmContexts:
    """Browser contexts that load the first page several times faster than new contexts.

    Each context keeps one page open to keep the renderer process, scripts and fonts loaded. Other pages,
    cookies, storage and permissions are cleared between tests.
    """

    def __init__(self, browser: Browser, address: str) -> None:
        self._browser, self._address = browser, address
        self._idle: dict[str, list[tuple[BrowserContext, Page]]] = defaultdict(list)

    @contextlib.contextmanager
    def reader(self, user: User | None, **options: Any) -> Iterator[tuple[Page, Faults]]:
        idle = self._idle[json.dumps(options, sort_keys=True)]
        context, anchor = idle.pop() if idle else self._start(options)
        try:
            with open_page(context, self._address, user) as opened:
                yield opened
            _clear(context, anchor)
        except BaseException:
            context.close()
            raise
        idle.append((context, anchor))

    def _start(self, options: dict[str, Any]) -> tuple[BrowserContext, Page]:
        context = new_context(self._browser, self._address, options)
        anchor = context.new_page()
        anchor.goto("/static/berth/mark.svg")
        return context, anchor


def _clear(context: BrowserContext, anchor: Page) -> None:
    for page in context.pages:
        if page is not anchor:
            page.close()
    context.clear_cookies()
    context.clear_permissions()
    anchor.evaluate("localStorage.clear()")
