"""Tests on random clusters that suggested changes take effect and that none is missed."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given

from scheduler.engine.decide import decide
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import UNSCHEDULABLE_REASONS, Place
from scheduler.engine.request_bounds import LIMIT_REASONS, QUOTA_REASONS
from scheduler.engine.smallest_change.change import Change, ChangeKind
from scheduler.engine.smallest_change.search import MAX_RUNS, Outcome, smallest_change
from scheduler.engine.smallest_change.sentences import change_sentence
from scheduler.simulator import load
from tests.engine.reference.changes import leaf_roles, with_change
from tests.engine.reference.clusters import clusters
from tests.engine.test_invariants import on_random_clusters

Document = dict[str, Any]
LEVELS = ("zone", "rack")
GPUS = (1, 2, 4, 8, 16)
CANNOT_START_REASONS = UNSCHEDULABLE_REASONS | LIMIT_REASONS | QUOTA_REASONS


def starts(document: Document, name: str) -> bool:
    """Return whether the next cycle places the workload on nodes that are ready."""
    booting = {node["name"] for node in document["nodes"] if node["state"] == "booting"}
    nodes = _allocated_nodes(load(document).snapshot, name)
    return bool(nodes) and not nodes & booting


def lone_document(document: Document, name: str) -> Document:
    """Return the scenario with only this workload, after its backoff. All nodes are ready, and all pools have
    their maximum number of nodes.
    """
    workload = next(workload for workload in document["workloads"] if workload["name"] == name)
    only = {key: value for key, value in workload.items() if key not in ("after", "backoff_until")}
    nodes = [node for pool in document["pools"] for node in _maximum_nodes(document, pool)]
    return {**document, "workloads": [only], "nodes": nodes}


def _maximum_nodes(document: Document, pool: Document) -> Iterator[Document]:
    own = [node for node in document["nodes"] if node["pool"] == pool["name"]]
    left = [node["name"] for node in own if node["state"] != "draining"]
    new = [f"{pool['name']}-new-{number}" for number in range((pool["nodes"]["max"] or 0) - len(left))]
    for name in left + new:
        node = next((node for node in own if node["name"] == name), own[0])
        yield {**node, "name": name, "state": "ready", "only_project": None}


def is_pending(snapshot: Snapshot, name: str) -> bool:
    """Return whether the workload has no pod, and the next cycle places none."""
    workload = next(workload for workload in snapshot.workloads if workload.name == name)
    return not workload.pods and not _allocated_nodes(snapshot, name)


def _allocated_nodes(snapshot: Snapshot, name: str) -> set[str]:
    steps = [step for bundle in decide(snapshot).bundles for step in bundle.steps]
    return {step.node for step in steps if isinstance(step, Place) and step.workload == name}


@on_random_clusters(4)
@given(document=clusters())
def test_suggested_change_starts_the_workload_or_makes_it_schedulable(document: Document) -> None:
    snapshot = load(document).snapshot
    for workload in snapshot.workloads:
        result = smallest_change(snapshot, workload.name)
        assert result.runs <= MAX_RUNS
        assert (result.outcome is not Outcome.NOT_NEEDED) is is_pending(snapshot, workload.name)
        assert "None" not in change_sentence(result, workload.project)
        if result.change is not None:
            changed = with_change(document, workload.name, result.change)
            if result.outcome is Outcome.SCHEDULABLE:
                assert not starts(lone_document(document, workload.name), workload.name)
                # Replicas that fit one by one may not fit together.
                rejections = decide(load(lone_document(changed, workload.name)).snapshot).rejections
                reasons = {blocker.reason for rejection in rejections for blocker in rejection.blockers}
                assert not reasons & CANNOT_START_REASONS, (workload.name, result.change)
            else:
                assert starts(changed, workload.name), (workload.name, result.change)


@on_random_clusters(1)
@given(document=clusters())
def test_suggestion_search_finds_a_single_change_if_one_is_sufficient(document: Document) -> None:
    snapshot = load(document).snapshot
    for workload in snapshot.workloads:
        if smallest_change(snapshot, workload.name).outcome is Outcome.NO_CHANGE:
            for change in single_changes(document, workload.name):
                changed = with_change(document, workload.name, change)
                assert not starts(changed, workload.name), (workload.name, change)


def single_changes(document: Document, name: str) -> Iterator[Change]:
    """Yield every kind of change, regardless of why the workload is pending."""
    workload = next(workload for workload in document["workloads"] if workload["name"] == name)
    yield Change(ChangeKind.PREEMPTIBLE)
    for other in document["workloads"]:
        if other is not workload and other.get("pods"):
            yield Change(ChangeKind.WORKLOAD_ENDED, other["name"])
    for level in LEVELS:
        yield Change(ChangeKind.TOPOLOGY_DROPPED, resource=level)
    for role in leaf_roles(workload):
        yield from _role_changes(role)
    for node in document["nodes"]:
        if node["state"] in ("cordoned", "draining"):
            yield Change(ChangeKind.NODE_OPENED, node["name"])
    project = next(queue for queue in document["projects"] if queue["name"] == workload["project"])
    for pool in (pool["name"] for pool in document["pools"]):
        yield Change(ChangeKind.POOL_ALLOWED, pool)
        yield from _pool_changes(pool)
        for queue in (project["name"], project["department"]):
            for gpus in GPUS:
                for kind in (ChangeKind.QUOTA_RAISED, ChangeKind.LIMIT_RAISED):
                    yield Change(kind, queue, "gpu", after=gpus * 1000, pool=pool)


def _role_changes(role: Document) -> Iterator[Change]:
    yield Change(ChangeKind.TAINT_TOLERATED, role["name"], "special")
    yield Change(ChangeKind.SPREAD_RAISED, role["name"], after=99)
    for key in role.get("node_selector", ()):
        yield Change(ChangeKind.LABEL_DROPPED, role["name"], key)
    if "gpu_models" in role:
        yield Change(ChangeKind.GPU_MODEL_ALLOWED, role["name"], after="B")
    for replicas in range(1, role["min"]):
        yield Change(ChangeKind.REQUEST_LOWERED, role["name"], "replicas", after=replicas)
    if role.get("gpu", 0) > 1:
        yield Change(ChangeKind.REQUEST_LOWERED, role["name"], "devices", after=1)


def _pool_changes(pool: str) -> Iterator[Change]:
    yield Change(ChangeKind.CONSOLIDATION_ENABLED, pool=pool)
    yield Change(ChangeKind.MAX_MOVES_RAISED, after=32, pool=pool)
    yield Change(ChangeKind.MINIMUM_RUNTIME_OVER, before=200, pool=pool)
    for count in (1, 2, 4):
        yield Change(ChangeKind.NODES_ADDED, after=count, pool=pool)
