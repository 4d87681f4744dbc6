"""Fixtures for browser tests: a shared server and browser, and fresh rows for each test."""

import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from playwright.sync_api import Browser, Page
from pytest_django import DjangoDbBlocker

from tests.browser.data.scene import Scene
from tests.browser.data.snapshot import Snapshot
from tests.browser.driver.chromium import PROGRAM, Faults, chromium, reader
from tests.browser.driver.site import serving
from tests.browser.driver.warm import WarmContexts
from tests.harness.prepared import url_of_database

# The few tests with other options get their own contexts.
REUSED_OPTIONS = {"viewport", "has_touch"}
Open = Callable[..., AbstractContextManager[tuple[Page, Faults]]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if not Path(PROGRAM).exists():
                item.add_marker(pytest.mark.skip(reason=f"{PROGRAM} is not installed"))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Start a browser. Close it before tests in a different folder start an event loop."""
    with chromium() as started, pytest.MonkeyPatch.context() as patched:
        # The driver runs an event loop on this thread. Rows are created only between calls to the driver.
        patched.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield started


@pytest.fixture(scope="package")
def snapshots(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[list[Snapshot]]:
    """Yield a list for the snapshot of the test data.

    Drop the snapshot's tables afterwards, because backups would contain them.
    """
    snapshots: list[Snapshot] = []
    yield snapshots
    with django_db_blocker.unblock():
        for snapshot in snapshots:
            snapshot.drop()


@pytest.fixture
def scene(transactional_db: None, snapshots: list[Snapshot]) -> Scene:
    if snapshots:
        return snapshots[0].restore()
    snapshots.append(Snapshot.take())
    scene: Scene = pickle.loads(snapshots[0].scene)
    return scene


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("web")


@pytest.fixture(scope="package")
def address(django_db_setup: None, postgres: str, home: Path) -> Iterator[str]:
    url = url_of_database(postgres, str(connection.settings_dict["NAME"]))
    with serving(url, home) as started:
        yield started


@pytest.fixture(scope="package")
def warm_contexts(browser: Browser, address: str) -> WarmContexts:
    return WarmContexts(browser, address)


@pytest.fixture
def opened(browser: Browser, address: str, warm_contexts: WarmContexts, scene: Scene) -> Open:
    """Return a function that opens a page as a user: `with opened("dave") as (page, faults)`."""

    def by(name: str | None, **options: Any) -> AbstractContextManager[tuple[Page, Faults]]:
        user = scene.people[name] if name else None
        if options.keys() <= REUSED_OPTIONS:
            return warm_contexts.reader(user, **options)
        return reader(browser, address, user, **options)

    return by
