"""Predict the start of a workload that is only waiting for nodes to boot."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from projects.services.workloads.prediction import Prediction
from scheduler.engine.model import NodeState
from scheduler.engine.plan import Bundle, Kind, Place, Reason, Rejection
from scheduler.loop.observe.view import ClusterView
from scheduler.reports.explanations.boots import expected_boot
from scheduler.reports.explanations.pool_readiness import PoolReadiness
from scheduler.reports.explanations.scale_up import ENDS_WITH_BOOT


@dataclass(frozen=True, slots=True)
class MissingNodes:
    pool: str
    count: int  # number of nodes that are booting or will be added


def missing_nodes(
    bundles: Sequence[Bundle], rejection: Rejection | None, view: ClusterView
) -> MissingNodes | None:
    """Return the nodes that must boot before the workload starts.

    Return None if no node must boot, or if new nodes alone would not suffice. `rejection` is None if nodes
    are reserved for the workload.
    """
    if rejection is None:
        return _reserved_nodes(bundles, view)
    numbers = {blocker.reason: blocker.numbers for blocker in rejection.blockers}
    if Reason.WAITING_FOR_SCALE_UP not in numbers or not numbers.keys() <= ENDS_WITH_BOOT:
        return None
    count = int(numbers[Reason.WAITING_FOR_SCALE_UP].get("nodes") or 0)
    if rejection.pool in view.below_threshold:
        return _nodes_needed_for_threshold(view.below_threshold[rejection.pool], count)
    return MissingNodes(rejection.pool, count) if count else None


def add_boot_forecast(prediction: Prediction, missing: MissingNodes, now: datetime) -> Prediction:
    """Add the number of missing nodes and the expected start to the prediction."""
    start, because = expected_boot(missing.pool, now)
    prediction = replace(prediction, nodes_to_boot=missing.count)
    if prediction.expected_start is not None and (start is None or prediction.expected_start <= start):
        return prediction
    return replace(prediction, expected_start=start, expected_start_reason=because, expected_start_after=[])


def _reserved_nodes(bundles: Sequence[Bundle], view: ClusterView) -> MissingNodes | None:
    """Return the number of booting nodes that would be reserved for the workload.

    Return None if the workload also depends on other conditions.
    """
    if not bundles or any(bundle.kind is not Kind.RESERVE or bundle.evictions for bundle in bundles):
        return None
    states = {node.name: node.state for node in view.snapshot.nodes}
    steps = [step for bundle in bundles for step in bundle.steps]
    booting = {
        step.node for step in steps if isinstance(step, Place) and states.get(step.node) is NodeState.BOOTING
    }
    pool = bundles[0].pool
    if pool not in view.below_threshold:
        return MissingNodes(pool, len(booting)) if booting else None
    return _nodes_needed_for_threshold(view.below_threshold[pool], 1)


def _nodes_needed_for_threshold(readiness: PoolReadiness, count: int) -> MissingNodes | None:
    """Return how many nodes must boot to reach the ready threshold, or `count` if that is more.

    Return None if the pool adds no more nodes.
    """
    if readiness.stop_reason:
        return None
    return MissingNodes(readiness.pool, max(count, readiness.needed - readiness.ready))
