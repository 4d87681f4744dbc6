"""Preview quota edits with the real scheduler, without storing anything.

The preview compares two plans for the next cycle: one with the current quotas, one with the edited quotas.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.utils import timezone

from berth.core.amounts import MILLI
from pools.models import NodePool
from projects.acting import Acting
from projects.models import Department, Project
from projects.services.quotas import values_of
from projects.services.quotas.drafts import Draft, Drafted, compare, tag_of
from scheduler.engine.model import Queue, Snapshot
from scheduler.engine.model import Usage as Decayed
from scheduler.engine.plan import Bundle, Kind, Place, Plan, QueueReport, Refusal
from scheduler.loop.decide import LayoutCache, decide_pools
from scheduler.loop.observe.queues import Owner, entitlement
from scheduler.loop.observe.view import ClusterView, observe
from scheduler.reports.evictions.records import predicted_evictions
from scheduler.reports.evictions.rendering import render
from scheduler.reports.explanations.pool_readiness import with_pool_readiness
from scheduler.reports.explanations.workload import in_api_units
from scheduler.reports.visibility import Reader, own_departments, reader, redacted
from scheduler.reports.what_if.dry_run import shown_eviction
from scheduler.reports.what_if.quota_warnings import warnings
from scheduler.reports.what_if.what_if_cache import SPECS, WhatIfCache, shared_cache

Document = dict[str, Any]


@dataclass(slots=True)
class Hidden:
    """Counts of the changes to workloads and queues that the reader may not see."""

    shares: int = 0
    starts: int = 0
    no_longer_starting: int = 0
    evictions: int = 0
    evicted_gpus: float = 0
    reasons: int = 0


@dataclass(slots=True)
class Impact:
    """Effects of quota edits. `tag` identifies the compared versions; send it as If-Match to apply them."""

    tag: str
    quotas: list[Document]
    shares: list[Document] = field(default_factory=list)
    starts: list[Document] = field(default_factory=list)
    no_longer_starting: list[Document] = field(default_factory=list)
    evictions: list[Document] = field(default_factory=list)
    reasons: list[Document] = field(default_factory=list)
    warnings: list[Document] = field(default_factory=list)
    hidden: Hidden = field(default_factory=Hidden)

    @property
    def changes_nothing(self) -> bool:
        return not any(quota["before"] != quota["after"] for quota in self.quotas)

    @property
    def removed(self) -> list[Document]:
        return [quota for quota in self.quotas if quota["after"] is None and quota["before"] is not None]


def preview(*, acting: Acting, draft: Draft, now: datetime | None = None) -> Impact:
    """Return the effects of a draft that `acting` may apply. Raises Invalid if its values are not allowed."""
    drafted = compare(draft)
    with shared_cache() as cache:
        return _build_impact(acting, drafted, now or timezone.now(), cache)


def oddities(owner: Department | Project, pool: NodePool, now: datetime | None = None) -> list[Document]:
    """Return the preview warnings for an owner's current quota."""
    with shared_cache() as cache:
        seen = observe(now or timezone.now(), SPECS, cache.observations)
    try:
        queue = _queue_name(owner, seen)
    except KeyError:  # the owner was removed in the meantime
        return []
    return _warning_documents(seen.snapshot, [(queue, pool.name)])


def _warning_documents(snapshot: Snapshot, touched: Iterable[tuple[str, str]]) -> list[Document]:
    return [
        {"code": w.code, "pool": w.pool, "queue": w.queue, "message": w.message}
        for w in warnings(snapshot, touched)
    ]


def _build_impact(acting: Acting, drafted: Sequence[Drafted], now: datetime, cache: WhatIfCache) -> Impact:
    seen = observe(now, SPECS, cache.observations)
    edited = with_quotas(seen, drafted)
    impact = Impact(tag_of(drafted), [_quota(each) for each in drafted])
    viewer = reader(acting)
    touched = [(_queue_name(each.change.owner, seen), each.change.pool.name) for each in drafted]
    impact.warnings = _warning_documents(edited, touched)
    if not impact.changes_nothing:
        before, after = _plan(seen.snapshot, seen, cache.layouts), _plan(edited, seen)
        _compare(impact, before, after, seen, viewer, own_departments(acting))
    return impact


def _plan(snapshot: Snapshot, seen: ClusterView, carried: LayoutCache | None = None) -> Plan:
    plan = decide_pools(snapshot, carried)
    return replace(plan, refusals=with_pool_readiness(plan.refusals, seen.below_threshold))


def with_quotas(seen: ClusterView, drafted: Iterable[Drafted]) -> Snapshot:
    """Return the snapshot with the edited quotas."""
    queues = {queue.name: queue for queue in seen.snapshot.queues}
    for each in drafted:
        name, pool = _queue_name(each.change.owner, seen), each.change.pool.name
        queues[name] = _edit_entitlement(queues[name], pool, each)
    return replace(seen.snapshot, queues=tuple(queues[queue.name] for queue in seen.snapshot.queues))


