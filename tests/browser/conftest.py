"""One server and one browser for all browser tests, with fresh rows for each."""

import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from playwright.sync_api import Browser

from tests.browser.chromium import PROGRAM, Faults, Page, chromium, reader
from tests.browser.scene import Scene
from tests.browser.site import serving
from tests.browser.snapshot import Snapshot

Open = Callable[..., AbstractContextManager[tuple[Page, Faults]]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if not Path(PROGRAM).exists():
                item.add_marker(pytest.mark.skip(reason=f"there is no {PROGRAM} here"))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Gone before the tests of another folder want a loop of their own."""
    with chromium() as found, pytest.MonkeyPatch.context() as patched:
        # The driver keeps a loop on this thread; rows are made between its calls, not during them.
        patched.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield found


@pytest.fixture(scope="session")
def snapshots() -> list[Snapshot]:
    """The latest snapshot of the scene, if there is one."""
    return []


@pytest.fixture
def scene(transactional_db: None, snapshots: list[Snapshot]) -> Scene:
    if not snapshots or not snapshots[0].is_fresh:
        snapshots[:] = [Snapshot.take()]
        return pickle.loads(snapshots[0].scene)
    return snapshots[0].restore()


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the server: pods of this machine lie in it."""
    return tmp_path_factory.mktemp("web")


@pytest.fixture(scope="session")
def address(django_db_setup: None, postgres: str, home: Path) -> Iterator[str]:
    """One server for all tests, on the tests' database: rows go and come under it."""
    url = postgres.replace("/berth?", f"/{connection.settings_dict['NAME']}?")
    with serving(url, home) as found:
        yield found


@pytest.fixture
def opened(browser: Browser, address: str, scene: Scene) -> Open:
    """A page of a person of the scene: `with opened("dave") as (page, faults)`."""

    def by(name: str | None, **options: Any) -> AbstractContextManager[tuple[Page, Faults]]:
        return reader(browser, address, scene.people[name] if name else None, **options)

    return by
