"""Tests for backups that cannot be restored."""

import dataclasses
import io
import json
import tarfile
from pathlib import Path

import psycopg
import pytest

from berth.server.backup import archive, restore
from berth.server.backup.errors import BackupError
from berth.server.backup.manifest import Manifest
from tests.backup.conftest import contents

MANIFEST = Manifest(
    made_at="2026-01-01T00:00:00+00:00", version="9.9", server=180_004, migrations=(), size=0,
    sha256="", key="",
)  # fmt: skip


def write_backup(place: Path, content: bytes, **changes: object) -> Path:
    """Write a backup whose checksum matches `content`."""
    (place / "dump").write_bytes(content)
    size, sha256 = archive.size_and_digest(io.BytesIO(content))
    manifest = dataclasses.replace(MANIFEST, size=size, sha256=sha256, **changes)  # type: ignore[arg-type]
    archive.write_archive(place / "made.backup", manifest, place / "dump", {})
    return place / "made.backup"


def current_migrations() -> tuple[tuple[str, str], ...]:
    return restore._read_running_migrations()


@pytest.fixture
def berth_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BERTH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DATABASE_URL", "the settings must use the test's home directory")


def restore_error(file: Path, **options: bool) -> str:
    with pytest.raises(BackupError) as raised:
        restore.restore_backup(file, **options)
    return str(raised.value)


def test_damaged_dump_is_rejected(tmp_path: Path) -> None:
    content = bytes(range(256)) * 20
    whole = write_backup(tmp_path, content).read_bytes()
    begin = whole.index(content)
    damaged = tmp_path / "damaged.backup"
    for at in (begin, begin + 2500, begin + len(content) - 1):
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert "is damaged" in restore_error(damaged)


def test_restore_rejects_a_truncated_or_unrelated_file(tmp_path: Path) -> None:
    whole = write_backup(tmp_path, b"x" * 9000).read_bytes()
    for name, content in (("short", whole[:6000]), ("none", b""), ("text", b"SELECT 1;\n" * 500)):
        (tmp_path / name).write_bytes(content)
        assert "is not a Berth backup" in restore_error(tmp_path / name)
    assert "cannot be read: No such file" in restore_error(tmp_path / "nowhere")
    with tarfile.open(tmp_path / "other.tar", "w") as tar:
        tar.add(tmp_path / "text", "text")
    assert "manifest.json is missing" in restore_error(tmp_path / "other.tar")


def test_error_names_an_unsupported_backup_format(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "later", "w") as tar:
        text = json.dumps({"format": "berth.backup/7"}).encode()
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    assert (
        "is in format 'berth.backup/7', but this version of Berth reads only berth.backup/1"
        in restore_error(tmp_path / "later")
    )


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("berth_home")
def test_error_for_a_backup_from_a_different_version_names_both_versions(tmp_path: Path) -> None:
    newer = write_backup(
        tmp_path, b"", migrations=(*current_migrations(), ("scheduler", "9999_from_the_future"))
    )
    message = restore_error(newer)
    assert "Berth 9.9 created it, and this is Berth " in message
    assert "scheduler.9999_from_the_future" in message
    older = write_backup(tmp_path, b"", migrations=current_migrations()[:-1])
    message = restore_error(older)
    assert "is from an older version" in message
    assert ".".join(current_migrations()[-1]) in message


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("berth_home")
def test_backup_is_not_restored_into_a_database_in_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database_url: str
) -> None:
    monkeypatch.setattr(restore, "DISCONNECT_SECONDS", 0.0)
    before = contents(database_url)
    with psycopg.connect(database_url, application_name="other_client") as other:
        other.execute("SELECT 1")
        message = restore_error(write_backup(tmp_path, b"", migrations=current_migrations()), force=True)
    assert message.startswith("other clients are using this database (")
    assert "other_client" in message
    assert contents(database_url) == before


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("berth_home")
def test_restore_is_rejected_while_berth_runs(tmp_path: Path) -> None:
    from berth.server.up.claim import lock_home_directory

    with lock_home_directory(tmp_path / "home"):
        assert restore_error(write_backup(tmp_path, b"", migrations=current_migrations())).endswith(
            ". Stop Berth first."
        )
