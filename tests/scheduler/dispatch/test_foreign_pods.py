"""Tests for gangs whose devices were used by foreign pods before Berth noticed them."""

from collections.abc import Sequence

import pytest

from pools.models import Node
from pools.providers.base import Instance, InstanceState, Shape, SharedMachine
from pools.reconciler.capacity import store_capacity
from pools.runtimes.base import PodCause
from projects.models import Phase, Pod
from tests.scheduler.stage import Stage

MESSAGE = "the cluster's scheduler could not place the pod: Insufficient nvidia.com/gpu."


def see_foreign_pods(node: Node, gpus: int) -> None:
    """Store the capacity of a node on which foreign pods use this many GPUs."""
    machine = Instance(
        node.instance_id, node.ordinal, InstanceState.READY, client_token="", address="10.0.0.1",
        shape=Shape(node.cpu_milli, node.memory_mib, node.gpus),
        shared=SharedMachine(110, {}, {"gpus": gpus}),
    )  # fmt: skip
    store_capacity(node, machine)


def lose(stage: Stage, pods: Sequence[Pod]) -> None:
    for pod in pods:
        stage.runtime.end(str(pod.pk), cause=PodCause.LOST, message=MESSAGE)
    stage.tick(3)


@pytest.mark.parametrize("lost_at_once", [1, 2])
def test_gang_is_placed_on_another_node_if_foreign_pods_use_its_gpus(stage: Stage, lost_at_once: int) -> None:
    stage.runtime.runs_immediately = False
    workload = stage.submit(roles=[{"name": "worker", "replicas": 2, "gpu": 1}])
    stage.tick(2)
    pods = stage.pods(workload, "starting")
    (full,) = {pod.node for pod in pods}
    see_foreign_pods(full, gpus=2)
    for start in range(0, 2, lost_at_once):
        lose(stage, pods[start : start + lost_at_once])
    (other,) = {pod.node for pod in stage.pods(workload, "starting")}
    assert other != full
    for pod in stage.pods(workload, "starting"):
        stage.runtime.run(str(pod.pk))
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    assert workload.restarts == 0
