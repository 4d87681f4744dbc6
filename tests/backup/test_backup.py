"""Tests for backup and restore."""

import json
import subprocess
from pathlib import Path

import psycopg
import pytest

from berth.server.backup import archive
from berth.server.backup.errors import BackupError
from berth.server.backup.take import take_backup
from tests import factories
from tests.backup.conftest import Berth, contents
from tests.backup.test_rejections import current_migrations, write_backup
from tests.cast import make_cast

pytestmark = pytest.mark.timeout(600)  # timeout in seconds; a restore starts a dozen processes


KEYS = ("secret_key", "webhook_secret")


@pytest.fixture
def backup_file(admin: Berth, database_url: str, tmp_path: Path) -> Path:
    """Back up a small database with one eviction, while another transaction has uncommitted changes."""
    cast = make_cast()
    train, urgent = (factories.workload(cast.vision, name=name) for name in ("train", "urgent"))
    factories.eviction(train, urgent, cast.pool)
    file = tmp_path / "berth.backup"
    with psycopg.connect(database_url) as writer:
        writer.execute("UPDATE projects_workload SET name = name || '-changed'")
        done = admin("backup", str(file))
        writer.rollback()
    assert done.returncode == 0, done.stderr
    assert "4 projects, 2 workloads, 1 evictions" in done.stdout
    assert "does not include the signing and encryption keys" in done.stderr
    return file


@pytest.mark.heavy
def test_restored_database_equals_the_original(
    admin: Berth, backup_file: Path, database_url: str, empty_url: str, tmp_path: Path
) -> None:
    # The open transaction neither blocked the backup nor is part of it. Keys are included on request and
    # never overwritten. A restore that fails is rolled back.
    assert oct(backup_file.stat().st_mode & 0o777) == "0o600"
    assert [path.name for path in backup_file.parent.iterdir() if "backup" in path.name] == [backup_file.name]
    with_keys = backup_with_keys(admin, tmp_path, backup_file)
    done = admin("restore", str(with_keys), url=empty_url, home="fresh")
    assert done.returncode == 0, done.stderr
    original = contents(database_url)
    assert contents(empty_url) == original
    assert original["scheduler_eviction"][0] == 1
    with psycopg.connect(empty_url) as connection, pytest.raises(psycopg.errors.RestrictViolation):
        connection.execute("DELETE FROM scheduler_eviction")  # the triggers are restored, too
    assert_keys_are_restored(done, tmp_path)

    with psycopg.connect(empty_url) as connection:
        connection.execute("UPDATE projects_project SET title = 'changed meanwhile'")
        connection.execute("CREATE TABLE unrelated_table (id int)")
    changed = contents(empty_url)
    rejected = admin("restore", str(backup_file), url=empty_url)
    assert (rejected.returncode, rejected.stdout) == (1, "")
    assert rejected.stderr.startswith("berth: this database is not empty (")
    assert "--force" in rejected.stderr
    without_confirmation = admin("restore", str(backup_file), "--force", url=empty_url)
    assert without_confirmation.returncode == 2
    assert "--yes" in without_confirmation.stderr
    failed = admin("restore", str(truncated_copy(backup_file, tmp_path)), "--force", "--yes", url=empty_url)
    assert (failed.returncode, len(failed.stderr.splitlines())) == (1, 1), failed.stderr
    assert failed.stderr.startswith("berth: nothing was restored: ")
    assert contents(empty_url) == changed

    for name in KEYS:
        (tmp_path / "fresh" / name).write_text("another\n")
    other = admin("restore", str(with_keys), "--force", "--yes", url=empty_url, home="fresh")
    assert other.returncode == 0, other.stderr
    assert contents(empty_url) == original
    assert "not changed in BERTH_HOME: secret_key, webhook_secret" in other.stderr
    assert "the secret key differs from the backup's key" in other.stderr
    assert (tmp_path / "fresh" / "secret_key").read_text() == "another\n"


def backup_with_keys(admin: Berth, tmp_path: Path, without_keys: Path) -> Path:
    with_keys = tmp_path / "with-keys.backup"
    assert admin("backup", str(with_keys), "--with-keys").returncode == 0
    manifest = json.loads(admin("verify", str(with_keys), "-o", "json").stdout)
    assert manifest["files"] == list(KEYS)
    for name in KEYS:
        secret = (tmp_path / "home" / name).read_bytes()
        assert secret in with_keys.read_bytes()
        assert secret not in without_keys.read_bytes()
    return with_keys


def assert_keys_are_restored(done: subprocess.CompletedProcess[str], tmp_path: Path) -> None:
    assert "restored to BERTH_HOME: secret_key, webhook_secret" in done.stderr
    assert "the secret key differs" not in done.stderr
    for name in KEYS:
        assert (tmp_path / "fresh" / name).read_bytes() == (tmp_path / "home" / name).read_bytes()
        assert oct((tmp_path / "fresh" / name).stat().st_mode & 0o777) == "0o600"


def truncated_copy(file: Path, tmp_path: Path) -> Path:
    """Return a truncated backup with a matching checksum, so that only the database can reject it."""
    with archive.open_archive(file) as backup:
        content = backup.dump().read()
    half = content[: len(content) * 3 // 4]
    return write_backup(tmp_path, half, migrations=current_migrations())


@pytest.mark.heavy
def test_failed_backup_prints_a_one_line_error(admin: Berth, empty_url: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("an earlier backup")
    with pytest.raises(BackupError, match="already exists"):
        take_backup(tmp_path / "a")
    assert (tmp_path / "a").read_text() == "an earlier backup"
    with pytest.raises(BackupError, match="is not a directory"):
        take_backup(tmp_path / "nowhere" / "a.backup")
    assert (
        "is empty, so there is nothing to back up"
        in admin("backup", str(tmp_path / "b"), url=empty_url).stderr
    )
    unreachable = admin("backup", str(tmp_path / "c"), url="postgres://nobody@127.0.0.1:9/berth")
    assert (unreachable.returncode, len(unreachable.stderr.splitlines())) == (1, 1)
    assert unreachable.stderr.startswith("berth: the database cannot be used: ")
    assert not {"b", "c"} & {path.name for path in tmp_path.iterdir()}
