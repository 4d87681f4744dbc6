"""Tests for gangs on Kubernetes, where each pod has its own address."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pools.models import Node
from projects.models import Phase, PodState, Quota
from tests import factories
from tests.cast import make_cast
from tests.contracts.kubernetes_stage import FakeKubernetesStage, fake_kubernetes_stage
from tests.contracts.pods import poll_until
from tests.samples import sample
from tests.scheduler.stage import Stage

pytestmark = pytest.mark.django_db(transaction=True)

IMAGE = f"ghcr.io/org/train@sha256:{'1' * 64}"


@pytest.fixture
def k8s(tmp_path: Path) -> Iterator[FakeKubernetesStage]:
    with fake_kubernetes_stage(tmp_path / "runtime") as stage:
        yield stage


@pytest.fixture
def stage(k8s: FakeKubernetesStage) -> Stage:
    """Return a scheduler whose pool `prod` is one node of the cluster."""
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
