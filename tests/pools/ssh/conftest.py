"""Fixtures for SSH tests: a real SSH server and a pool without hosts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django.live_server_helper import LiveServer

from tests.api.pools.joining.test_joining import Wired
from tests.pools.ssh.ssh_pool import SshPool, create
from tests.pools.ssh.sshd import SshServer, ssh_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("sshd"), "127.0.0.2") as running:
        yield running


@pytest.fixture
def stage(
    server: SshServer, live_server: LiveServer, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SshPool]:
    """Yield a pool that has a key but no hosts. Kill the processes of agents at the end."""
    settings.BERTH_PUBLIC_URL = live_server.url
    settings.BERTH_PLAIN_HTTP = True
    monkeypatch.setattr("pools.api.joining.load_wiring", Wired)
    pool = create(ssh_keys={"ssh-key": server.private_key}, nodes=(0, 8))
    stage = SshPool(tmp_path, pool)
    yield stage
    stage.kill_all_agents()
