"""Take a consistent backup while Berth runs."""

import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from berth.server.backup import archive
from berth.server.backup.keys import key_files, version_here
from berth.server.backup.manifest import Manifest, Migrations, mark_of
from berth.server.backup.place import Place, at_place
from berth.server.backup.trouble import BackupTrouble

COUNTED = {
    "departments": "projects_department", "projects": "projects_project", "workloads": "projects_workload",
    "evictions": "scheduler_eviction", "node_pools": "pools_nodepool",
}  # fmt: skip


def take(target: Path, *, with_keys: bool = False, replace: bool = False) -> Manifest:
    """Write `target` and return its manifest. If this raises BackupTrouble, no file is left."""
    if target.exists() and not replace:
        raise BackupTrouble(f"{target} already exists. Choose another file, or use --force")
    if not target.parent.is_dir():
        raise BackupTrouble(f"{target.parent} is not a directory")
    with (
        at_place() as place,
        tempfile.TemporaryDirectory(prefix=".berth-backup-", dir=target.parent) as beside,
    ):
        from django.conf import settings

        dump = Path(beside) / archive.DUMP
        migrations, counts = _dump(place, dump)
        with dump.open("rb") as file:
            size, sha256 = archive.digest_of(file)
        keys = key_files(settings.BERTH_HOME) if with_keys else {}
        manifest = Manifest(
            made_at=datetime.now(UTC).isoformat(timespec="seconds"), version=version_here(),
            server=place.server, migrations=migrations, size=size, sha256=sha256,
            key=mark_of(settings.SECRET_KEY), counts=counts, files=tuple(keys),
        )  # fmt: skip
        archive.write(target, manifest, dump, keys)
    return manifest


def _dump(place: Place, dump: Path) -> tuple[Migrations, dict[str, int]]:
    """Count rows and dump the database in the same snapshot. Return the migrations and the counts."""
    with place.connect() as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        try:
            rows = connection.execute("SELECT app, name FROM django_migrations ORDER BY app, name").fetchall()
        except psycopg.errors.UndefinedTable:
            raise BackupTrouble("the database is empty: nothing to back up") from None
        counts = {
            word: int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])  # noqa: S608
            for word, table in COUNTED.items()
        }
        snapshot = connection.execute("SELECT pg_export_snapshot()").fetchall()[0][0]
        _run_pg_dump(place, dump, str(snapshot))
    return tuple((str(app), str(name)) for app, name in rows), counts


def _run_pg_dump(place: Place, dump: Path, snapshot: str) -> None:
    done = subprocess.run(
        [
            place.program("pg_dump"), "--format=custom", "--no-owner", "--no-privileges", "--no-password",
            f"--snapshot={snapshot}", f"--file={dump}",
        ],
        env=place.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise BackupTrouble(f"pg_dump failed: {' '.join(done.stderr.split())[-500:]}")
