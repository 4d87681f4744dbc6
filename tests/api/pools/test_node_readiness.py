"""Test that a node whose probe pod failed is not ready."""

from collections.abc import Collection
from datetime import timedelta

from django.test import Client
from django.utils import timezone

from pools.models import Node, NodePool
from pools.providers.reachable import ReachableNodes
from pools.providers.static import StaticProvider
from pools.reconciler import reconcile
from pools.selectors import pending_instances
from tests.api.conftest import Caller
from tests.api.pools.joining.test_joining import join
from tests.cast import Cast

FAILED = "the probe pod failed: exit code 1: mktemp: Read-only file system"


def test_node_with_a_failed_probe_pod_accepts_no_workloads(
    alice: Caller, bob: Caller, cast: Cast, client: Client, metal_pool: NodePool
) -> None:
    join(alice)
    obstacles = {"reason": FAILED}

    def report(instances: Collection[str]) -> dict[str, str]:
        return dict.fromkeys(instances, obstacles["reason"]) if obstacles else {}

    def tick() -> None:
        provider = ReachableNodes(StaticProvider(timezone.now), report, pending_instances)
        NodePool.objects.update(nodes_desired=1, ticked_at=timezone.now() - timedelta(minutes=1))
        reconcile(metal_pool.pk, provider=provider, now=timezone.now())

    tick()
    tick()
    shown = alice.get("nodes/metal-0").json()
    assert (shown["state"], shown["not_ready_reason"]) == ("booting", FAILED)
    assert shown["free"]["gpu"] == 0
    assert bob.get("nodes/metal-0").json()["not_ready_reason"] == "", "only admins see the machine's output"
    client.force_login(cast.alice.user)
    assert FAILED[1:] in client.get("/nodes/metal-0").content.decode()

    obstacles.clear()
    tick()
    shown = alice.get("nodes/metal-0").json()
    assert (shown["state"], shown["not_ready_reason"], shown["free"]["gpu"]) == ("ready", "", 2)
    assert Node.objects.count() == 1
