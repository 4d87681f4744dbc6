"""Create a consistent backup while Berth is running."""

import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from berth.server.backup import archive
from berth.server.backup.errors import BackupError
from berth.server.backup.keys import key_files, running_version
from berth.server.backup.manifest import Manifest, Migrations, secret_fingerprint
from berth.server.backup.postgres import Database, open_database

COUNTED_TABLES = {
    "departments": "projects_department", "projects": "projects_project", "workloads": "projects_workload",
    "evictions": "scheduler_eviction", "node_pools": "pools_nodepool",
}  # fmt: skip


def take_backup(target: Path, *, with_keys: bool = False, replace: bool = False) -> Manifest:
    """Write a backup to `target` and return its manifest.

    If the backup fails, no file is left behind and BackupError is raised.
    """
    if target.exists() and not replace:
        raise BackupError(f"{target} already exists. Choose another file, or use --force.")
    if not target.parent.is_dir():
        raise BackupError(f"{target.parent} is not a directory. Choose an existing directory.")
    with (
        open_database() as database,
        tempfile.TemporaryDirectory(prefix=".berth-backup-", dir=target.parent) as directory,
    ):
        from django.conf import settings

        dump = Path(directory) / archive.DUMP
        migrations, counts = _dump(database, dump)
        with dump.open("rb") as file:
            size, sha256 = archive.size_and_digest(file)
        keys = key_files(settings.BERTH_HOME) if with_keys else {}
        manifest = Manifest(
            made_at=datetime.now(UTC).isoformat(timespec="seconds"), version=running_version(),
            server=database.server, migrations=migrations, size=size, sha256=sha256,
            key=secret_fingerprint(settings.SECRET_KEY), counts=counts, files=tuple(keys),
        )  # fmt: skip
        archive.write_archive(target, manifest, dump, keys)
    return manifest


def _dump(database: Database, dump: Path) -> tuple[Migrations, dict[str, int]]:
    """Dump the database and count its rows in the same snapshot. Return the migrations and the counts."""
    with database.connect() as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        try:
            rows = connection.execute("SELECT app, name FROM django_migrations ORDER BY app, name").fetchall()
        except psycopg.errors.UndefinedTable:
            raise BackupError("the database is empty, so there is nothing to back up") from None
        counts = {
            label: int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])  # noqa: S608
            for label, table in COUNTED_TABLES.items()
        }
        snapshot = connection.execute("SELECT pg_export_snapshot()").fetchall()[0][0]
        _run_pg_dump(database, dump, str(snapshot))
    return tuple((str(app), str(name)) for app, name in rows), counts


def _run_pg_dump(database: Database, dump: Path, snapshot: str) -> None:
    completed = subprocess.run(
        [
            database.program("pg_dump"), "--format=custom", "--no-owner", "--no-privileges", "--no-password",
            f"--snapshot={snapshot}", f"--file={dump}",
        ],
        env=database.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if completed.returncode:
        raise BackupError(f"pg_dump failed: {' '.join(completed.stderr.split())[-500:]}")
