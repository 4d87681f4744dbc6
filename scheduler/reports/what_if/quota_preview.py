"""Preview quota edits with the real scheduler, without storing anything.

The preview compares two plans for the next cycle: one with the current quotas and one with the
edited quotas.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.utils import timezone

from berth.core.amounts import MILLI
from pools.models import NodePool, QuotaGroup
from projects.actor import Actor
from projects.models import Department
from projects.models.tenants import PoolOrGroup, Tenant, owner_kind
from projects.services.quotas import quota_values
from projects.services.quotas.drafts import Draft, DraftedChange, compare, version_tag_before_draft
from scheduler.engine.model import Queue, Snapshot
from scheduler.engine.model import Usage as Decayed
from scheduler.engine.plan import Bundle, Kind, Place, Plan, QueueReport, Refusal
from scheduler.loop.decide import LayoutCache, decide_pools
from scheduler.loop.observe.queues import Owner, build_entitlement
from scheduler.loop.observe.view import ClusterView, observe
from scheduler.reports.evictions.records import predicted_evictions
from scheduler.reports.evictions.rendering import render
from scheduler.reports.explanations.pool_readiness import with_pool_readiness
from scheduler.reports.explanations.workload import to_api_units
from scheduler.reports.visibility import Viewer, redact_blocker, viewer_for, visible_department_ids
from scheduler.reports.what_if.dry_run import eviction_document
from scheduler.reports.what_if.quota_warnings import find_warnings
from scheduler.reports.what_if.what_if_cache import SPEC_CACHE, WhatIfCache, shared_cache

Document = dict[str, Any]


@dataclass(slots=True)
class HiddenCounts:
    """Numbers of changes to workloads and queues that the user may not see."""

    shares: int = 0
    starts: int = 0
    no_longer_starting: int = 0
    evictions: int = 0
    evicted_gpus: float = 0
    reasons: int = 0


@dataclass(slots=True)
class Impact:
    """Effects of quota edits.

    `tag` identifies the compared quota versions. Clients send it as If-Match to apply the edits.
    """

    tag: str
    quotas: list[Document]
    shares: list[Document] = field(default_factory=list)
    starts: list[Document] = field(default_factory=list)
    no_longer_starting: list[Document] = field(default_factory=list)
    evictions: list[Document] = field(default_factory=list)
    reasons: list[Document] = field(default_factory=list)
    warnings: list[Document] = field(default_factory=list)
    hidden: HiddenCounts = field(default_factory=HiddenCounts)

    @property
    def changes_nothing(self) -> bool:
        return not any(quota["before"] != quota["after"] for quota in self.quotas)

    @property
    def removed(self) -> list[Document]:
        return [quota for quota in self.quotas if quota["after"] is None and quota["before"] is not None]


def preview(*, actor: Actor, draft: Draft, now: datetime | None = None) -> Impact:
    """Return the effects of a draft that `actor` may apply.

    Raises Invalid if the draft has values that are not allowed.
    """
    drafted = compare(draft)
    with shared_cache() as cache:
        return _build_impact(actor, drafted, now or timezone.now(), cache)


def current_warnings(owner: Tenant, pool: PoolOrGroup, now: datetime | None = None) -> list[Document]:
    """Return the warnings that apply to an owner's current quota."""
    with shared_cache() as cache:
        view = observe(now or timezone.now(), SPEC_CACHE, cache.observations)
    try:
        queue = _queue_name(owner, view)
    except KeyError:  # the owner has been deleted in the meantime
        return []
    return _warning_documents(view.snapshot, [(queue, name) for name in _pools(pool, view)])


def _warning_documents(snapshot: Snapshot, edited_queues: Iterable[tuple[str, str]]) -> list[Document]:
    return [
        {"code": w.code, "pool": w.pool, "queue": w.queue, "message": w.message}
        for w in find_warnings(snapshot, edited_queues)
    ]


def _build_impact(
    actor: Actor, drafted: Sequence[DraftedChange], now: datetime, cache: WhatIfCache
) -> Impact:
    view = observe(now, SPEC_CACHE, cache.observations)
    edited = apply_quotas(view, drafted)
    impact = Impact(version_tag_before_draft(drafted), [_quota_document(edit) for edit in drafted])
    viewer = viewer_for(actor)
    edited_queues = [
        (_queue_name(edit.change.owner, view), pool)
        for edit in drafted
        for pool in _pools(edit.change.pool, view)
    ]
    impact.warnings = _warning_documents(edited, edited_queues)
    if not impact.changes_nothing:
        before, after = _decide(view.snapshot, view, cache.layouts), _decide(edited, view)
        _compare_plans(impact, before, after, view, viewer, visible_department_ids(actor))
    return impact


def _decide(snapshot: Snapshot, view: ClusterView, layouts: LayoutCache | None = None) -> Plan:
    plan = decide_pools(snapshot, layouts)
    return replace(plan, refusals=with_pool_readiness(plan.refusals, view.below_threshold))


def apply_quotas(view: ClusterView, drafted: Iterable[DraftedChange]) -> Snapshot:
    """Return the snapshot with the edited quotas."""
    queues = {queue.name: queue for queue in view.snapshot.queues}
    # Removed quotas come first, because another quota of the same owner may replace them.
    for edit in sorted(drafted, key=lambda edit: edit.after is not None):
        name = _queue_name(edit.change.owner, view)
        for pool in _pools(edit.change.pool, view):
            queues[name] = _edit_entitlement(queues[name], pool, edit)
    return replace(view.snapshot, queues=tuple(queues[queue.name] for queue in view.snapshot.queues))


