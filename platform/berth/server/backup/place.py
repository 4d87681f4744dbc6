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

from berth.db.embedded import DatabaseTrouble, programs, running_database
from berth.server.backup.trouble import BackupTrouble

INSTALLED = Path("/usr/lib/postgresql")
WORDS = {option.keyword.decode(): option.envvar for option in psycopg.pq.Conninfo.get_defaults()}


@dataclass(frozen=True)
class Place:
    """Connection parameters of a database, and the version of its server (150018 is 15.18)."""

    words: Mapping[str, str]
    server: int

    def connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        return psycopg.connect(**self.words, application_name="berth admin")  # type: ignore[arg-type]

    def environment(self) -> dict[str, str]:
        """Return the environment for PostgreSQL's programs, so that no command line contains a password."""
        named = {
            variable.decode(): self.words[word]
            for word, variable in WORDS.items()
            if variable and word in self.words
        }
        return {**os.environ, **named, "PGAPPNAME": "berth admin"}

    def program(self, name: str, least: int = 0) -> str:
        """Return the path of the oldest version of a program that is at least the server's and `least`."""
        wanted = max(self.server, least) // 10_000
        candidates = sorted((version, path) for version, path in _candidates(name) if version >= wanted)
        if not candidates:
            raise BackupTrouble(
                f"{name} of PostgreSQL {wanted} or newer is missing: install its client programs"
            )
        return candidates[0][1]


@contextmanager
def at_place() -> Iterator[Place]:
    """Yield the database of DATABASE_URL, or the embedded database, which is started if necessary."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "berth.server.settings")
    try:
        with running_database(wanted="DATABASE_URL" not in os.environ):
            import django

            django.setup()
            yield _place()
    except (DatabaseTrouble, psycopg.OperationalError) as trouble:
        raise BackupTrouble(f"the database cannot be used: {' '.join(str(trouble).split())}") from None


def _place() -> Place:
    from django.db import connection

    parameters = connection.get_connection_params()
    words = {word: str(value) for word, value in parameters.items() if word in WORDS and value is not None}
    with Place(words, 0).connect() as opened:
        return Place(words, opened.info.server_version)


def _candidates(name: str) -> Iterator[tuple[int, str]]:
    for path in {str(path) for path in [*INSTALLED.glob(f"*/bin/{name}"), *_other_candidates(name)]}:
        version_text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        if number := re.search(r"\) (\d+)", version_text):
            yield int(number[1]), path


def _other_candidates(name: str) -> Iterator[Path]:
    if on_path := shutil.which(name):
        yield Path(on_path)
    try:
        yield programs() / name
    except DatabaseTrouble:
        return