def _edit_entitlement(queue: Queue, pool: str, each: Drafted) -> Queue:
    present = queue.entitlements.get(pool)
    usage = present.usage if present is not None else Decayed()
    entitled = entitlement(each.after, each.change.owner.rank, usage)
    return replace(queue, entitlements={**queue.entitlements, pool: entitled})


def _queue_name(owner: Department | Project, seen: ClusterView) -> str:
    names = seen.queues.departments if isinstance(owner, Department) else seen.queues.projects
    return names[owner.pk]


def _quota(each: Drafted) -> Document:
    owner = each.change.owner
    return {
        "kind": "department" if isinstance(owner, Department) else "project",
        "name": owner.name,
        "pool": each.change.pool.name,
        "before": values_of(each.before) if each.before else None,
        "after": values_of(each.after) if each.after else None,
    }


def _compare(
    impact: Impact, before: Plan, after: Plan, seen: ClusterView, viewer: Reader, departments: set[int] | None
) -> None:
    _shares(impact, before, after, seen, viewer, departments)
    starts, started = _starts(after, seen), _starts(before, seen)
    for handle in sorted(starts.keys() - started.keys()):
        _list_or_count(impact, "starts", handle, starts[handle], viewer)
    for handle in sorted(started.keys() - starts.keys()):
        _list_or_count(impact, "no_longer_starting", handle, started[handle], viewer)
    _evictions(impact, before, after, seen, viewer)
    _reasons(impact, before, after, viewer)


def _shares(
    impact: Impact, before: Plan, after: Plan, seen: ClusterView, viewer: Reader, departments: set[int] | None
) -> None:
    was = {(report.queue, report.pool): report for report in before.queues}
    for report in after.queues:
        old = was[report.queue, report.pool]
        if old.share == report.share:
            continue
        owner = seen.queues.owners[report.queue]
        if _sees_queue(owner, viewer, departments):
            impact.shares.append(_share(owner, old, report))
        else:
            impact.hidden.shares += 1


def _sees_queue(owner: Owner, viewer: Reader, departments: set[int] | None) -> bool:
    if owner.project_id is not None:
        return viewer.sees(owner.project_id)
    return departments is None or owner.department_id in departments


def _share(owner: Owner, old: QueueReport, new: QueueReport) -> Document:
    return {
        "kind": "department" if owner.project_id is None else "project",
        "name": owner.name,
        "pool": new.pool,
        "before": in_api_units(old.share),
        "after": in_api_units(new.share),
        "allocated": in_api_units(new.allocated),
    }


def _starts(plan: Plan, seen: ClusterView) -> Mapping[str, Document]:
    """Return the workloads that the plan starts, at once or after their victims have stopped."""
    standing = {workload.name for workload in seen.snapshot.workloads if workload.pods}
    starts: dict[str, Document] = {}
    for bundle in plan.bundles:
        places = _places(bundle)
        if not places or bundle.workload in standing or bundle.kind is Kind.GROW:
            continue
        starts[bundle.workload] = {
            "pool": bundle.pool,
            "gpus": sum(step.milli * len(step.devices) for step in places) / MILLI,
            "at_once": not any(step.reserved for step in places),
        }
    return starts


def _places(bundle: Bundle) -> list[Place]:
    return [step for step in bundle.steps if isinstance(step, Place) and step.workload == bundle.workload]


def _list_or_count(impact: Impact, what: str, handle: str, entry: Document, viewer: Reader) -> None:
    project, _, name = handle.partition("/")
    if viewer.sees_named(project):
        getattr(impact, what).append({"project": project, "workload": name, **entry})
    else:
        setattr(impact.hidden, what, getattr(impact.hidden, what) + 1)


def _evictions(impact: Impact, before: Plan, after: Plan, seen: ClusterView, viewer: Reader) -> None:
    anyway = {(each.workload, each.kind) for bundle in before.bundles for each in bundle.evictions}
    for each in render(viewer, predicted_evictions(after.bundles, seen)):
        row = each.row
        if (f"{row.project_name}/{row.workload_name}", row.kind) in anyway:
            continue
        if each.victim.seen or (each.preemptor is not None and each.preemptor.seen):
            impact.evictions.append(shown_eviction(each))
        else:
            impact.hidden.evictions += 1
            impact.hidden.evicted_gpus += row.gpu_milli / MILLI


def _reasons(impact: Impact, before: Plan, after: Plan, viewer: Reader) -> None:
    was = {refusal.workload: refusal for refusal in before.refusals}
    for refusal in after.refusals:
        old = was.get(refusal.workload)
        if old is not None and _reason(old) != _reason(refusal):
            first = redacted(refusal.blockers[0], refusal.workload)
            entry = {"before": _reason(old), "after": str(first.reason), "message": first.message}
            _list_or_count(impact, "reasons", refusal.workload, entry, viewer)


def _reason(refusal: Refusal) -> str:
    return str(refusal.blockers[0].reason)
