"""Changes to nodes and settings in the pool where the workload is pending."""

from collections.abc import Hashable, Iterator

from scheduler.engine.board.matching import matches
from scheduler.engine.explain.new_nodes import make_node, new_node_shape
from scheduler.engine.model import Node, NodeState, PodState, Workload
from scheduler.engine.smallest_change.change import Change, ChangeKind
from scheduler.engine.smallest_change.pending_case import PendingCase
from scheduler.engine.smallest_change.proposals import (
    MAX_PROPOSALS,
    Proposals,
    ranked_proposals,
    single_proposal,
)

MAX_NODES = 4  # maximum number of distinct closed nodes tried
MAX_MORE_MOVES = 32
MAX_NEW_NODES = 16
CLOSED_STATES = (NodeState.CORDONED, NodeState.DRAINING)


def propose_waiting_for_minimum_runtimes(case: PendingCase) -> Iterator[Proposals]:
    """Propose waiting until running workloads have passed their minimum runtime."""
    workloads = case.snapshot.workloads
    left = sorted({seconds for each in workloads for seconds in _protected_seconds(case, each)})
    stride = len(left) // MAX_PROPOSALS + 1
    yield ranked_proposals(
        Change(ChangeKind.MINIMUM_RUNTIME_OVER, before=seconds, after=0, pool=case.pool.name)
        for seconds in reversed(left[::-stride])
    )


def _protected_seconds(case: PendingCase, workload: Workload) -> Iterator[int]:
    """Yield the remaining seconds of each minimum runtime that protects a running workload."""
    pods = [pod for pod in workload.pods if pod.node in case.node_names]
    started = workload.started
    if started is None:
        started = min((pod.started for pod in pods if pod.state is PodState.RUNNING), default=None)
    if pods and started is not None and workload.preemptible:
        for minimum in case.minimum_runtimes(workload.project):
            if started + minimum > case.snapshot.now:
                yield started + minimum - case.snapshot.now


def propose_uncordoning_nodes(case: PendingCase) -> Iterator[Proposals]:
    """Propose uncordoning a node or cancelling its drain."""
    if not case.capacity_may_help:
        return
    tried: dict[Hashable, Node] = {}
    for node in case.nodes:
        if node.state in CLOSED_STATES and any(matches(role, node) for role in case.roles):
            tried.setdefault(_equivalence_key(case, node), node)
    for node in list(tried.values())[:MAX_NODES]:
        yield single_proposal(Change(ChangeKind.NODE_OPENED, node.name, before=str(node.state)))


def _equivalence_key(case: PendingCase, node: Node) -> Hashable:
    devices, labels = (node.gpus, node.gpu_model, node.gpu_memory_mib), tuple(sorted(node.labels.items()))
    closed = node.taints, tuple(sorted(node.missing_features)), node.only_project
    return devices, node.cpu, node.memory_mib, labels, closed, case.gpu_milli_by_node.get(node.name)


def propose_consolidation_changes(case: PendingCase) -> Iterator[Proposals]:
    settings = case.pool.consolidation
    if not case.capacity_may_help:
        return
    if not settings.enabled:
        yield single_proposal(Change(ChangeKind.CONSOLIDATION_ENABLED, pool=case.pool.name))
    elif settings.max_moves is not None:
        most = settings.max_moves
        yield ranked_proposals(
            Change(ChangeKind.MAX_MOVES_RAISED, before=most, after=after, pool=case.pool.name)
            for after in range(most + 1, most + MAX_MORE_MOVES + 1)
        )


def propose_new_nodes(case: PendingCase) -> Iterator[Proposals]:
    """Propose adding nodes of the pool's shape, up to the pool's maximum."""
    shape = new_node_shape(case.pool, case.nodes)
    if not case.capacity_may_help or shape is None:
        return
    node = make_node("", case.pool.name, shape)
    if any(node.capacity) and any(matches(role, node) for role in case.roles):
        most = case.pool.nodes_max if case.pool.nodes_ever is None else case.pool.nodes_ever
        left = MAX_NEW_NODES if most is None else min(MAX_NEW_NODES, max(0, most - len(case.nodes)))
        yield ranked_proposals(
            Change(ChangeKind.NODES_ADDED, after=count, pool=case.pool.name) for count in range(1, left + 1)
        )
