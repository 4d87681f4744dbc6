"""Tests for agents that upgrade themselves while pods run."""

import os
import signal
from typing import Any

import pytest
from django.test import Client

from pools.joining.package import agent_version
from pools.models import Machine, Node, NodePool
from tests.api.conftest import Caller
from tests.api.pools.joining.test_agent_service import Host, host
from tests.api.pools.joining.test_inventory import INVENTORY, join
from tests.api.pools.joining.test_joining import reconcile_pool, report_in
from tests.cast import Cast
from tests.contracts.pods import poll_until
from tests.support.agents import write_agent

__all__ = ["host"]  # this import is a fixture

OLD = "0.0.9+00000000"


@pytest.fixture
def host_with_node(host: Host, metal_pool: NodePool) -> Host:
    write_agent(host.place, report_seconds=0.2, version=OLD)
    NodePool.objects.update(nodes_desired=0)
    join_as_node(host, metal_pool)
    return host


def join_as_node(host: Host, metal_pool: NodePool) -> None:
    """Assign a node to the machine before its agent reports. An agent without a node upgrades at once."""
    host.unit.mkdir()  # the installation fails after the machine has joined
    assert host.install().returncode == 1
    host.unit.rmdir()
    reconcile_pool(metal_pool, nodes_desired=1)
    assert host.install().returncode == 0
    poll_until(lambda: (host.place / "pod.pid").exists() and host.is_running("pod"))
    poll_until(lambda: Node.objects.get().inventory.get("agent_version") == OLD)


def version_of_node() -> str:
    return str(Node.objects.get().inventory["agent_version"])


@pytest.mark.heavy
@pytest.mark.django_db(transaction=True)
def test_node_agent_upgrades_on_request_without_stopping_pods(host_with_node: Host, alice: Caller) -> None:
    agent, pod = host_with_node.pid("service"), host_with_node.pid("pod")
    assert alice.get("nodes/metal-0").json()["inventory"]["agent_outdated"] is True
    assert alice.post("nodes/metal-0/upgrade", None).status_code == 200
    poll_until(lambda: version_of_node() == agent_version())
    assert (host_with_node.place / "upgrades").read_text() == "upgraded\n"
    assert (host_with_node.place / "starts").read_text() == "started\n"
    assert (host_with_node.pid("service"), host_with_node.pid("pod")) == (agent, pod)
    assert host_with_node.is_running("pod")
    inventory = alice.get("nodes/metal-0").json()["inventory"]
    assert (inventory["agent_outdated"], inventory["upgrade_error"]) == (False, "")
    again = alice.post("nodes/metal-0/upgrade", None)
    assert again.status_code == 409
    assert f"already has the current version, {agent_version()}" in again.json()["detail"]


@pytest.mark.heavy
@pytest.mark.django_db(transaction=True)
def test_agent_killed_during_an_upgrade_restarts_with_the_old_version_and_retries(
    host_with_node: Host, alice: Caller
) -> None:
    (host_with_node.place / "hold").touch()
    alice.post("nodes/metal-0/upgrade", None)
    poll_until((host_with_node.place / "upgrades").exists)
    former = host_with_node.pid("service")
    os.kill(former, signal.SIGKILL)
    assert version_of_node() == OLD
    (host_with_node.place / "hold").unlink()
    poll_until(lambda: version_of_node() == agent_version())
    assert host_with_node.pid("service") != former
    assert (host_with_node.place / "starts").read_text() == "started\n"


@pytest.mark.heavy
@pytest.mark.django_db(transaction=True)
def test_failed_upgrade_keeps_the_old_agent_and_reports_the_reason(
    host_with_node: Host, alice: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def error() -> str:
        return str(alice.get("nodes/metal-0").json()["inventory"]["upgrade_error"])

    with monkeypatch.context() as damaged:
        damaged.setattr("pools.api.joining.agent_package", lambda: b"damaged")
        alice.post("nodes/metal-0/upgrade", None)
        poll_until(error)
    assert error() == f"The upgrade to {agent_version()} failed: the downloaded agent has the wrong checksum"
    assert version_of_node() == OLD
    (host_with_node.place / "fail").touch()
    os.kill(host_with_node.pid("service"), signal.SIGKILL)  # a restarted agent tries again at once
    poll_until(lambda: "the node's script exited with 1" in error())
    assert host_with_node.is_running("pod")


@pytest.mark.heavy
@pytest.mark.django_db(transaction=True)
def test_agent_on_a_free_machine_upgrades_automatically(host: Host) -> None:
    write_agent(host.place, report_seconds=0.2, version=OLD)
    NodePool.objects.update(nodes_desired=0)
    host.install()
    poll_until(lambda: Machine.objects.get().inventory.get("agent_version") == agent_version())


def test_server_upgrades_an_outdated_agent_on_a_free_machine_or_on_request(
    alice: Caller, metal_pool: NodePool
) -> None:
    def offer(version: str) -> Any:
        return report_in(secret, {"inventory": {**INVENTORY, "agent_version": version}}).json()["upgrade"]

    secret = join(alice)
    assert offer(OLD)["version"] == agent_version()
    assert offer(agent_version()) is None
    assert report_in(secret).json()["upgrade"] is None
    reconcile_pool(metal_pool, nodes_desired=1)
    assert offer(OLD) is None
    alice.post("nodes/metal-0/upgrade", None)
    assert set(offer(OLD)) == {"version", "sha256", "script"}


def test_node_without_an_agent_cannot_be_upgraded(
    alice: Caller, cast: Cast, client: Client, metal_pool: NodePool
) -> None:
    secret = join(alice)
    reconcile_pool(metal_pool, nodes_desired=1)
    rejected = alice.post("nodes/metal-0/upgrade", None)
    assert (rejected.status_code, rejected.json()["detail"]) == (
        409,
        "Node metal-0 has no agent that reports to this server, so there is nothing to upgrade.",
    )  # fmt: skip
    report_in(secret, {"inventory": INVENTORY})
    client.force_login(cast.alice.user)
    assert "Upgrade agent" in client.get("/nodes/metal-0").content.decode()
    assert client.post("/nodes/metal-0/upgrade").status_code == 302
    assert Node.objects.get().upgrade_to == agent_version()