def _edit_entitlement(queue: Queue, pool: str, drafted: DraftedChange) -> Queue:
    present = queue.entitlements.get(pool)
    usage = present.usage if present is not None else Decayed()
    place = drafted.change.pool
    group = place.name if isinstance(place, QuotaGroup) else ""
    entitled = build_entitlement(drafted.after, drafted.change.owner.rank, usage, group)
    if present is not None:
        entitled = replace(entitled, cluster_quotas=present.cluster_quotas)
    return replace(queue, entitlements={**queue.entitlements, pool: entitled})


def _pools(place: PoolOrGroup, view: ClusterView) -> list[str]:
    """Return the names of the pools to which a quota applies."""
    if isinstance(place, NodePool):
        return [place.name]
    return [name for name, pool in view.pools.items() if pool.quota_group_id == place.pk]


def _queue_name(owner: Tenant, view: ClusterView) -> str:
    names = view.queues.departments if isinstance(owner, Department) else view.queues.projects
    return names[owner.pk]


def _quota_document(drafted: DraftedChange) -> Document:
    owner = drafted.change.owner
    return {
        "kind": owner_kind(owner),
        "name": owner.name,
        "pool": drafted.change.pool.name,
        "group": isinstance(drafted.change.pool, QuotaGroup),
        "before": quota_values(drafted.before) if drafted.before else None,
        "after": quota_values(drafted.after) if drafted.after else None,
    }


def _compare_plans(
    impact: Impact, before: Plan, after: Plan, view: ClusterView, viewer: Viewer, departments: set[int] | None
) -> None:
    _compare_shares(impact, before, after, view, viewer, departments)
    starts, started = _planned_starts(after, view), _planned_starts(before, view)
    for handle in sorted(starts.keys() - started.keys()):
        _list_or_count(impact, "starts", handle, starts[handle], viewer)
    for handle in sorted(started.keys() - starts.keys()):
        _list_or_count(impact, "no_longer_starting", handle, started[handle], viewer)
    _compare_evictions(impact, before, after, view, viewer)
    _compare_reasons(impact, before, after, viewer)


def _compare_shares(
    impact: Impact, before: Plan, after: Plan, view: ClusterView, viewer: Viewer, departments: set[int] | None
) -> None:
    before_by_key = {(report.queue, report.pool): report for report in before.queues}
    for report in after.queues:
        old = before_by_key[report.queue, report.pool]
        if old.share == report.share:
            continue
        owner = view.queues.owners[report.queue]
        if _sees_queue(owner, viewer, departments):
            impact.shares.append(_share_document(owner, old, report))
        else:
            impact.hidden.shares += 1


def _sees_queue(owner: Owner, viewer: Viewer, departments: set[int] | None) -> bool:
    if owner.project_id is not None:
        return viewer.can_see(owner.project_id)
    return departments is None or owner.department_id in departments


def _share_document(owner: Owner, old: QueueReport, new: QueueReport) -> Document:
    return {
        "kind": "department" if owner.project_id is None else "project",
        "name": owner.name,
        "pool": new.pool,
        "before": to_api_units(old.share),
        "after": to_api_units(new.share),
        "allocated": to_api_units(new.allocated),
    }


def _planned_starts(plan: Plan, view: ClusterView) -> Mapping[str, Document]:
    """Return the workloads that the plan starts, immediately or once their victims have stopped."""
    running = {workload.name for workload in view.snapshot.workloads if workload.pods}
    starts: dict[str, Document] = {}
    for bundle in plan.bundles:
        places = _places(bundle)
        if not places or bundle.workload in running or bundle.kind is Kind.GROW:
            continue
        starts[bundle.workload] = {
            "pool": bundle.pool,
            "gpus": sum(step.milli * len(step.devices) for step in places) / MILLI,
            "immediately": not any(step.reserved for step in places),
        }
    return starts


def _places(bundle: Bundle) -> list[Place]:
    return [step for step in bundle.steps if isinstance(step, Place) and step.workload == bundle.workload]


def _list_or_count(impact: Impact, what: str, handle: str, entry: Document, viewer: Viewer) -> None:
    project, _, name = handle.partition("/")
    if viewer.can_see_named(project):
        getattr(impact, what).append({"project": project, "workload": name, **entry})
    else:
        setattr(impact.hidden, what, getattr(impact.hidden, what) + 1)


def _compare_evictions(impact: Impact, before: Plan, after: Plan, view: ClusterView, viewer: Viewer) -> None:
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


def _compare_reasons(impact: Impact, before: Plan, after: Plan, viewer: Viewer) -> None:
    before_by_key = {refusal.workload: refusal for refusal in before.refusals}
    for refusal in after.refusals:
        old = before_by_key.get(refusal.workload)
        if old is not None and _main_reason(old) != _main_reason(refusal):
            first = redact_blocker(refusal.blockers[0], refusal.workload)
            entry = {"before": _main_reason(old), "after": str(first.reason), "message": first.message}
            _list_or_count(impact, "reasons", refusal.workload, entry, viewer)


def _main_reason(refusal: Refusal) -> str:
    return str(refusal.blockers[0].reason)
