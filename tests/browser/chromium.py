"""Chromium that may reach this machine only and reports every page error."""

import contextlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Response,
    Route,
    expect,
    sync_playwright,
)

PROGRAM = "/usr/bin/chromium"
QUIET = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    "--disable-features=OptimizationHints,MediaRouter,Translate",
    "--disable-domain-reliability",
    "--disable-dev-shm-usage",
    "--disable-gpu",
]
PATIENCE = 30_000  # milliseconds; enough for a page on a busy machine
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 360, "height": 780}


class Faults(list[str]):
    """Faults in the pages of a context: console errors, exceptions, requests to other hosts."""


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=QUIET)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def reader(
    browser: Browser, address: str, user: User | None, *, beyond: tuple[str, ...] = (), **options: Any
) -> Iterator[tuple[Page, Faults]]:
    """Open a page of a signed-in user and yield it with the faults that occur in it.

    `beyond` are suffixes of other hosts that the page may reach.
    """
    options = {"viewport": WIDE, "timezone_id": "Europe/Berlin", "locale": "en-GB"} | options
    context = browser.new_context(base_url=address, **options)
    faults = Faults()
    try:
        _restrict_hosts(context, address, faults, beyond)
        if user is not None:
            context.add_cookies(
                [{"name": settings.SESSION_COOKIE_NAME, "value": session_of(user), "url": address}]
            )
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", lambda message: message.type == "error" and faults.append(_formatted(message)))
        page.on("pageerror", lambda error: faults.append(f"exception: {error}"))
        yield page, faults
    finally:
        context.close()


def settled(page: Page, path: str) -> Response:
    """Open a page and wait for the parts that it loads on its own."""
    response = page.goto(path, wait_until="load")
    assert response is not None
    page.wait_for_function("() => !document.querySelector('.htmx-request')")
    return response


def _formatted(message: ConsoleMessage) -> str:
    return f"console: {message.text} ({message.location['url']})"


def session_of(user: User) -> str:
    session = import_module(settings.SESSION_ENGINE).SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return session.session_key


def _restrict_hosts(context: BrowserContext, address: str, faults: Faults, beyond: tuple[str, ...]) -> None:
    host = urlsplit(address).netloc

    def allow_or_abort(route: Route) -> None:
        url = urlsplit(route.request.url)
        if url.netloc == host or (url.hostname or "").endswith(beyond):
            route.continue_()
        else:
            faults.append(f"request to elsewhere: {route.request.url}")
            route.abort()

    context.route("**/*", allow_or_abort)
