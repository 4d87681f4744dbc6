"""Checks for running the server: Python, state directory, disk space, PostgreSQL and port."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg

from berth.db.embedded.cluster import DatabaseSetupError, programs_directory
from berth.db.schema.server_version import REMEDY, version_problem
from berth.home import home
from berth.server.doctor.check import Check, CheckStatus, split_remedy
from berth.server.up.address import FIRST_PORT, bind_socket
from berth.server.up.errors import StartupError

PYTHON = (3, 11)
GIB = 1024**3
DISK_REQUIRED, DISK_RECOMMENDED = 1 * GIB, 20 * GIB
CONNECT_SECONDS = 5
OTHERS = 0o067  # permissions that other users must not have


def server_checks() -> Iterator[Check]:
    yield _check_python()
    yield _check_directory(home())
    yield _check_disk(home())
    yield _check_database()
    yield _check_port()


def _check_python() -> Check:
    version = f"Python {platform.python_version()}, {sys.executable}"
    if sys.version_info >= PYTHON:
        return Check("Python", CheckStatus.OK, f"{version}.")
    return Check("Python", CheckStatus.MISSING, f"{version}.", "Install Python 3.11 or newer.")


def _check_directory(path: Path) -> Check:
    name = "Directory"
    if not path.exists():
        parent = _existing_parent(path)
        if os.access(parent, os.W_OK):
            return Check(name, CheckStatus.OK, f"{path} will be created.")
        return Check(
            name, CheckStatus.MISSING, f"{parent} is not writable.", "Set BERTH_HOME to another directory."
        )
    if not os.access(path, os.W_OK | os.X_OK):
        return Check(name, CheckStatus.MISSING, f"{path} is not writable.", f"chown -R {os.geteuid()} {path}")
    mode = path.stat().st_mode & 0o777
    if mode & OTHERS:
        finding = f"{path} is accessible to other users (mode {mode:o})."
        return Check(name, CheckStatus.LIMITED, finding, f"chmod 700 {path}")
    return Check(name, CheckStatus.OK, f"{path}, accessible only to its owner.")


def _check_disk(path: Path) -> Check:
    free = shutil.disk_usage(_existing_parent(path)).free
    finding = f"{free / GIB:.1f} GiB free at {path}."
    if free >= DISK_RECOMMENDED:
        return Check("Disk", CheckStatus.OK, finding)
    status = CheckStatus.LIMITED if free >= DISK_REQUIRED else CheckStatus.MISSING
    return Check(
        "Disk", status, finding, "Free disk space, or set BERTH_HOME to a directory on a larger disk."
    )


def _existing_parent(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())


def _check_database() -> Check:
    url = os.environ.get("DATABASE_URL")
    return _check_external_database(url) if url else _check_embedded_database()


def _check_external_database(url: str) -> Check:
    try:
        with psycopg.connect(url, connect_timeout=CONNECT_SECONDS) as connection:
            version = connection.info.server_version // 10_000
            row = connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
    except psycopg.Error as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        return Check("Database", CheckStatus.MISSING, f"DATABASE_URL: {reason}.", "Correct DATABASE_URL.")
    if problem := version_problem(version):
        return Check("Database", CheckStatus.MISSING, problem, REMEDY)
    finding = f"PostgreSQL {version}, at DATABASE_URL."
    if row is not None and row[0]:
        remedy = "ALTER ROLE ... NOSUPERUSER; the role only needs to own its database."
        return Check("Database", CheckStatus.LIMITED, f"{finding} Its role is a superuser.", remedy)
    return Check("Database", CheckStatus.OK, finding)


def _check_embedded_database() -> Check:
    try:
        program = programs_directory() / "postgres"
        completed = subprocess.run(
            [str(program), "--version"], capture_output=True, text=True, check=True, timeout=CONNECT_SECONDS
        )
    except DatabaseSetupError as error:
        return Check("Database", CheckStatus.MISSING, *split_remedy(str(error)))
    except (OSError, subprocess.SubprocessError) as error:
        return Check("Database", CheckStatus.MISSING, f"The embedded PostgreSQL does not start: {error}.")
    return Check("Database", CheckStatus.OK, f"Embedded PostgreSQL {completed.stdout.split()[-1]}.")


def _check_port() -> Check:
    try:
        with closing(bind_socket("127.0.0.1", None)) as listening:
            port = listening.getsockname()[1]
    except StartupError as error:
        return Check("Port", CheckStatus.MISSING, *split_remedy(str(error)))
    busy = f" {FIRST_PORT} is in use, perhaps by Berth itself." if port != FIRST_PORT else ""
    return Check("Port", CheckStatus.OK, f"{port} is free.{busy}")
