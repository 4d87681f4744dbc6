"""Tests for pools of SSH hosts with real servers and agents."""

import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from django.utils import timezone

from berth.core.errors import Invalid
from pools.engine.ssh_hosts import HostState
from pools.models import Machine, MachineUse, NodePool, SshHost
from pools.providers.ssh.endpoint import fingerprint
from tests.pools.ssh.ssh_pool import SshPool, create, host_entry
from tests.pools.ssh.sshd import SshServer, generate_key, needs_sshd, silent_server, ssh_server
from tests.support.agents import NO_METADATA

pytestmark = [
    needs_sshd,
    pytest.mark.skipif(os.geteuid() != 0, reason="agents are installed by root"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(400),
]
ENV = {"env": NO_METADATA}
SILENCE = timedelta(seconds=60)


@pytest.mark.heavy
def test_installed_agents_join_and_are_completely_uninstalled(
    stage: SshPool, server: SshServer, tmp_path: Path
) -> None:
    first = host_entry(server, "box-1", tmp_path)
    (tmp_path / "box-1" / "notes").write_text("not Berth's")
    stage.edit(first, **ENV)
    stage.wait_for("box-1", HostState.JOINED)
    assert (stage.machine("box-1").name, stage.host("box-1").facts["root"]) == ("box-1", "root")
    NodePool.objects.update(nodes_desired=1)
    stage.reconcile_until(lambda: MachineUse.objects.filter(ended_at=None).exists())
    reported = timezone.now()
    stage.wait(lambda: stage.machine("box-1").last_seen_at > reported)

    stage.edit(**ENV)
    assert stage.state("box-1") is HostState.REMOVING
    assert (tmp_path / "box-1/berth-machine/berth-agent").exists(), "its node is still drained"
    MachineUse.objects.update(ended_at=timezone.now())
    Machine.objects.update(departed_at=timezone.now())
    stage.wait_for("box-1", None)
    assert [path.name for path in (tmp_path / "box-1").iterdir()] == ["notes"]
    assert stage.agent_pids() == []


@pytest.mark.heavy
def test_lost_agent_is_restarted_and_keeps_its_node(
    stage: SshPool, server: SshServer, tmp_path: Path
) -> None:
    stage.edit(host_entry(server, "box-1", tmp_path), **ENV)
    stage.wait_for("box-1", HostState.JOINED)
    machine = stage.machine("box-1")
    stage.kill_agents()
    watch = stage.provider._upkeep._watches[stage.pool.pk]
    watch.since -= 100
    Machine.objects.update(last_seen_at=timezone.now() - 2 * SILENCE)
    stage.reconcile_until(lambda: stage.machine("box-1").last_seen_at > timezone.now() - SILENCE)
    assert stage.machine("box-1").pk == machine.pk
    assert Machine.objects.count() == 1
    stage.wait_for("box-1", HostState.JOINED)
    assert (stage.host("box-1").failures, stage.host("box-1").message) == (0, "")


@pytest.mark.heavy
def test_killing_berth_during_an_installation_creates_no_duplicates(
    stage: SshPool, server: SshServer, tmp_path: Path
) -> None:
    stage.edit(host_entry(server, "box-1", tmp_path), **ENV)
    stage.reconcile()
    assert stage.host("box-1").touched_at is not None
    for _ in range(3):
        stage.restart_berth()
        stage.reconcile()
    stage.wait(lambda: stage.state("box-1") is HostState.JOINED or _retry_now())
    assert Machine.objects.count() == 1
    stage.wait(lambda: len(stage.agents()) == 1)


def test_host_with_an_unexpected_key_is_rejected_and_left_unchanged(
    stage: SshPool, server: SshServer, tmp_path: Path
) -> None:
    _, other = generate_key(tmp_path / "other")
    stage.edit(host_entry(server, "box-1", tmp_path, host_key=other), **ENV)
    logins = server.log.count("Accepted publickey")
    stage.wait_for("box-1", HostState.FAILING)
    host = stage.host("box-1")
    assert (host.problem, host.presented_key) == ("host_key", server.host_key)
    assert fingerprint(server.host_key) in host.message
    assert server.log.count("Accepted publickey") == logins
    stage.edit(host_entry(server, "box-1", tmp_path), **ENV)
    stage.wait_for("box-1", HostState.JOINED)


@pytest.mark.heavy
def test_host_without_a_pinned_key_shows_its_fingerprint(
    stage: SshPool, server: SshServer, tmp_path: Path
) -> None:
    stage.edit(host_entry(server, "box-1", tmp_path, host_key=None), **ENV)
    logins = server.log.count("Accepted publickey")
    assert stage.state("box-1") is HostState.UNVERIFIED
    stage.reconcile_until(lambda: stage.host("box-1").presented_key)
    assert stage.host("box-1").presented_key == server.host_key
    assert "has not been accepted" in stage.host("box-1").message
    assert server.log.count("Accepted publickey") == logins


@pytest.mark.heavy
def test_hanging_host_does_not_delay_other_hosts(stage: SshPool, server: SshServer, tmp_path: Path) -> None:
    with silent_server("127.0.0.3") as port:
        hangs = {**host_entry(server, "hangs", tmp_path), "address": "127.0.0.3", "port": port}
        stage.edit(hangs, host_entry(server, "works", tmp_path), **ENV)
        stage.wait_for("works", HostState.JOINED)
        assert stage.state("hangs") is HostState.INSTALLING


@pytest.mark.heavy
def test_host_problems_are_reported_with_the_reason(
    stage: SshPool, server: SshServer, tmp_path: Path
) -> None:
    stage.edit(
        host_entry(server, "no-user", tmp_path, user="not-a-user"),
        {**host_entry(server, "no-key", tmp_path), "address": "127.0.0.4", "key": "secret:other"},
        **ENV,
    )
    stage.wait_for("no-user", HostState.FAILING)
    assert "rejected the login of user not-a-user" in stage.host("no-user").message
    stage.wait_for("no-key", HostState.FAILING)
    assert (
        "the pool has no SSH key other. Set it with `berth secret set other" in stage.host("no-key").message
    )


@pytest.mark.heavy
def test_agent_of_another_installation_is_left_unchanged(
    stage: SshPool, server: SshServer, tmp_path: Path
) -> None:
    entry = host_entry(server, "box-1", tmp_path)
    environment = Path(entry["home"]) / "environment"
    environment.write_text("BERTH_POOL=old\nBERTH_URL=https://other.example.org\n")
    stage.edit(entry, **ENV)
    stage.wait_for("box-1", HostState.FAILING)
    assert (
        "the host already has an agent of https://other.example.org, pool old" in stage.host("box-1").message
    )
    stage.edit(**ENV)
    stage.wait_for("box-1", None)
    assert sorted(path.name for path in environment.parent.iterdir()) == ["environment", "machine-id"]


@pytest.mark.heavy
def test_agents_behind_a_bastion_are_installed_and_uninstalled(
    stage: SshPool, server: SshServer, tmp_path: Path
) -> None:
    with ssh_server(tmp_path / "bastion", "127.0.0.3") as bastion:
        (tmp_path / "bastion/authorized_keys").write_text((server.directory / "login_key.pub").read_text())
        through = {"address": bastion.address, "port": bastion.port, "host_key": bastion.host_key}
        stage.edit(host_entry(server, "box-1", tmp_path), bastion=through, **ENV)
        stage.wait_for("box-1", HostState.JOINED)
        stage.edit(bastion=through, **ENV)
        stage.wait_for("box-1", None)
        assert bastion.log.count("Accepted publickey") == 2
    assert not (tmp_path / "box-1/berth-machine").exists()


@pytest.mark.heavy
def test_host_settings_override_pool_settings(stage: SshPool, server: SshServer, tmp_path: Path) -> None:
    # One host uses the pool's values. The other has its own port, key, bastion and variables.
    with (
        ssh_server(tmp_path / "other", "127.0.0.4") as other,
        ssh_server(tmp_path / "bastion", "127.0.0.3") as bastion,
    ):
        (tmp_path / "bastion/authorized_keys").write_text((other.directory / "login_key.pub").read_text())
        keys = {"ssh-key": server.private_key, "other-key": other.private_key}
        pool = SshPool(tmp_path, create("iron", ssh_keys=keys))
        through = {
            "address": bastion.address, "port": bastion.port, "host_key": bastion.host_key,
            "key": "secret:other-key",
        }  # fmt: skip
        own = {"key": "secret:other-key", "bastion": through, "env": {"BERTH_NODE_WORKSPACES": "/own"}}
        entries = [host_entry(server, "box-1", tmp_path), host_entry(other, "box-2", tmp_path, **own)]
        variables = {**NO_METADATA, "BERTH_NODE_WORKSPACES": "/pool"}
        pool.edit(*entries, env=variables, port=server.port)
        for entry in entries:
            pool.wait_for(entry["name"], HostState.JOINED)
        for entry, workspaces in zip(entries, ("/pool", "/own"), strict=True):
            environment = (Path(entry["home"]) / "environment").read_text()
            assert f"BERTH_NODE_WORKSPACES={workspaces}\n" in environment
            assert "BERTH_METADATA_URL=" in environment, "other variables of the pool apply as well"
        logins = "Accepted publickey"
        assert bastion.log.count(logins) == other.log.count(logins) > 0, (
            "it is reached only through its bastion"
        )
        pool.edit(env=variables)
        for entry in entries:
            pool.wait_for(entry["name"], None)


@pytest.mark.heavy
def test_changed_variables_are_applied_without_a_new_registration(
    stage: SshPool, server: SshServer, tmp_path: Path
) -> None:
    entry = host_entry(server, "box-1", tmp_path)
    stage.edit(entry, **ENV)
    stage.wait_for("box-1", HostState.JOINED)
    machine = stage.machine("box-1")
    environment = Path(entry["home"]) / "environment"
    stage.edit(entry, env={**NO_METADATA, "BERTH_NODE_WORKSPACES": "/shared/it's"})
    stage.reconcile_until(lambda: "BERTH_NODE_WORKSPACES" in environment.read_text())
    stage.wait_for("box-1", HostState.JOINED)
    assert stage.machine("box-1").pk == machine.pk
    assert stage.machine("box-1").secret_version == machine.secret_version + 1
    stage.wait(lambda: len(stage.agents()) == 1)


@pytest.mark.heavy
def test_killing_berth_at_random_times_leaves_no_agent_behind(
    stage: SshPool, server: SshServer, tmp_path: Path
) -> None:
    # The host is added and removed while Berth is killed. Tasks of killed processes continue.
    random = Random(7)
    entry = host_entry(server, "box-1", tmp_path)
    for kill in range(30):
        with suppress(Invalid):  # the host is still being removed
            stage.edit(*([] if kill % 3 == 2 else [entry]), **ENV)
        for _ in range(random.randrange(1, 12)):
            _retry_now()
            stage.reconcile()
        stage.restart_berth()
    stage.wait(lambda: _retry_now() or stage.state("box-1") in {None, HostState.JOINED, HostState.REMOVING})
    stage.edit(**ENV)
    stage.wait(lambda: _retry_now() or stage.state("box-1") is None)
    assert not (tmp_path / "box-1/berth-machine").exists()
    assert stage.agent_pids() == []
    assert not Machine.objects.filter(departed_at=None).exists()


def _retry_now() -> bool:
    """Retry failed hosts at once, because an installation by the killed process may still be running."""
    SshHost.objects.update(retry_at=None)
    return False
