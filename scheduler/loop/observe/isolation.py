"""Node restrictions that agents report: no images, no isolation, or only one project."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, Protocol

from django.db.models import Q

from pools.models import NodePool
from pools.runtimes.enclosure.levels import IsolationLevel, IsolationPolicy
from projects.models import Pod
from projects.models.workloads import LIVE_POD_STATES
from scheduler.engine.model import IMAGES, ISOLATION, SHARED_GPUS

Report = Mapping[str, Any]  # content of a node's `isolation` field
Features = Mapping[str, str]  # missing features, with the reason why the node lacks each


class NodeWithReport(Protocol):
    """Node row with an isolation report. It can be a full row, or contain only the columns that decisions
    need.
    """

    @property
    def pk(self) -> int: ...
    @property
    def pool_id(self) -> int: ...
    @property
    def isolation(self) -> Report | None: ...


def reported_missing_features(report: Report | None) -> Features:
    """Return the features that the node lacks according to its agent's report, or no features if there is no
    report.
    """
    if report is None:
        return {}
    features = {}
    if not report.get("images") and report.get("images_obstacle"):
        features[IMAGES] = _first_sentence(report["images_obstacle"])
    if report["level"] == IsolationLevel.NONE and report["policy"] == IsolationPolicy.REQUIRE:
        features[ISOLATION] = _first_sentence(report["obstacle"])
    if report.get("whole_devices"):
        features[SHARED_GPUS] = "they assign only whole GPUs"
    return features


def missing_features_by_pool(nodes: Iterable[NodeWithReport]) -> Mapping[int, Features]:
    """Return the features that all reporting nodes of a pool lack, keyed by pool."""
    lacking: dict[int, dict[str, str]] = {}
    for node in nodes:
        if node.isolation is not None:
            features = reported_missing_features(node.isolation)
            common = lacking.setdefault(node.pool_id, dict(features))
            for feature in common.keys() - features.keys():
                del common[feature]
    return lacking


class ServedProjects:
    """Projects served by the nodes that cannot isolate pods.

    Such a node serves one project at a time. The nodes of local pools serve the same project, because they
    share one machine.
    """

    def __init__(self, nodes: Iterable[NodeWithReport], local_pools: Collection[int]) -> None:
        self._local_pools = local_pools
        self._machines = {node.pk: self._machine_key(node) for node in nodes if _serves_one_project(node)}
        self._projects: dict[Hashable, int] = {}
        for node, project in _projects_by_pod_age(self._machines):
            self._projects.setdefault(self._machines[node], project)

    def only_project_on_node(self, node: int) -> int | None:
        """Return the only project that the node may serve, or None if it may serve any."""
        return self._projects.get(self._machines[node]) if node in self._machines else None

    def project_names_by_node(self, names: Mapping[int, str]) -> Mapping[int, str]:
        """Map each node that is already restricted to one project to that project's name."""
        projects = ((node, self._projects.get(machine)) for node, machine in self._machines.items())
        return {node: names[project] for node, project in projects if project is not None}

    def add(self, node: int, project: int) -> None:
        """Record that a pod of the project is being placed on the node."""
        if node in self._machines:
            self._projects.setdefault(self._machines[node], project)

    def _machine_key(self, node: NodeWithReport) -> Hashable:
        return "local" if node.pool_id in self._local_pools else node.pk


def local_pools(pools: Iterable[NodePool]) -> frozenset[int]:
    return frozenset(pool.pk for pool in pools if pool.runtime == NodePool.Runtime.LOCAL)


def _serves_one_project(node: NodeWithReport) -> bool:
    report = node.isolation
    return (
        report is not None
        and report["level"] == IsolationLevel.NONE
        and report["policy"] == IsolationPolicy.AUTO
    )


def _projects_by_pod_age(nodes: Collection[int]) -> list[tuple[int, int]]:
    """Return (node, project) for each pod with a workspace on one of the nodes, oldest pod first."""
    if not nodes:
        return []
    has_workspace = Q(state__in=LIVE_POD_STATES) | Q(started_at__isnull=False)
    rows = Pod.objects.filter(has_workspace, node__in=nodes).order_by("created_at", "pk")
    return list(rows.values_list("node_id", "workload__project_id"))


def _first_sentence(text: str) -> str:
    return text.split(". ", maxsplit=1)[0].rstrip(".")
