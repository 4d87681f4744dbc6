"""Tests for the SSH host problems that `berth doctor` and the pool page show, with real servers."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from pools.engine.ssh_hosts import HostState
from pools.models import Machine
from pools.providers.ssh.endpoint import Timeouts, fingerprint
from tests.cast import make_cast
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


@pytest.fixture
def admin(stage: SshPool) -> Client:
    client = Client()
    client.force_login(make_cast().alice.user)
    return client


def find_host_problem(admin: Client, pool: str = "metal") -> dict[str, Any]:
    """Return the problem that `berth doctor` reports for the pool's hosts. The pool page shows it, too."""
    findings = admin.get(f"/api/v1/node-pools/{pool}/diagnosis").json()["findings"]
    [finding] = [each for each in findings if each["name"] == "SSH hosts"]
    page = admin.get(f"/node-pools/{pool}").content.decode().replace("&#x27;", "'")
    assert finding["finding"] in re.sub("</?code>", "`", page)
    return dict(finding)


def test_changed_host_key_is_reported_with_both_fingerprints(
    stage: SshPool, server: SshServer, admin: Client, tmp_path: Path
) -> None:
    _, pinned = generate_key(tmp_path / "pinned")
    stage.edit(host_entry(server, "box-1", tmp_path, host_key=pinned), **ENV)
    stage.wait_for("box-1", HostState.FAILING)
    problem = find_host_problem(admin)
    assert problem["severity"] == "error"
    assert problem["finding"].startswith("box-1: ")
    assert fingerprint(server.host_key) in problem["finding"]
    assert fingerprint(pinned) in problem["finding"]
    assert "berth pool host accept metal HOST" in problem["remedy"]


@pytest.mark.heavy
def test_warning_about_a_hanging_host_names_the_host(
    stage: SshPool, server: SshServer, admin: Client, tmp_path: Path
) -> None:
    stage.timeouts = Timeouts(connect=1)
    stage.restart_berth()
    with silent_server("127.0.0.3") as port:
        hangs = {**host_entry(server, "hangs", tmp_path), "address": "127.0.0.3", "port": port}
        stage.edit(hangs, **ENV)
        stage.wait_for("hangs", HostState.FAILING)
    problem = find_host_problem(admin)
    assert problem["severity"] == "warning"
    assert problem["finding"].startswith("hangs: ")
    assert "within 1 s" in problem["finding"]
    assert "Berth will try again" in problem["remedy"]


@pytest.mark.heavy
def test_machine_listed_in_two_pools_stays_in_the_first(
    stage: SshPool, server: SshServer, admin: Client, tmp_path: Path
) -> None:
    # The machine is listed with two addresses, so that only its ID shows that it is one machine.
    first, second = host_entry(server, "box-1", tmp_path), host_entry(server, "alias", tmp_path)
    stage.edit(first, **ENV)
    stage.wait_for("box-1", HostState.JOINED)
    (Path(second["home"]) / "machine-id").write_text((Path(first["home"]) / "machine-id").read_text())
    iron = SshPool(tmp_path, create("iron", ssh_keys={"ssh-key": server.private_key}))
    with ssh_server(server.directory, "127.0.0.3", server.port):
        iron.edit({**second, "address": "127.0.0.3"}, **ENV)
        iron.reconcile_until(lambda: iron.host("alias").problem == "conflict")
        problem = find_host_problem(admin, "iron")
        assert "alias: This machine belongs to pool metal as box-1." in problem["finding"]
        assert "Remove the host from the settings of pool iron" in problem["remedy"]
        assert [machine.name for machine in Machine.objects.filter(departed_at=None)] == ["box-1"]
        stage.edit(**ENV)
        stage.wait_for("box-1", None)
        iron.wait_for("alias", HostState.JOINED)
    assert iron.host("alias").message == ""
