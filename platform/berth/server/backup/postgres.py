"""Find the database in use and the PostgreSQL programs that match its server."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from berth.db.embedded.cluster import DatabaseSetupError, programs_directory, running_database
from berth.server.backup.errors import BackupError

INSTALLED = Path("/usr/lib/postgresql")
OPTION_VARIABLES = {option.keyword.decode(): option.envvar for option in psycopg.pq.Conninfo.get_defaults()}


@dataclass(frozen=True)
class Database:
    """Connection parameters of a database. `server` is PostgreSQL's version, such as 150018 for 15.18."""

    options: Mapping[str, str]
    server: int

    def connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        return psycopg.connect(**self.options, application_name="berth admin")  # type: ignore[arg-type]

    def environment(self) -> dict[str, str]:
        """Return the environment for PostgreSQL's programs. It contains the password."""
        variables = {
            variable.decode(): self.options[word]
            for word, variable in OPTION_VARIABLES.items()
            if variable and word in self.options
        }
        return {**os.environ, **variables, "PGAPPNAME": "berth admin"}

    def program(self, name: str, minimum: int = 0) -> str:
        """Return the path of the PostgreSQL program `name`.

        If several versions are installed, the oldest that supports both the server and `minimum` is used.
        Raises BackupError if there is none.
        """
        needed = max(self.server, minimum) // 10_000
        candidates = sorted(
            (version, path) for version, path in _installed_programs(name) if version >= needed
        )
        if not candidates:
            raise BackupError(
                f"{name} from PostgreSQL {needed} or newer is not installed. "
                "Install the PostgreSQL client programs."
            )
        return candidates[0][1]


@contextmanager
def open_database() -> Iterator[Database]:
    """Yield the database at DATABASE_URL, or the embedded database, which is started if necessary."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "berth.server.settings")
    try:
        with running_database(needed="DATABASE_URL" not in os.environ):
            import django

            django.setup()
            yield _connect()
    except (DatabaseSetupError, psycopg.OperationalError) as error:
        raise BackupError(f"the database cannot be used: {' '.join(str(error).split())}") from None


def _connect() -> Database:
    from django.db import connection

    parameters = connection.get_connection_params()
    options = {
        word: str(value)
        for word, value in parameters.items()
        if word in OPTION_VARIABLES and value is not None
    }
    with Database(options, 0).connect() as session:
        return Database(options, session.info.server_version)


def _installed_programs(name: str) -> Iterator[tuple[int, str]]:
    for path in {str(path) for path in [*INSTALLED.glob(f"*/bin/{name}"), *_other_paths(name)]}:
        version_text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        if number := re.search(r"\) (\d+)", version_text):
            yield int(number[1]), path


def _other_paths(name: str) -> Iterator[Path]:
    if on_path := shutil.which(name):
        yield Path(on_path)
    try:
        yield programs_directory() / name
    except DatabaseSetupError:
        return
