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
from berth.server.backup.keys import missing_keys, put_keys, version_here
from berth.server.backup.manifest import Manifest, Migrations, mark_of
from berth.server.backup.place import Place, at_place
from berth.server.backup.trouble import BackupTrouble

GOING = 5.0  # seconds until the server notices that the clients of stopped processes have disconnected
NEW_SETTING, SINCE = b"SET transaction_timeout", 170_000
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
class Restored:
    manifest: Manifest
    same_key: bool
    keys_put: tuple[str, ...] = ()
    keys_other: tuple[str, ...] = ()


def restore_backup(source: Path, *, force: bool = False) -> Restored:
    """Restore the backup. If this raises BackupTrouble, nothing has changed."""
    with archive.opened(source) as backup, _while_stopped():
        free = missing_keys(home())
        with at_place() as place:
            from django.conf import settings

            _refuse_other_version(backup.manifest)
            with place.connect() as connection:
                connection.autocommit = True
                _refuse_other_clients(connection)
                if not force:
                    _refuse_contents(connection)
            _restore(place, backup)
            put, other = put_keys(settings.BERTH_HOME, backup.keys(), free)
            same = "secret_key" in put or mark_of(settings.SECRET_KEY) == backup.manifest.key
    return Restored(backup.manifest, same, tuple(put), tuple(other))


@contextmanager
def _while_stopped() -> Iterator[None]:
    """Ensure that no `berth up` runs or starts with this home directory."""
    from berth.server.up.claim import claimed
    from berth.server.up.trouble import CannotStart

    try:
        with claimed(home()):
            yield
    except CannotStart as running:
        raise BackupTrouble(f"{str(running).removesuffix('.')}: stop it first") from None


def _refuse_other_version(manifest: Manifest) -> None:
    own, theirs = _migrations_here(), manifest.migrations
    made = f"it was made by Berth {manifest.version}, this is {version_here()}"
    if unknown := sorted(set(theirs) - set(own)):
        first = ".".join(unknown[0])
        raise BackupTrouble(
            f"the backup is from another version: {made}, which does not know {first}; restore it there"
        )
    if lacking := sorted(set(own) - set(theirs)):
        first = ".".join(lacking[0])
        raise BackupTrouble(
            f"the backup is from an older version: {made}, and its tables lack {first}; "
            "restore it with that version, then upgrade"
        )


def _migrations_here() -> Migrations:
    from django.db.migrations.loader import MigrationLoader

    return tuple(sorted(MigrationLoader(None, ignore_no_migrations=True).disk_migrations))


def _refuse_other_clients(connection: Any) -> None:
    """Refuse while other clients are connected: they would keep stale data."""
    deadline = time.monotonic() + GOING
    while others := connection.execute(
        "SELECT DISTINCT coalesce(nullif(application_name, ''), usename, '?') FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND usesysid IS NOT NULL"  # autovacuum has no user; only superusers see backend_type
    ).fetchall():
        if time.monotonic() > deadline:
            names = ", ".join(sorted(name for (name,) in others))
            raise BackupTrouble(f"others use this database ({names}): stop Berth's processes first")
        time.sleep(0.2)


def _refuse_contents(connection: Any) -> None:
    (tables,) = connection.execute(
        "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p', 'v', 'm')"
    ).fetchone()
    if tables:
        raise BackupTrouble(
            f"this database is not empty ({tables} tables): use an empty one, or --force to replace it"
        )


def _restore(place: Place, backup: archive.Archive) -> None:
    """Pipe the statements of pg_restore into psql."""
    with tempfile.TemporaryFile() as errors:
        reader = subprocess.Popen(
            [
                place.program("pg_restore", backup.manifest.server), "--file=-", "--no-owner",
                "--no-privileges",
            ],
            env=place.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
        writer = subprocess.Popen(
            [
                place.program("psql"), "--no-psqlrc", "--quiet", "--no-password", "--set=ON_ERROR_STOP=1",
                "--file=-",
            ],
            env=place.environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors,
        )  # fmt: skip
        assert reader.stdin and writer.stdin
        feeder = threading.Thread(target=_pipe, args=(backup.dump(), reader.stdin))
        feeder.start()
        with contextlib.suppress(BrokenPipeError):  # psql has ended and reports the cause
            _write_statements(reader, writer.stdin, place.server)
        codes = writer.wait(), reader.wait()
        feeder.join()
        if any(codes):
            errors.seek(0)
            raise BackupTrouble(
                f"nothing was restored: {_first_error(errors.read().decode(errors='replace'))}"
            )
    with place.connect() as connection:
        connection.autocommit = True
        connection.execute("ANALYZE")


def _write_statements(reader: "subprocess.Popen[bytes]", into: IO[bytes], server: int) -> None:
    """Commit only after pg_restore has succeeded: psql would also commit an incomplete script."""
    assert reader.stdout
    with into, reader.stdout as statements:
        into.write(b"BEGIN;\n" + CLEAR.encode())
        for _ in range(HEAD_LINES):
            line = statements.readline()
            if not (line.startswith(NEW_SETTING) and server < SINCE):
                into.write(line)
        shutil.copyfileobj(statements, into, archive.BLOCK)
        if reader.wait() == 0:
            into.write(b"COMMIT;\n")


def _pipe(content: IO[bytes], into: IO[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError), into:  # pg_restore has ended and reports the cause
        shutil.copyfileobj(content, into, archive.BLOCK)


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    failures = [line for line in lines if "ERROR" in line or "error" in line]
    return (failures or lines or ["PostgreSQL's programs failed without an error message"])[0][:500]
