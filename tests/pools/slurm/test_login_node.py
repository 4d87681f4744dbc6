"""Tests for a Slurm cluster behind a login node, with a real SSH server."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.server.wiring import slurm_client
from pools import services
from pools.models import NodePool
from pools.providers.base import ProviderError, ProviderErrorKind
from pools.providers.slurm.provider import SlurmProvider
from pools.providers.slurm.settings import slurm_settings
from tests.fakes.slurm import FakeSlurm
from tests.pools.slurm.stage import VARIABLES, make_slurm, order
from tests.pools.ssh.sshd import SshServer, generate_key, needs_sshd, ssh_server
from tests.pools.stage import START, SYSTEM

pytestmark = [needs_sshd, pytest.mark.django_db]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("login"), "127.77.3.1") as running:
        yield running


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    return make_slurm(tmp_path)


def login_pool(slurm: FakeSlurm, server: SshServer, **login: Any) -> NodePool:
    values = {
        "address": server.address, "port": server.port, "user": "root", "host_key": server.host_key, **login,
    }  # fmt: skip
    settings = {"login": values, "bin": str(slurm.root / "bin"), "directory": str(slurm.root / "shared")}
    return services.create_pool(
        actor=SYSTEM, name="small", nodes=(0, 8), provider="slurm", provider_settings=settings,
        gpus_per_node=2, ssh_keys={"ssh-key": server.private_key},
    )  # fmt: skip


def make_provider(pool: NodePool) -> SlurmProvider:
    return SlurmProvider(
        slurm_settings(pool.provider_settings), slurm_client(pool, lambda: START), "here",
        variables=lambda order: VARIABLES, now=lambda: START,
    )  # fmt: skip


@pytest.mark.heavy
def test_jobs_are_submitted_and_cancelled_through_the_login_node(slurm: FakeSlurm, server: SshServer) -> None:
    provider = make_provider(login_pool(slurm, server))
    preview = provider.preview("small", order().shape)
    assert preview.source.startswith("slurm-wlm 22.05.8 on the login node 127.77.3.1, partition gpu")
    created = provider.provision(order()).instances
    assert len(slurm.queue()) == 2
    assert "token=s3cret" in next((slurm.root / "shared" / "pilots").iterdir()).read_text()
    assert provider.list_instances("small") == created
    provider.terminate("small", [instance.instance_id for instance in created])
    assert slurm.queue() == []


@pytest.mark.heavy
def test_slurm_preview_uses_an_unsaved_ssh_key(slurm: FakeSlurm, server: SshServer) -> None:
    login = {
        "address": server.address, "port": server.port, "user": "root", "host_key": server.host_key,
    }  # fmt: skip
    settings = {"login": login, "bin": str(slurm.root / "bin"), "partition": "gpuu"}
    preview = services.preview_pool(
        provider_for=make_provider, name="small", nodes=(0, 8), provider="slurm", gpus_per_node=2,
        provider_settings=settings, ssh_keys={"ssh-key": server.private_key},
    )  # fmt: skip
    assert [finding.remedy for finding in preview.findings] == [
        "Did you mean `gpu`? Allowed: gpu, short, debug."
    ]
    assert not NodePool.objects.exists()


def test_login_node_with_an_unexpected_host_key_is_rejected(
    slurm: FakeSlurm, server: SshServer, tmp_path: Path
) -> None:
    _, other_key = generate_key(tmp_path / "key")
    provider = make_provider(login_pool(slurm, server, host_key=other_key))
    with pytest.raises(ProviderError) as raised:
        provider.provision(order())
    assert raised.value.kind is ProviderErrorKind.CREDENTIALS
    assert "is pinned" in raised.value.message
    assert slurm.jobs == []


def test_unreachable_login_node_raises_a_timeout_error(slurm: FakeSlurm, server: SshServer) -> None:
    provider = make_provider(login_pool(slurm, server, port=1))
    with pytest.raises(ProviderError) as raised:
        provider.list_instances("small")
    assert raised.value.kind is ProviderErrorKind.TIMEOUT
    assert "cannot be reached" in raised.value.message


@pytest.mark.heavy
def test_error_for_a_missing_ssh_client_states_the_remedy(
    slurm: FakeSlurm, server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = make_provider(login_pool(slurm, server))
    monkeypatch.setitem(sys.modules, "pools.providers.ssh.connection", None)
    with pytest.raises(ProviderError, match="asyncssh is not installed") as raised:
        provider.list_instances("small")
    assert raised.value.kind is ProviderErrorKind.SETTINGS


def test_private_key_is_stored_as_a_secret_and_not_in_the_settings(
    slurm: FakeSlurm, server: SshServer
) -> None:
    pool = login_pool(slurm, server)
    assert "PRIVATE KEY" not in str(pool.provider_settings)
    [secret] = pool.secrets.all()
    assert secret.name == "ssh-key"
