"""Tests that the rows of a pool on Kubernetes follow its cluster."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from berth.core.errors import Conflict, Invalid
from pools import services
from pools.joining.sealed import seal
from pools.kubernetes.api_server.api import Unreachable
from pools.kubernetes.cluster import Clusters, PoolAccess
from pools.models import NodeClaim, NodePool
from pools.providers.kubernetes import KubernetesProvider
from pools.reconciler import reconcile
from pools.services.access.kubernetes import KubernetesAccess
from scheduler.loop.observe.nodes import NodeCache, load_node_rows
from tests.contracts.pods import poll_until
from tests.fakes.kubernetes import FakeCluster, serve
from tests.pools.kubernetes.api_server.test_credentials import PEM, kubeconfig
from tests.pools.stage import START, SYSTEM

pytestmark = pytest.mark.django_db


@dataclass
class Fleet:
    cluster: FakeCluster
    url: str
    clusters: Clusters = field(init=False)
    now: Any = START

    def __post_init__(self) -> None:
        self.clusters = Clusters(lambda: "test", now=lambda: self.now)

    def create(self, name: str = "prod", **values: Any) -> NodePool:
        defaults = {
            "nodes": 2, "gpus_per_node": 2, "provider_settings": {"node_selector": {"gpus": "yes"}},
            "kubeconfig": kubeconfig(server=self.url),
        }  # fmt: skip
        return services.create_pool(actor=SYSTEM, name=name, provider="kubernetes", **{**defaults, **values})

    def reconcile(self, pool: NodePool, seconds: float = 20) -> None:
        """Run a reconcile pass after a number of simulated seconds."""
        self.now += timedelta(seconds=seconds)
        provider = KubernetesProvider(
            lambda: self.access.access_for_pool(pool), lambda: self.access.open(pool), lambda: self.now
        )
        reconcile(
            pool.pk, provider=provider, now=self.now, fence=transaction.atomic,
            changed_at=self.access.nodes_changed_at(pool),
        )  # fmt: skip

    def settle(self, pool: NodePool, **expected: Any) -> dict[str, Any]:
        """Reconcile until the first node of the pool has these values, and return the values."""

        def look() -> dict[str, Any]:
            self.reconcile(pool)
            rows = pool.nodes.exclude(state="ended").order_by("ordinal").values()
            row: Mapping[str, Any] = rows.first() or {}
            return {name: row.get(name) for name in expected}

        return poll_until(look, lambda values: values == expected)

    @property
    def access(self) -> KubernetesAccess:
        return KubernetesAccess(self.clusters)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    cluster = FakeCluster()
    for number in range(2):
        cluster.add_node(f"gpu-{number}", gpus=2, labels={"gpus": "yes"})
    cluster.add_node("control-plane")
    with serve(cluster) as url:
        fleet = Fleet(cluster, url)
        yield fleet
        fleet.clusters.close()


def test_pool_claims_the_selected_nodes_with_their_individual_capacity(fleet: Fleet) -> None:
    fleet.cluster.add_node("x" * 63 + "." + "y" * 180, gpus=4, cpu="16", labels={"gpus": "yes"})
    pool = fleet.create(nodes=3)
    fleet.settle(pool, state="ready", cpu_milli=8000, gpus=2, max_pods=110)
    assert pool.nodes.filter(gpus=4, cpu_milli=16000).count() == 1, "a long name is no obstacle"
    assert set(pool.nodes.values_list("labels__gpus", flat=True)) == {"yes"}


@pytest.mark.heavy
def test_foreign_pods_reduce_the_usable_capacity(fleet: Fleet) -> None:
    pool = fleet.create()
    fleet.settle(pool, state="ready")
    fleet.cluster.add_foreign_pod("theirs", "gpu-0", gpus=1)
    foreign = {"gpus": 1, "cpu_milli": 1000, "memory_mib": 1024, "pods": 1}
    fleet.settle(pool, foreign=foreign, foreign_devices=[1], cpu_milli=7000, memory_mib=64 * 1024 - 1024)
    first, _ = NodeCache().to_engine_nodes(load_node_rows(pool), {pool.pk: "prod"}, closed=())
    assert (first.gpus, first.capacity.gpu) == (2, 1000)
    fleet.cluster.store.remove("pods", "others", "theirs")
    fleet.settle(pool, foreign_devices=[], cpu_milli=8000)


def test_cordoned_node_accepts_no_pods_until_it_is_uncordoned(fleet: Fleet) -> None:
    pool = fleet.create()
    fleet.settle(pool, state="ready", obstacle="")
    fleet.cluster.change_node("gpu-0", unschedulable=True)
    fleet.settle(pool, state="ready", obstacle="the node is cordoned in Kubernetes")
    first, _ = NodeCache().to_engine_nodes(load_node_rows(pool), {pool.pk: "prod"}, closed=())
    assert first.state == "cordoned"
    fleet.cluster.change_node("gpu-0", unschedulable=False)
    fleet.settle(pool, obstacle="")


@pytest.mark.parametrize(
    ("change", "state", "obstacle"),
    [
        (lambda cluster: cluster.change_node("gpu-0", unschedulable=True), "ready",
         "the node is cordoned in Kubernetes"),
        (lambda cluster: cluster.change_node("gpu-0", taints=[{"key": "broken", "effect": "NoExecute"}]),
         "ready", "the node has the taint broken:NoExecute"),
        (lambda cluster: cluster.set_ready("gpu-0", "False", "out of disk"), "ready",
         "the node is not ready: out of disk"),
        (lambda cluster: cluster.remove_node("gpu-0"), "ended", ""),
    ],
)  # fmt: skip
def test_node_change_wakes_the_scheduler_and_is_stored_before_the_pools_next_tick(
    fleet: Fleet, change: Callable[[FakeCluster], None], state: str, obstacle: str
) -> None:
    pool, wakes = fleet.create(), []
    fleet.clusters.set_callbacks(lambda: wakes.append(fleet.access.nodes_changed_at(pool)), lambda pod: None)
    fleet.settle(pool, state="ready", obstacle="")
    fleet.now += timedelta(seconds=1)
    change(fleet.cluster)
    poll_until(lambda: fleet.now in wakes)
    fleet.reconcile(pool, seconds=0)
    first = pool.nodes.get(instance_id__startswith="gpu-0/")
    assert (first.state, first.obstacle) == (state, obstacle)


@pytest.mark.heavy
def test_repeated_kubelet_status_does_not_trigger_a_node_listing(fleet: Fleet) -> None:
    pool = fleet.create()
    fleet.settle(pool, state="ready", obstacle="")
    changed_at = fleet.access.nodes_changed_at(pool)
    fleet.now += timedelta(seconds=1)
    fleet.cluster.set_ready("gpu-0", "True", "kubelet is posting ready status")
    mirror = fleet.access.access_for_pool(pool).cluster.mirror
    poll_until(lambda: "is posting" in str(mirror.nodes()))
    assert fleet.access.nodes_changed_at(pool) == changed_at


def test_removed_node_is_marked_lost_and_another_node_is_claimed(fleet: Fleet) -> None:
    pool = fleet.create(nodes=1)
    fleet.settle(pool, state="ready")
    fleet.cluster.remove_node("gpu-0")

    def ready() -> list[str]:
        fleet.reconcile(pool)
        ids = pool.nodes.filter(state="ready").values_list("instance_id", flat=True)
        return [instance_id.partition("/")[0] for instance_id in ids]

    poll_until(ready, lambda names: names == ["gpu-1"])
    assert NodeClaim.objects.filter(ended_at=None).count() == 1


@pytest.mark.heavy
def test_node_belongs_to_only_one_pool(fleet: Fleet) -> None:
    first, second = fleet.create(), fleet.create("second", nodes=1)
    fleet.settle(first, state="ready")
    fleet.reconcile(second)
    second.refresh_from_db()
    assert second.nodes.count() == 0
    assert "2 nodes of the cluster selected, 0 free, 0 large enough" in second.last_error


@pytest.mark.heavy
def test_pods_of_another_installation_count_as_foreign(fleet: Fleet) -> None:
    pool = fleet.create()
    fleet.settle(pool, state="ready", foreign_devices=[])
    fleet.cluster.add_foreign_pod("theirs", "gpu-0", gpus=1)
    pod = fleet.cluster.pod("theirs")
    labels = {"berth.dev/installation": "other", "berth.dev/pool": "prod"}
    fleet.cluster.store.put("pods", {**pod, "metadata": {**pod["metadata"], "labels": labels}})
    fleet.settle(
        pool, foreign_devices=[1], foreign={"gpus": 1, "cpu_milli": 1000, "memory_mib": 1024, "pods": 1}
    )


@pytest.mark.heavy
def test_pool_with_an_unreachable_cluster_reports_the_problem_and_keeps_its_nodes(fleet: Fleet) -> None:
    pool = fleet.create()
    fleet.settle(pool, state="ready")
    fleet.cluster.is_down = True

    def last_error() -> str:
        fleet.reconcile(pool)
        pool.refresh_from_db()
        return pool.last_error

    poll_until(last_error, lambda error: "cannot be reached" in error)
    assert set(pool.nodes.values_list("state", flat=True)) == {"ready"}
    fleet.cluster.is_down = False
    poll_until(last_error, lambda error: error == "")
    assert pool.nodes.filter(state="ready").count() == 2


def test_expired_watch_restarts_from_a_list(fleet: Fleet) -> None:
    pool = fleet.create()
    fleet.settle(pool, state="ready")
    fleet.cluster.store.compact()
    fleet.cluster.change_node("gpu-0", unschedulable=True)
    fleet.cluster.store.compact()
    fleet.settle(pool, obstacle="the node is cordoned in Kubernetes")


def test_credentials_are_stored_encrypted_and_changes_are_audited(fleet: Fleet) -> None:
    pool = fleet.create()
    assert "users" not in pool.kubeconfig_sealed
    edited = services.edit_pool(actor=SYSTEM, pool=pool, changes={"kubeconfig": kubeconfig(server=fleet.url)})
    assert edited.version == pool.version + 1
    assert edited.kubeconfig_sealed != pool.kubeconfig_sealed


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"kubeconfig": None}, "kubeconfig"),
        ({"provider_settings": {"in_cluster": True}}, "kubeconfig"),
        ({"provider_settings": {"contxt": "x"}}, "provider_settings.contxt"),
        ({"runtime": "ray"}, "runtime"),
        ({"provider_settings": {"workspaces": {}}}, "provider_settings.workspaces"),
        ({"plugins": ["torch"]}, "plugins"),
        ({"environment": {"pip": ["numpy"]}}, "environment"),
        ({"image_policy": {"mode": "forbid"}}, "image_policy.mode"),
    ],
)
def test_error_for_an_invalid_pool_names_the_field(fleet: Fleet, values: dict[str, Any], path: str) -> None:
    with pytest.raises(Invalid) as raised:
        services.create_pool(
            actor=SYSTEM, name="prod", nodes=1,
            **{"provider": "kubernetes", "kubeconfig": kubeconfig(server=fleet.url), **values},
        )  # fmt: skip
    assert [problem.path for problem in raised.value.problems] == [path]


@pytest.mark.parametrize(
    ("user", "cluster", "path"),
    [
        (None, {"certificate-authority-data": PEM}, "clusters.certificate-authority-data"),
        (None, {"proxy-url": "ftp://proxy"}, "clusters.proxy-url"),
        (None, {"proxy-url": "http://proxy:port"}, "clusters.proxy-url"),
        (None, {"server": "https://host:99999999"}, "clusters.server"),
        (None, {"server": "https://[::1"}, "clusters.server"),
        ({"token": "\u00e9"}, {}, "users.token"),
        ({"client-certificate-data": PEM, "client-key-data": PEM}, {}, "users.client-certificate-data"),
    ],
)
def test_unusable_kubeconfig_is_rejected(
    fleet: Fleet, user: dict[str, Any] | None, cluster: dict[str, Any], path: str
) -> None:
    with pytest.raises(Invalid) as raised:
        fleet.create(kubeconfig=kubeconfig(user, **cluster))
    assert [problem.path for problem in raised.value.problems] == [f"kubeconfig.{path}"]


@pytest.mark.heavy
def test_unusable_stored_kubeconfig_does_not_affect_other_pools(fleet: Fleet) -> None:
    fleet.create()
    pool = fleet.create("second")
    pool.kubeconfig_sealed = seal(kubeconfig(None, **{"certificate-authority-data": PEM}))
    pool.save()
    pools = fleet.access.access_by_pool()
    assert isinstance(pools["prod"], PoolAccess)
    assert "certificate-authority-data" in getattr(pools["second"], "reason", "")


@pytest.mark.heavy
def test_cluster_connection_is_closed_when_its_credentials_are_replaced(fleet: Fleet) -> None:
    pool = fleet.create()
    former = fleet.access.access_for_pool(pool).cluster
    former.mirror.pods()
    services.edit_pool(
        actor=SYSTEM, pool=pool, changes={"kubeconfig": kubeconfig({"token": "new"}, server=fleet.url)}
    )
    access = fleet.access.access_by_pool()["prod"]
    assert isinstance(access, PoolAccess)
    assert access.cluster is not former
    with pytest.raises(Unreachable, match="has been closed"):
        former.api.get("/api/v1/nodes")
    fleet.cluster.add_node("gpu-9")  # the next event ends each watch of the former mirror
    fleet.cluster.add_foreign_pod("theirs", "gpu-9")
    fleet.cluster.set_quota("others", "theirs", hard={"pods": "9"})
    poll_until(lambda: former.api._http.is_closed)
    assert access.cluster.api.get("/api/v1/nodes")["items"]
    assert fleet.access.access_for_pool(NodePool.objects.get()).cluster is access.cluster


def test_kubernetes_runtime_requires_the_kubernetes_provider(fleet: Fleet) -> None:
    with pytest.raises(Invalid, match="need each other"):
        services.create_pool(actor=SYSTEM, name="prod", provider="local", runtime="kubernetes")
    pool = fleet.create(nodes=1)
    fleet.settle(pool, state="ready")
    with pytest.raises((Invalid, Conflict)):
        services.edit_pool(actor=SYSTEM, pool=pool, changes={"provider": "local", "runtime": "local"})
