"""Directories, with databases, that are prepared once per test run and copied where tests need them."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from berth.db.embedded.cluster import EmbeddedCluster, run_server
from berth.db.embedded.roles import ROLE
from tests.harness.distribution import PROCESS_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
FAST_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "jit": "off",  # compiling a query takes longer than reading the few rows of a test
    "scram_iterations": "1",  # most tests open connections, and the default takes 3 ms for each of them
}
DISABLE_TRIGGERS = f"GRANT SET ON PARAMETER session_replication_role TO {ROLE}"


def url_of_database(postgres: str, name: str) -> str:
    """Return the URL of the database `name` on the server at `postgres`."""
    return urlsplit(postgres)._replace(path=f"/{name}").geturl()


def is_one_of_several_processes() -> bool:
    return PROCESS_VARIABLE in os.environ


def prepared_once(factory: pytest.TempPathFactory, name: str, prepare: Callable[[Path], None]) -> Path:
    """Return a directory that `prepare` creates in the first process of the test run that needs it."""
    shared = factory.getbasetemp()
    if is_one_of_several_processes():
        shared = shared.parent
    directory = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            # PostgreSQL's own user cannot enter pytest's directory.
            with tempfile.TemporaryDirectory(prefix="berth-prepared-") as place:
                prepare(Path(place) / "home")
                copy_directory(Path(place) / "home", directory)
    return directory


def copy_directory(source: Path, target: Path) -> None:
    """Copy the files and keep their owners, because a database belongs to a separate user."""
    draft = target.with_name(f"{target.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    subprocess.run(["cp", "-a", str(source), str(draft)], check=True)
    draft.rename(target)


def cluster_of_tests(home: Path) -> EmbeddedCluster:
    """Return the cluster in `home`, in which tests may create databases and disable triggers.

    A missing cluster is created.
    """
    cluster = EmbeddedCluster(home / "postgres", FAST_SETTINGS, can_create_databases=True)
    if not cluster.password_file.exists():
        cluster.prepare()
        cluster._run_single_user("postgres", [DISABLE_TRIGGERS])
    return cluster


def run_on_cluster(cluster: EmbeddedCluster, *words: str, env: dict[str, str] | None = None) -> None:
    """Run a Python module while the database server runs. A missing cluster directory is created."""
    home = cluster.data.parent
    with run_server(cluster, log=home.parent / "postgres.log"):
        variables = {**(env or os.environ), "DATABASE_URL": cluster.url()}
        subprocess.run([sys.executable, "-m", *words], env=variables, cwd=ROOT, check=True)


def migrated_home(factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a database cluster whose database is migrated and otherwise empty."""
    return prepared_once(
        factory,
        "migrated-home",
        lambda home: run_on_cluster(cluster_of_tests(home), "django", "migrate", "--verbosity", "0"),
    )
