"""Chromium restricted to requests to this machine, with every page error recorded."""

import contextlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    Request,
    Response,
    ViewportSize,
    expect,
    sync_playwright,
)

# Headless Chromium takes a fifth less time than Chromium with windows.
PROGRAMS = ("/usr/bin/chromium-headless-shell", "/usr/bin/chromium")
PROGRAM = next((program for program in PROGRAMS if Path(program).exists()), PROGRAMS[0])
QUIET = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    # Starting a process takes longer than loading a page, so the pages of a context share one process.
    "--process-per-site",
    "--disable-features=OptimizationHints,MediaRouter,Translate,SpareRendererForSitePerProcess",
    "--disable-domain-reliability",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    # Routing requests through the driver would do the same, but it turns the cache off.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost, EXCLUDE *.localhost",
]
# Chromium drops its requests if an interface of this machine appears or disappears. Tests of containers and
# clusters create interfaces, and may run at the same time.
DROPPED = "net::ERR_NETWORK_CHANGED"
# Leaving a page aborts its requests, which htmx logs as errors. It logs failed requests a second time with a
# name of their own, such as htmx:sendError.
ABORTED = ("htmx:afterRequest,", "htmx:sendAbort,")
MAX_LOADS = 5  # maximum number of loads of one page whose requests are dropped
PATIENCE = 90_000  # time limit in milliseconds, enough for a page on a busy machine
WIDE: ViewportSize = {"width": 1440, "height": 900}
NARROW: ViewportSize = {"width": 360, "height": 780}


class Faults(list[str]):
    """Faults on the pages of a browser context: console errors, exceptions and requests to other hosts."""


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
    browser: Browser, address: str, user: User | None, *, allowed_hosts: tuple[str, ...] = (), **options: Any
) -> Iterator[tuple[Page, Faults]]:
    """Open a page for a signed-in user, and yield it with a record of its faults.

    Requests to other hosts are blocked unless the host name ends with one of `allowed_hosts`.
    """
    context = new_context(browser, address, options)
    try:
        with open_page(context, address, user, allowed_hosts=allowed_hosts) as opened:
            yield opened
    finally:
        context.close()


def new_context(browser: Browser, address: str, options: dict[str, Any]) -> BrowserContext:
    options = {"viewport": WIDE, "timezone_id": "Europe/Berlin", "locale": "en-GB"} | options
    context = browser.new_context(base_url=address, **options)
    context.set_default_timeout(PATIENCE)
    return context


@contextlib.contextmanager
def open_page(
    context: BrowserContext, address: str, user: User | None, *, allowed_hosts: tuple[str, ...] = ()
) -> Iterator[tuple[Page, Faults]]:
    faults, host = Faults(), urlsplit(address).netloc

    def check_host(request: Request) -> None:
        url = urlsplit(request.url)
        is_ours = url.netloc == host or (url.hostname or "").endswith(allowed_hosts)
        if url.scheme in {"http", "https"} and not is_ours:
            faults.append(f"request to another host: {request.url}")

    def record_error(message: ConsoleMessage) -> None:
        is_expected = DROPPED in message.text or message.text.startswith(ABORTED)
        if message.type == "error" and not is_expected:
            faults.append(_formatted(message))

    context.on("request", check_host)
    try:
        if user is not None:
            context.add_cookies(
                [{"name": settings.SESSION_COOKIE_NAME, "value": create_session(user), "url": address}]
            )
        page = context.new_page()
        page.on("console", record_error)
        page.on("pageerror", lambda error: faults.append(f"exception: {error}"))
        repeat_dropped_loads(page, faults)
        yield page, faults
    finally:
        context.remove_listener("request", check_host)


def repeat_dropped_loads(page: Page, faults: Faults) -> None:
    """Make `goto` reload a page if Chromium dropped its document, scripts or style sheets (see DROPPED).

    Faults of the dropped load are discarded. Other failures are reported.
    """
    dropped: list[str] = []
    load = page.goto

    def record_dropped(request: Request) -> None:
        if request.failure == DROPPED:
            dropped.append(request.url)

    def goto(url: str, **options: Any) -> Response | None:
        earlier, response = len(faults), None
        for _ in range(MAX_LOADS):
            del faults[earlier:], dropped[:]
            try:
                response = load(url, **options)
            except Error as error:
                if DROPPED not in error.message:
                    raise
            else:
                if not dropped:
                    return response
        raise AssertionError(f"The network changed during {MAX_LOADS} loads of {url}: {dropped}")

    page.on("requestfailed", record_dropped)
    page.goto = goto


def open_settled(page: Page, path: str) -> Response:
    """Open a page and wait until its lazily loaded parts have loaded."""
    response = page.goto(path, wait_until="load")
    assert response is not None
    page.wait_for_function("() => !document.querySelector('.htmx-request')")
    return response


def _formatted(message: ConsoleMessage) -> str:
    return f"console: {message.text} ({message.location['url']})"


def create_session(user: User) -> str:
    session = import_module(settings.SESSION_ENGINE).SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return session.session_key
