"""Tests for the socket directory of the embedded database."""

import os
import stat
from pathlib import Path

import pytest

from berth.db.embedded import cluster as embedded
from berth.db.embedded.cluster import DatabaseSetupError


@pytest.fixture(autouse=True)
def no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_system_account", lambda: None)


def test_socket_directory_is_private(tmp_path: Path) -> None:
    place = tmp_path / "sockets"
    embedded._claim_directory(place)
    embedded._claim_directory(place)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_symbolic_link_is_rejected_and_its_target_is_unchanged(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    (tmp_path / "sockets").symlink_to(victim)
    with pytest.raises(DatabaseSetupError, match="Berth cannot use"):
        embedded._claim_directory(tmp_path / "sockets")
    assert stat.S_IMODE(victim.stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_directory_owned_by_another_user_is_rejected(tmp_path: Path) -> None:
    place = tmp_path / "sockets"
    place.mkdir(mode=0o777)
    os.chown(place, 12345, 12345)
    with pytest.raises(DatabaseSetupError, match="belongs to user 12345"):
        embedded._claim_directory(place)
