"""Incomplete or foreign backups are refused and change nothing."""

import dataclasses
import io
import json
import tarfile
from pathlib import Path

import psycopg
import pytest

from berth.server.backup import archive, put_back
from berth.server.backup.manifest import Manifest
from berth.server.backup.trouble import BackupTrouble
from tests.backup.conftest import Berth, contents

MADE = Manifest(
    made_at="2026-01-01T00:00:00+00:00", version="9.9", server=180_004, migrations=(), size=0,
    sha256="", key="",
)  # fmt: skip


def written(place: Path, content: bytes, **changes: object) -> Path:
    """A file whose checksum fits `content`, whatever that is."""
    (place / "dump").write_bytes(content)
    size, sha256 = archive.digest_of(io.BytesIO(content))
    manifest = dataclasses.replace(MADE, size=size, sha256=sha256, **changes)  # type: ignore[arg-type]
    archive.write(place / "made.backup", manifest, place / "dump", {})
    return place / "made.backup"


def here() -> tuple[tuple[str, str], ...]:
    return put_back._migrations_here()


@pytest.fixture
def at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In this process: its database, and a home of its own."""
    monkeypatch.setenv("BERTH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DATABASE_URL", "that of the test, which the settings know")


def trouble(file: Path, **options: bool) -> str:
    with pytest.raises(BackupTrouble) as raised:
        put_back.put_back(file, **options)
    return str(raised.value)


def test_every_damaged_byte_of_the_dump_is_noticed(tmp_path: Path) -> None:
    content = bytes(range(256)) * 20
    whole = written(tmp_path, content).read_bytes()
    begin = whole.index(content)
    damaged = tmp_path / "damaged.backup"
    for at in (begin, begin + 2500, begin + len(content) - 1):
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert "is damaged" in trouble(damaged)


def test_what_is_cut_short_or_something_else_is_no_backup(tmp_path: Path) -> None:
    whole = written(tmp_path, b"x" * 9000).read_bytes()
    for name, content in (("short", whole[:6000]), ("none", b""), ("text", b"SELECT 1;\n" * 500)):
        (tmp_path / name).write_bytes(content)
        assert "is not a backup of Berth" in trouble(tmp_path / name)
    assert "cannot be read: No such file" in trouble(tmp_path / "nowhere")
    with tarfile.open(tmp_path / "other.tar", "w") as tar:
        tar.add(tmp_path / "text", "text")
    assert "there is no manifest.json in it" in trouble(tmp_path / "other.tar")


def test_a_later_format_is_named(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "later", "w") as tar:
        text = json.dumps({"format": "berth.backup/7"}).encode()
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    assert "is of the format 'berth.backup/7'; this version of Berth reads berth.backup/1" in trouble(
        tmp_path / "later"
    )


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("at_home")
def test_a_backup_of_another_version_is_refused_with_both_names(tmp_path: Path) -> None:
    newer = written(tmp_path, b"", migrations=(*here(), ("scheduler", "9999_from_the_future")))
    told = trouble(newer)
    assert "made by Berth 9.9, this is " in told
    assert "scheduler.9999_from_the_future" in told
    older = written(tmp_path, b"", migrations=here()[:-1])
    told = trouble(older)
    assert "is of an older version" in told
    assert ".".join(here()[-1]) in told


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("at_home")
def test_a_database_that_others_use_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database_url: str
) -> None:
    monkeypatch.setattr(put_back, "GOING", 0.0)
    before = contents(database_url)
    with psycopg.connect(database_url, application_name="somebody") as other:
        other.execute("SELECT 1")
        told = trouble(written(tmp_path, b"", migrations=here()), force=True)
    assert told.startswith("others use this database (")
    assert "somebody" in told
    assert contents(database_url) == before


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("at_home")
def test_a_home_where_berth_runs_is_left_alone(tmp_path: Path) -> None:
    from berth.server.up.claim import claimed

    with claimed(tmp_path / "home"):
        assert trouble(written(tmp_path, b"", migrations=here())).endswith(": stop it first")


def test_a_dump_that_breaks_off_half_way_changes_nothing(
    admin: Berth, database_url: str, empty_url: str, tmp_path: Path
) -> None:
    """Its checksum fits, so it gets as far as the database: what came through reverted whole."""
    file = tmp_path / "berth.backup"
    assert admin("backup", str(file)).returncode == 0
    assert admin("restore", str(file), url=empty_url).returncode == 0
    before = contents(empty_url)
    with archive.opened(file) as kept:
        content = kept.dump().read()
    half = written(tmp_path, content[: len(content) * 3 // 4], migrations=here())
    done = admin("restore", str(half), "--force", "--yes", url=empty_url)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert done.stderr.startswith("berth: nothing was restored: ")
    assert contents(empty_url) == before
