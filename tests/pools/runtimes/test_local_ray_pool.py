"""Tests for a Ray pool on this machine: nodes start, fail, are replaced and end."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from django.utils import timezone

from pools import services
from pools.joining import secrets
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import NodeState
from pools.providers.hardware import Device, Machine
from pools.providers.local import LocalProvider
from pools.reconciler import reconcile
from pools.runtimes.base import PodCause, PodState
from pools.runtimes.ray.local_nodes import LocalRayNodes
from pools.runtimes.ray.runtime import RayRuntime
from pools.runtimes.shim.processes import descendants
from pools.runtimes.shim.records import read_record
from pools.selectors import ray_nodes
from tests.contracts.pods import alive, ended, order, poll_until, running
from tests.pools.stage import SYSTEM, pool

PATIENCE = 240.0


def is_ready(runtime: RayRuntime, instance_id: str) -> bool:
    return not runtime.unready_reasons([instance_id])


class LocalRayPool:
    def __init__(self, root: Path) -> None:
        machine = Machine(8000, 16384, tuple(Device(f"GPU-{n}") for n in range(3)))
        cut = LocalProvider(root / "nodes", machine)
        self.provider = LocalRayNodes(cut, root / "raylets", secrets.cluster_secret)
        self.runtime = RayRuntime(root / "ray", ray_nodes)
        shape = {"gpus_per_node": 1, "cpu_milli": 1000, "reconcile_tick": 1}
        self.pool = pool((0, 2), provider="local", runtime="ray", **shape)

    def until(self, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not enough():
            reasons = list(ScalingEvent.objects.values_list("reason"))
            assert time.monotonic() < deadline, (self.states(), reasons)
            reconcile(self.pool.pk, provider=self.provider, now=timezone.now())
            time.sleep(0.2)

    def resize(self, nodes_desired: int) -> None:
        services.set_nodes_desired(actor=SYSTEM, pool=self.pool, nodes_desired=nodes_desired)

    def states(self) -> list[str]:
        living = Node.objects.filter(pool=self.pool).exclude(state=NodeState.ENDED)
        return [str(node.state) for node in living.order_by("ordinal")]

    def node(self, ordinal: int) -> Node:
        return Node.objects.exclude(state=NodeState.ENDED).get(pool=self.pool, ordinal=ordinal)

    def process(self, node: Node) -> int:
        record = read_record(str(self.provider._home(self.pool.name, node.instance_id) / "process"))
        assert record is not None
        return int(record["pid"])

    def end(self) -> None:
        NodePool.objects.filter(pk=self.pool.pk).update(nodes_desired=0)
        instance_ids = [instance.instance_id for instance in self.provider.list_instances(self.pool.name)]
        self.provider.terminate(self.pool.name, instance_ids)
        poll_until(lambda: not self.provider.list_instances(self.pool.name))


@pytest.fixture
def local_pool(tmp_path: Path, transactional_db: None) -> Iterator[LocalRayPool]:
    ray_pool = LocalRayPool(tmp_path)
    yield ray_pool
    ray_pool.end()


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_local_ray_pool_replaces_dead_nodes_and_leaves_no_processes(
    local_pool: LocalRayPool,
) -> None:
    local_pool.resize(2)
    local_pool.until(lambda: local_pool.states() == ["ready", "ready"])
    head, worker = local_pool.node(0), local_pool.node(1)
    assert head.address != worker.address
    processes = [local_pool.process(head), local_pool.process(worker)]
    command = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exec sleep 600")
    for pod_id, node in (("p-0", head), ("p-1", worker)):
        local_pool.runtime.start(
            order(pod_id, *command, instance_id=node.instance_id, devices=(node.devices[0],))
        )
        running(local_pool.runtime, pod_id)
    log = poll_until(lambda: local_pool.runtime.read_log("p-1", 0, 100).data)
    assert log.decode() == f"{worker.devices[0]}\n"

    os.kill(processes[1], signal.SIGKILL)
    pod_status = ended(local_pool.runtime, "p-1")
    assert pod_status.cause in (PodCause.LOST, PodCause.HOST_STOPPED, PodCause.STOPPED)
    local_pool.until(lambda: Node.objects.filter(pk=worker.pk, state=NodeState.ENDED).exists())
    local_pool.until(lambda: local_pool.states() == ["ready", "ready"])
    again = local_pool.node(1)
    assert again.instance_id != worker.instance_id
    local_pool.runtime.start(order("p-2", "true", instance_id=again.instance_id, devices=(again.devices[0],)))
    assert ended(local_pool.runtime, "p-2").exit_code == 0
    assert local_pool.runtime.get_reports(["p-0"])["p-0"].state is PodState.RUNNING

    # The head is lost. The other node joins the new head, and its pod continues.
    local_pool.runtime.start(
        order("p-3", *command, instance_id=again.instance_id, devices=(again.devices[0],))
    )
    running(local_pool.runtime, "p-3")
    os.kill(processes[0], signal.SIGKILL)
    local_pool.until(lambda: Node.objects.filter(pk=head.pk, state=NodeState.ENDED).exists())
    local_pool.until(lambda: local_pool.states() == ["ready", "ready"])
    head = local_pool.node(0)
    for number, node in enumerate((head, again)):
        local_pool.until(partial(is_ready, local_pool.runtime, node.instance_id))
        pod = order(f"p-4-{number}", "true", instance_id=node.instance_id)
        local_pool.runtime.start(pod)
        assert ended(local_pool.runtime, pod.pod_id).exit_code == 0
    assert local_pool.runtime.get_reports(["p-3"])["p-3"].state is PodState.RUNNING
    assert local_pool.node(1).pk == again.pk

    processes.append(local_pool.process(head))
    processes.append(local_pool.process(again))
    below = [pid for process in processes for pid in descendants(process)]
    local_pool.end()
    assert not any(alive(pid) for pid in [*processes, *below])
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{head.address}:8265/", trust_env=False)
