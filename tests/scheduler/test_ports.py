"""Tests for the ports of interactive workloads: numbers, environment variables and idle timeouts."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from pools.joining.secrets import port_secret
from projects.models import Phase, Pod, PortLink, Workload
from projects.services.workloads import ports
from tests.scheduler.stage import Stage
from tests.support.present import present

INTERACTIVE_DOCUMENT: dict[str, Any] = {
    "kind": "interactive",
    "ports": [{"name": "lab"}, {"name": "board", "port": 6006}],
    "roles": [{"name": "desk", "replicas": 2, "gpu": 1}],
}


def pod_env(stage: Stage, pod: Pod) -> Mapping[str, str]:
    """Return the environment of a started pod, including its secrets."""
    order = stage.runtime.order(str(pod.pk))
    return {**order.env, **order.secret_env}


def submit_interactive(stage: Stage, **changes: Any) -> Workload:
    workload = stage.submit("desk", **{**INTERACTIVE_DOCUMENT, **changes})
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    return workload


def test_first_pod_receives_its_ports_and_the_request_secret(stage: Stage) -> None:
    first, second = stage.pods(submit_interactive(stage))
    env = pod_env(stage, first)
    assert first.ports is not None
    assert env["BERTH_PORT_LAB"] == env["BERTH_PORT"] == str(first.ports["lab"]["port"])
    assert env["BERTH_PORT_BOARD"] == "6006"
    assert env["BERTH_PORT_SECRET"] == port_secret(str(first.pk))
    assert "BERTH_PORT" not in pod_env(stage, second)
    assert second.ports is None


def test_replacement_pod_is_assigned_different_ports(stage: Stage) -> None:
    workload = submit_interactive(stage, restart_policy={"kind": "on_failure"})
    first = stage.pods(workload)[0]
    stage.tick(3)
    assert stage.pods(workload)[0].ports == first.ports
    stage.finish(workload, exit_code=1)
    stage.tick(4, seconds=120)
    again = stage.pods(workload, "running", "starting")[0]
    assert again.pk != first.pk
    assert present(again.ports)["lab"] != present(first.ports)["lab"]


def test_pod_without_a_free_port_does_not_block_other_pods(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = stage.submit("desk", **{**INTERACTIVE_DOCUMENT, "roles": [{"name": "desk", "gpu": 1}]})
    other = stage.submit("other", roles=[{"name": "worker", "gpu": 1}])
    monkeypatch.setattr("scheduler.loop.dispatch.pods.assign_ports", lambda pods, context: None)
    stage.tick(2)
    assert (stage.phase(workload), stage.phase(other)) == (Phase.STARTING, Phase.RUNNING)
    monkeypatch.undo()
    stage.tick(3)
    assert stage.phase(workload) == Phase.RUNNING


def test_request_to_a_port_resets_the_idle_timer(stage: Stage) -> None:
    workload = submit_interactive(stage, idle_timeout=60)
    _, secret = ports.issue_link(actor=stage.cast.alice, workload=workload, port="lab", at=stage.clock.now())
    ports.redeem_link(secret, workload.pk, "lab", stage.clock.now())
    for _ in range(8):
        PortLink.objects.update(seen_at=stage.clock.now())
        stage.tick(seconds=10)
    assert stage.phase(workload) == Phase.RUNNING
    stage.tick(9, seconds=10)
    assert stage.phase(workload) == Phase.COMPLETED
    assert "no port requests" in workload.message


def test_expired_port_links_are_deleted(stage: Stage) -> None:
    workload = submit_interactive(stage)
    now = stage.clock.now()
    ports.issue_link(actor=stage.cast.alice, workload=workload, port="lab", at=now)
    assert ports.delete_links(before=now + timedelta(hours=11)) == 0
    assert ports.delete_links(before=now + timedelta(hours=13)) == 1
