"""Tests for the nodes, devices, storage and addresses of started pods."""

import pytest

from pools.models import Node
from scheduler.models import DeviceClaim
from tests.scheduler.stage import Stage
from tests.support.present import present


@pytest.mark.shows("RAI-15")
def test_gang_is_bound_to_nodes_devices_storage_and_a_rendezvous_address(stage: Stage) -> None:
    workload = stage.submit(roles=[{"name": "worker", "replicas": 3, "gpu": 1}])
    stage.tick()
    pods = stage.pods(workload)
    assert [pod.allocation.node_id for pod in pods] == [pod.node_id for pod in pods]
    assert len({pod.node_id for pod in pods}) == 2  # each node has two GPUs, so three pods need both nodes
    claims = [(claim.node_id, claim.device) for claim in DeviceClaim.objects.all()]
    assert len(claims) == len(set(claims)) == 3
    orders = [stage.runtime.order(str(pod.pk)) for pod in pods]
    # The workload's pods share one workspace.
    assert {order.workspace for order in orders} == {str(workload.pk)}
    workload.refresh_from_db()
    addresses = {(order.env["MASTER_ADDR"], order.env["MASTER_PORT"]) for order in orders}
    rendezvous = present(workload.rendezvous)
    assert addresses == {(rendezvous["address"], str(rendezvous["port"]))}


def test_ranks_on_several_machines_rendezvous_at_rank_0(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.runtime, "rendezvous", lambda: ("", 20007))
    for number, node in enumerate(Node.objects.order_by("pk")):
        node.address = f"10.0.0.{number}"
        node.save()
    workload = stage.submit(roles=[{"name": "worker", "replicas": 3, "gpu": 1}])
    stage.tick()
    pods = sorted(stage.pods(workload), key=lambda pod: pod.rank)
    assert len({pod.node.address for pod in pods}) == 2
    orders = [stage.runtime.order(str(pod.pk)) for pod in pods]
    met = {(order.env["MASTER_ADDR"], order.env["MASTER_PORT"]) for order in orders}
    assert met == {(pods[0].node.address, "20007")}


@pytest.mark.shows("RAI-15")
def test_gang_binding_is_atomic(stage: Stage) -> None:
    workload = stage.submit(roles=[{"name": "worker", "replicas": 5, "gpu": 1}])
    stage.tick()
    assert list(stage.pods(workload)) == []
    assert not DeviceClaim.objects.exists()
    workload.refresh_from_db()
    assert workload.rendezvous is None
