"""A PostgreSQL server for the tests, and a check of behaviour markers."""

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import environ
import hypothesis
import pytest
from _pytest.runner import runtestprotocol
from django.conf import settings
from django.core.servers.basehttp import WSGIRequestHandler
from pytest_django import DjangoDbBlocker

from berth.core.garbage import relax_garbage_collection
from berth.db.embedded.cluster import run_server
from berth.db.embedded.roles import DATABASE
from tests.harness import database_cleanup, prepared
from tests.harness.behaviours import reject_unknown_behaviours
from tests.harness.distribution import starts_last
from tests.harness.processes import pytest_addoption, pytest_runtestloop
from tests.harness.samples import mark_further_cases

__all__ = ["pytest_addoption", "pytest_runtestloop"]

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # collection is disabled until all modules are loaded
    # No test depends on the speed of the machine.
    hypothesis.settings.register_profile(
        "berth", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("berth")
    WSGIRequestHandler.disable_nagle_algorithm = True  # the live server writes headers and body separately
    # Every test client would search all static files; with this, they are searched when one is requested.
    settings.WHITENOISE_AUTOREFRESH = True
    settings.BERTH_FAKE_POOLS = "tests.fakes"
    os.environ.setdefault("BERTH_IMAGES", "off")  # trying a container takes a second of each server's start
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark heavy cases before `-m` selects tests, and sort the tests afterwards.

    The longest groups come first, so that no process is left with a long group at the end. Sorting comes last
    because pytest-django moves tests without a database to the end.
    """
    reject_unknown_behaviours(items)
    mark_further_cases(items)
    yield
    items.sort(key=lambda item: starts_last(item.nodeid))


def pytest_collection_finish() -> None:
    """Exclude all loaded modules from garbage collection, which would otherwise visit them repeatedly."""
    gc.freeze()
    relax_garbage_collection()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test without reporting passed set-up and teardown phases to the main process.

    Each report takes about a millisecond, and only `--durations` needs all of them.
    """
    if not prepared.is_one_of_several_processes() or item.config.option.durations is not None:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    if announcer := sys.modules.get("berth.server.web.live.announcer"):
        announcer.ANNOUNCER.start()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Stop the announcer, which must not announce changes after the test database is dropped."""
    if announcer := sys.modules.get("berth.server.web.live.announcer"):
        announcer.ANNOUNCER.shut_down()


@pytest.fixture(scope="session")
def migrated_home(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """Return a directory with a migrated database, which the server of each process copies.

    Return None for a single process, because migrating its database takes less time than a copy.
    """
    if os.environ.get("DATABASE_URL") or not prepared.is_one_of_several_processes():
        return None
    return prepared.migrated_home(tmp_path_factory)


@pytest.fixture(scope="session")
def postgres(migrated_home: Path | None) -> Iterator[str]:
    """Return the URL of the database server: DATABASE_URL, or a server started for this run."""
    if url := os.environ.get("DATABASE_URL"):
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="berth-tests-") as place:
        home = Path(place) / "home"
        if migrated_home:
            prepared.copy_directory(migrated_home, home)
        cluster = prepared.cluster_of_tests(home)
        with run_server(cluster, log=Path(place) / "postgres.log"):
            yield cluster.url()


@pytest.fixture
def frozen_rate_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reset all rate limits and freeze their clock, so that no window ends during the test."""
    from django.core.cache import cache

    cache.clear()
    monkeypatch.setattr("berth.server.api.rate_limits.time", SimpleNamespace(time=lambda: 1e9))
    yield
    cache.clear()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    postgres: str, migrated_home: Path | None, django_db_modify_db_settings_parallel_suffix: None
) -> None:
    from django.db import connections

    settings_dict = connections["default"].settings_dict
    server = environ.Env.db_url_config(postgres)
    # Keep the options of the settings, which prepare queries.
    settings_dict.update(server | {"OPTIONS": settings_dict["OPTIONS"] | server.get("OPTIONS", {})})
    if migrated_home:
        settings_dict["TEST"]["TEMPLATE"] = DATABASE


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Close connections that test threads left open. They would prevent the database from being dropped."""
    from berth.server.web.live import listener

    listener.IDLE_SECONDS = 0.0  # the listener ends once the last page is closed
    with django_db_blocker.unblock():
        database_cleanup.install()
    yield
    with django_db_blocker.unblock():
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() AND usesysid IS NOT NULL"
            )  # autovacuum has no user, and only a superuser may terminate it


def url_of_test_database(postgres: str) -> str:
    from django.db import connection

    return prepared.url_of_database(postgres, str(connection.settings_dict["NAME"]))


def env_of_children(postgres: str) -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    return {
        **os.environ,
        "DATABASE_URL": url_of_test_database(postgres),
        "DJANGO_SETTINGS_MODULE": "berth.server.settings",
        "PYTHONPATH": paths,
    }


@pytest.fixture
def database_url(transactional_db: None, postgres: str) -> str:
    return url_of_test_database(postgres)


@pytest.fixture
def child_env(transactional_db: None, postgres: str) -> dict[str, str]:
    return env_of_children(postgres)
