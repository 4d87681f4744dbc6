"""Compare the next cycle's plans before and after a change to quotas."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from berth.core.values.amounts import MILLI
from projects.actor import Actor
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Bundle, Kind, Place, Plan, QueueReport, Rejection
from scheduler.loop.decide import LayoutCache, decide_pools
from scheduler.loop.observe.queues import QueueOwner
from scheduler.loop.observe.view import ClusterView
from scheduler.reports.evictions.records import predicted_evictions
from scheduler.reports.evictions.rendering import render
from scheduler.reports.explanations.pool_readiness import with_pool_readiness
from scheduler.reports.explanations.workload import to_api_units
from scheduler.reports.visibility import Viewer, redact_blocker, viewer_for, visible_department_ids
from scheduler.reports.what_if.dry_run import eviction_document
from scheduler.reports.what_if.what_if_cache import WhatIfCache

Document = dict[str, Any]


@dataclass(slots=True)
class HiddenCounts:
    """Numbers of changes to workloads and queues that are hidden from the user, by kind."""

    shares: int = 0
    starts: int = 0
    no_longer_starting: int = 0
    evictions: int = 0
    evicted_gpus: float = 0
    reasons: int = 0


@dataclass(slots=True, kw_only=True)
class PlanChanges:
    """Effects of a change on the next cycle's plan."""

    shares: list[Document] = field(default_factory=list)
    starts: list[Document] = field(default_factory=list)
    no_longer_starting: list[Document] = field(default_factory=list)
    evictions: list[Document] = field(default_factory=list)
    reasons: list[Document] = field(default_factory=list)
    hidden: HiddenCounts = field(default_factory=HiddenCounts)


def add_plan_differences(
    impact: PlanChanges, actor: Actor, view: ClusterView, edited: Snapshot, cache: WhatIfCache
) -> None:
    """Run the engine on the current and the edited snapshot, and add to `impact` the differences that the
    actor can see.
    """
    viewer, departments = viewer_for(actor), visible_department_ids(actor)
    before, after = (
        _decide_with_readiness(view.snapshot, view, cache.layouts),
        _decide_with_readiness(edited, view),
    )
    _compare_shares(impact, before, after, view, viewer, departments)
    starts, started = _planned_starts(after, view), _planned_starts(before, view)
    for handle in sorted(starts.keys() - started.keys()):
        _list_or_count_hidden(impact, "starts", handle, starts[handle], viewer)
    for handle in sorted(started.keys() - starts.keys()):
        _list_or_count_hidden(impact, "no_longer_starting", handle, started[handle], viewer)
    _compare_evictions(impact, before, after, view, viewer)
    _compare_reasons(impact, before, after, viewer)


def _decide_with_readiness(snapshot: Snapshot, view: ClusterView, layouts: LayoutCache | None = None) -> Plan:
    plan = decide_pools(snapshot, layouts)
    return replace(plan, rejections=with_pool_readiness(plan.rejections, view.below_threshold))


def _compare_shares(
    impact: PlanChanges,
    before: Plan,
    after: Plan,
    view: ClusterView,
    viewer: Viewer,
    departments: set[int] | None,
) -> None:
    before_by_key = {(report.queue, report.pool): report for report in before.queues}
    for report in after.queues:
        old = before_by_key[report.queue, report.pool]
        if old.share == report.share:
            continue
        owner = view.queues.owners[report.queue]
        if _can_see_queue(owner, viewer, departments):
            impact.shares.append(_share_document(owner, old, report))
        else:
            impact.hidden.shares += 1


def _can_see_queue(owner: QueueOwner, viewer: Viewer, departments: set[int] | None) -> bool:
    if owner.project_id is not None:
        return viewer.can_see(owner.project_id)
    return departments is None or owner.department_id in departments


def _share_document(owner: QueueOwner, old: QueueReport, new: QueueReport) -> Document:
    return {
        "kind": "department" if owner.project_id is None else "project",
        "name": owner.name,
        "pool": new.pool,
        "before": to_api_units(old.share),
        "after": to_api_units(new.share),
        "allocated": to_api_units(new.allocated),
    }


def _planned_starts(plan: Plan, view: ClusterView) -> Mapping[str, Document]:
    running = {workload.name for workload in view.snapshot.workloads if workload.pods}
    starts: dict[str, Document] = {}
    for bundle in plan.bundles:
        places = _own_placements(bundle)
        if not places or bundle.workload in running or bundle.kind is Kind.GROW:
            continue
        starts[bundle.workload] = {
            "pool": bundle.pool,
            "gpus": sum(step.milli * len(step.devices) for step in places) / MILLI,
            "immediately": not any(step.reserved for step in places),
        }
    return starts


def _own_placements(bundle: Bundle) -> list[Place]:
    return [step for step in bundle.steps if isinstance(step, Place) and step.workload == bundle.workload]


def _list_or_count_hidden(
    impact: PlanChanges, what: str, handle: str, entry: Document, viewer: Viewer
) -> None:
    project, _, name = handle.partition("/")
    if viewer.can_see_project_named(project):
        getattr(impact, what).append({"project": project, "workload": name, **entry})
    else:
        setattr(impact.hidden, what, getattr(impact.hidden, what) + 1)


def _compare_evictions(
    impact: PlanChanges, before: Plan, after: Plan, view: ClusterView, viewer: Viewer
) -> None:
    already_planned = {
        (eviction.workload, eviction.kind) for bundle in before.bundles for eviction in bundle.evictions
    }
    for eviction in render(viewer, predicted_evictions(after.bundles, view)):
        row = eviction.row
        if (f"{row.project_name}/{row.workload_name}", row.kind) in already_planned:
            continue
        if eviction.victim.is_visible or (eviction.preemptor is not None and eviction.preemptor.is_visible):
            impact.evictions.append(eviction_document(eviction))
        else:
            impact.hidden.evictions += 1
            impact.hidden.evicted_gpus += row.gpu_milli / MILLI


def _compare_reasons(impact: PlanChanges, before: Plan, after: Plan, viewer: Viewer) -> None:
    before_by_key = {rejection.workload: rejection for rejection in before.rejections}
    for rejection in after.rejections:
        old = before_by_key.get(rejection.workload)
        if old is not None and _main_reason(old) != _main_reason(rejection):
            first = redact_blocker(rejection.blockers[0], rejection.workload)
            entry = {"before": _main_reason(old), "after": str(first.reason), "message": first.message}
            _list_or_count_hidden(impact, "reasons", rejection.workload, entry, viewer)


def _main_reason(rejection: Rejection) -> str:
    return str(rejection.blockers[0].reason)
