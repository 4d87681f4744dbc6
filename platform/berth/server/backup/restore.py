"""Restore a backup in one transaction, completely or not at all."""

import contextlib
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from berth.home import home
from berth.server.backup import archive
from berth.server.backup.errors import BackupError
from berth.server.backup.keys import missing_keys, put_keys, running_version
from berth.server.backup.manifest import Manifest, Migrations, secret_fingerprint
from berth.server.backup.postgres import Database, open_database

DISCONNECT_SECONDS = 5.0  # time for the server to notice that stopped processes have disconnected
NEW_SETTING, NEW_SETTING_VERSION = b"SET transaction_timeout", 170_000
HEAD_LINES = 40
CLEAR = """
DO $clear$
DECLARE one record;
BEGIN
  FOR one IN SELECT format('%I.%I', n.nspname, c.relname) AS name,
                    CASE c.relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW'
                                   WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'TABLE' END AS kind
               FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
              WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p', 'S', 'v', 'm')
                AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.deptype IN ('e', 'i'))
              ORDER BY c.relkind = 'S'
  LOOP EXECUTE format('DROP %s IF EXISTS %s CASCADE', one.kind, one.name); END LOOP;
  FOR one IN SELECT p.oid::regprocedure AS name
               FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
              WHERE n.nspname = current_schema()
                AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
  LOOP EXECUTE format('DROP ROUTINE IF EXISTS %s CASCADE', one.name); END LOOP;
END $clear$;
"""


@dataclass(frozen=True, slots=True)
class RestoreResult:
    manifest: Manifest
    same_key: bool
    written_keys: tuple[str, ...] = ()
    differing_keys: tuple[str, ...] = ()


def restore_backup(source: Path, *, force: bool = False) -> RestoreResult:
    """Restore the backup. If BackupError is raised, the database is unchanged."""
    with archive.open_archive(source) as backup, _prevent_startup():
        missing = missing_keys(home())
        with open_database() as database:
            from django.conf import settings

            _reject_other_version(backup.manifest)
            with database.connect() as connection:
                connection.autocommit = True
                _require_no_other_clients(connection)
                if not force:
                    _require_empty_database(connection)
            _restore(database, backup)
            written, differing = put_keys(settings.BERTH_HOME, backup.keys(), missing)
            has_same_key = (
                "secret_key" in written or secret_fingerprint(settings.SECRET_KEY) == backup.manifest.key
            )
    return RestoreResult(backup.manifest, has_same_key, tuple(written), tuple(differing))


@contextmanager
def _prevent_startup() -> Iterator[None]:
    """Prevent `berth up` from starting while the block runs. Raises BackupError if it is already running."""
    from berth.server.up.claim import lock_home_directory
    from berth.server.up.errors import StartupError

    try:
        with lock_home_directory(home()):
            yield
    except StartupError as running:
        raise BackupError(f"{str(running).removesuffix('.')}. Stop Berth first.") from None


def _reject_other_version(manifest: Manifest) -> None:
    running_migrations, backup_migrations = _read_running_migrations(), manifest.migrations
    versions = f"Berth {manifest.version} created it, and this is Berth {running_version()}"
    if unknown := sorted(set(backup_migrations) - set(running_migrations)):
        first = ".".join(unknown[0])
        raise BackupError(
            f"the backup is from another version ({versions}, which lacks migration {first}). "
            "Restore it with the version that created it."
        )
    if absent := sorted(set(running_migrations) - set(backup_migrations)):
        first = ".".join(absent[0])
        raise BackupError(
            f"the backup is from an older version ({versions}) and lacks migration {first}. "
            "Restore it with the version that created it, then upgrade."
        )


def _read_running_migrations() -> Migrations:
    from django.db.migrations.loader import MigrationLoader

    return tuple(sorted(MigrationLoader(None, ignore_no_migrations=True).disk_migrations))


def _require_no_other_clients(connection: Any) -> None:
    """Wait until other clients have disconnected, because they would keep outdated data.

    Raises BackupError if a client stays connected.
    """
    deadline = time.monotonic() + DISCONNECT_SECONDS
    while others := connection.execute(
        "SELECT DISTINCT coalesce(nullif(application_name, ''), usename, '?') FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND usesysid IS NOT NULL"  # autovacuum has no user; only superusers see backend_type
    ).fetchall():
        if time.monotonic() > deadline:
            names = ", ".join(sorted(name for (name,) in others))
            raise BackupError(
                f"other clients are using this database ({names}). Stop Berth's processes first."
            )
        time.sleep(0.2)


def _require_empty_database(connection: Any) -> None:
    (tables,) = connection.execute(
        "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p', 'v', 'm')"
    ).fetchone()
    if tables:
        raise BackupError(
            f"this database is not empty ({tables} tables). Use an empty database, "
            "or --force to replace this one."
        )


def _restore(database: Database, backup: archive.Archive) -> None:
    """Pipe the statements from pg_restore into psql."""
    with tempfile.TemporaryFile() as errors:
        reader = subprocess.Popen(
            [
                database.program("pg_restore", backup.manifest.server), "--file=-", "--no-owner",
                "--no-privileges",
            ],
            env=database.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
        writer = subprocess.Popen(
            [
                database.program("psql"), "--no-psqlrc", "--quiet", "--no-password", "--set=ON_ERROR_STOP=1",
                "--file=-",
            ],
            env=database.environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors,
        )  # fmt: skip
        assert reader.stdin and writer.stdin
        feeder = threading.Thread(target=_pipe, args=(backup.dump(), reader.stdin))
        feeder.start()
        with contextlib.suppress(BrokenPipeError):  # psql exited early; its error output is raised below
            _write_statements(reader, writer.stdin, database.server)
        codes = writer.wait(), reader.wait()
        feeder.join()
        if any(codes):
            errors.seek(0)
            raise BackupError(f"nothing was restored: {_first_error(errors.read().decode(errors='replace'))}")
    with database.connect() as connection:
        connection.autocommit = True
        connection.execute("ANALYZE")


def _write_statements(reader: "subprocess.Popen[bytes]", target: IO[bytes], server: int) -> None:
    """Write the statements, and commit only if pg_restore succeeded.

    Without this check, psql would commit an incomplete script.
    """
    assert reader.stdout
    with target, reader.stdout as statements:
        target.write(b"BEGIN;\n" + CLEAR.encode())
        for _ in range(HEAD_LINES):
            line = statements.readline()
            if not (line.startswith(NEW_SETTING) and server < NEW_SETTING_VERSION):
                target.write(line)
        shutil.copyfileobj(statements, target, archive.BLOCK)
        if reader.wait() == 0:
            target.write(b"COMMIT;\n")


def _pipe(content: IO[bytes], target: IO[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError), target:  # pg_restore has exited and reports the cause
        shutil.copyfileobj(content, target, archive.BLOCK)


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    failures = [line for line in lines if "ERROR" in line or "error" in line]
    return (failures or lines or ["PostgreSQL's programs failed without an error message"])[0][:500]
