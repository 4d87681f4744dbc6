"""Steps of decisions, with links to the objects that they name."""

from collections.abc import Iterable
from dataclasses import dataclass

from pools.selectors import nodes
from projects.access import visible_nodes
from projects.actor import Actor
from scheduler.reports.decisions import Decision, DecisionStep


@dataclass(frozen=True, slots=True)
class StepRow:
    """Step of a decision. `eviction_id` is the eviction that stopped the pods."""

    step: DecisionStep
    eviction_id: int | None
    has_node_page: bool


def step_rows(actor: Actor, decisions: Iterable[Decision]) -> list[tuple[Decision, list[StepRow], bool]]:
    """Return each decision with its steps, and whether the steps name all of the decision's workloads."""
    decisions = list(decisions)
    names = {step.node for decision in decisions for step in decision.steps}
    existing = nodes().filter(name__in=names, pk__in=visible_nodes(actor))
    linked = set(existing.values_list("name", flat=True))
    return [
        (decision, list(_build_step_rows(decision, linked)), _mentions_all_workloads(decision))
        for decision in decisions
    ]


def _mentions_all_workloads(decision: Decision) -> bool:
    workloads = (decision.workload, *(victim.workload for victim in decision.victims))
    return all(workload.name for workload in workloads)


def _build_step_rows(decision: Decision, linked: set[str]) -> Iterable[StepRow]:
    evictions = {victim.workload: victim.eviction_id for victim in decision.victims}
    for step in decision.steps:
        eviction_id = evictions.get(step.workload) if step.action == "stop" else None
        yield StepRow(step, eviction_id, step.node in linked)
