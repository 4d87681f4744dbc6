"""Tests for gangs on Kubernetes, where each pod has its own address."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pools.models import Node
from projects.models import Phase, PodState, Quota, Workload
from scheduler.models import Eviction
from tests import factories
from tests.cast import make_cast
from tests.contracts.kubernetes.stage import FakeKubernetesStage, fake_kubernetes_stage
from tests.contracts.pods import poll_until
from tests.harness.samples import sample
from tests.scheduler.stage import Stage

pytestmark = pytest.mark.django_db(transaction=True)

IMAGE = f"ghcr.io/org/train@sha256:{'1' * 64}"


@pytest.fixture
def k8s(tmp_path: Path) -> Iterator[FakeKubernetesStage]:
    with fake_kubernetes_stage(tmp_path / "runtime") as stage:
        yield stage


@pytest.fixture
def stage(k8s: FakeKubernetesStage) -> Stage:
    stage = Stage(make_cast())
    pool = factories.pool("prod", provider="kubernetes", runtime="kubernetes", gpus=8)
    node = stage.node(0, pool)
    Node.objects.filter(pk=node.pk).update(instance_id="node-1/1")
    stage.loop.context.runtimes = lambda pool: k8s.runtime
    for owner in ({"department": stage.cast.research}, {"project": stage.cast.vision}):
        Quota.objects.create(pool=pool, gpu_milli=8000, **owner)
    return stage


@pytest.mark.parametrize("has_address", sample([True, False], 1))
def test_whole_gang_starts_even_if_its_first_pod_exits_immediately(
    stage: Stage, k8s: FakeKubernetesStage, has_address: bool
) -> None:
    k8s.cluster.short, k8s.cluster.short_has_address = {"train-1-worker-0"}, has_address
    roles: list[dict[str, Any]] = [{"name": "worker", "replicas": 2, "gpu": 1, "cpu": 1, "memory_mib": 64}]
    gang = stage.submit("train-1", pools=["prod"], image=IMAGE, roles=roles)

    def states() -> list[str]:
        stage.tick(seconds=2)
        return [pod.state for pod in stage.pods(gang)]

    poll_until(states, lambda values: values == [PodState.SUCCEEDED, PodState.RUNNING])
    assert stage.phase(gang) == Phase.RUNNING
    first, second = stage.pods(gang)
    env = k8s.cluster.pod(str(second.pk))["spec"]["containers"][0]["env"]
    address = next(each["value"] for each in env if each["name"] == "MASTER_ADDR")
    assert address == (first.address if has_address else first.node.address)
    assert bool(first.address) is has_address


def running_gang(stage: Stage) -> tuple[Workload, str, str]:
    """Start a gang of two replicas. Return its workload and the names of its pods in the cluster."""
    roles: list[dict[str, Any]] = [{"name": "worker", "replicas": 2, "gpu": 1, "cpu": 1, "memory_mib": 64}]
    gang = stage.submit("train", pools=["prod"], image=IMAGE, roles=roles, grace_period_seconds=600)
    tick_until(stage, gang, Phase.RUNNING)
    first, second = stage.pods(gang, "running")
    return gang, str(first.pk), str(second.pk)


def tick_until(stage: Stage, workload: Workload, phase: str) -> None:
    def current() -> str:
        stage.tick(seconds=2)
        return stage.phase(workload)

    poll_until(current, lambda value: value == phase)


def test_gang_is_requeued_if_a_peer_fails_during_the_grace_period_of_an_evicted_pod(
    stage: Stage, k8s: FakeKubernetesStage
) -> None:
    gang, evicted, peer = running_gang(stage)
    k8s.cluster.stubborn = {evicted}
    namespace = k8s.cluster.pod(evicted)["metadata"]["namespace"]
    k8s.cluster.delete_pod(namespace, evicted, 600)  # the grace period lets the program save a checkpoint
    k8s.cluster.end_pod(peer, 1)
    tick_until(stage, gang, Phase.STOPPING)
    gang.refresh_from_db()
    reason = "the pod was deleted in Kubernetes, for example by `kubectl drain`"
    assert gang.next_phase == Phase.PENDING
    assert gang.message == (
        f"Pod worker-0 is being stopped: {reason}. The workload is requeued; this does not count as a "
        "failure."
    )
    record = Eviction.objects.get()
    assert (record.kind, record.entire_workload, record.gpu_milli) == ("cluster", True, 2000)
    assert reason in record.rule
    k8s.cluster.delete_pod(namespace, evicted, 0)
    tick_until(stage, gang, Phase.RUNNING)
    assert Eviction.objects.count() == 1
    gang.refresh_from_db()
    assert gang.restarts == 0


def test_pod_that_exceeds_its_memory_limit_fails_the_gang_even_if_a_peer_is_being_evicted(
    stage: Stage, k8s: FakeKubernetesStage
) -> None:
    gang, evicted, peer = running_gang(stage)
    k8s.cluster.stubborn = {evicted}
    namespace = k8s.cluster.pod(evicted)["metadata"]["namespace"]
    k8s.cluster.delete_pod(namespace, evicted, 600)
    k8s.cluster.end_pod(peer, 137, "OOMKilled")
    tick_until(stage, gang, Phase.STOPPING)
    k8s.cluster.delete_pod(namespace, evicted, 0)
    tick_until(stage, gang, Phase.FAILED)
    assert not Eviction.objects.exists()
