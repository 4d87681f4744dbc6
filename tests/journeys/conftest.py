"""Installations for the journeys: one of a module's own, and one that all journeys share."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from berth.db.embedded import Embedded, serving
from tests.conftest import FAST_SETTINGS
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import Installation

Installing = Callable[..., AbstractContextManager[Installation]]


@pytest.fixture(scope="session")
def prepared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home as the first start with --demo leaves it, made once for all processes of a test run."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    home = shared / "prepared-home"
    with (shared / "prepared-home.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            # Not made in pytest's directory, which PostgreSQL's own user may not enter.
            with tempfile.TemporaryDirectory(prefix="berth-prepared-") as place:
                _prepare(Path(place) / "home")
                _copy(Path(place) / "home", home)
    return home


def _prepare(home: Path) -> None:
    with serving(Embedded(home / "postgres", FAST_SETTINGS), log=home / "postgres.log") as cluster:
        subprocess.run(
            [sys.executable, "-m", "berth.server.up.prepare", "--demo"],
            env={**Installation(home).env(), "DATABASE_URL": cluster.url()},
            check=True,
        )


def _copy(source: Path, target: Path) -> None:
    """Copy with the owners of the files: the database belongs to a user of its own."""
    draft = target.with_name(f"{target.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    subprocess.run(["cp", "-a", str(source), str(draft)], check=True)
    draft.rename(target)


@pytest.fixture(scope="session")
def installing(prepared_home: Path) -> Installing:
    """Run an installation with the demo organisation for the length of a block."""

    @contextmanager
    def install(**settings: str) -> Iterator[Installation]:
        with tempfile.TemporaryDirectory(prefix="berth-journey-") as place:
            _copy(prepared_home, Path(place) / "home")
            installation = Installation(Path(place) / "home", settings=settings)
            try:
                installation.start("--demo")
                yield installation
            finally:
                installation.clear()

    return install


@pytest.fixture(scope="module")
def berth(installing: Installing) -> Iterator[Installation]:
    """An installation of this module alone, which it may configure and end."""
    with installing() as installation:
        yield installation


@pytest.fixture(scope="session")
def shared_berth(installing: Installing) -> Iterator[Installation]:
    """An installation for all journeys that end their own workloads and change no quotas."""
    with installing() as installation:
        yield installation


@pytest.fixture(scope="session")
def shared_dave(shared_berth: Installation) -> Terminal:
    """A member of the project vision, signed in to the shared installation."""
    return sign_in(shared_berth, "dave", shared_berth.home.parent / "dave")
