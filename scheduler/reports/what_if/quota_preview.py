"""Preview the effects of quota edits with the real engine, without storing anything."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.utils import timezone

from pools.models import NodePool, QuotaGroup
from projects.actor import Actor
from projects.models import Department
from projects.models.tenants import PoolOrGroup, Tenant, owner_kind
from projects.services.quotas import quota_values
from projects.services.quotas.drafts import (
    Draft,
    DraftedChange,
    compare_with_stored_quotas,
    version_tag_before_draft,
)
from scheduler.engine.model import Queue, Snapshot
from scheduler.engine.model import Usage as Decayed
from scheduler.loop.observe.queues import build_pool_quota
from scheduler.loop.observe.view import ClusterView, observe
from scheduler.reports.what_if.plan_comparison import PlanChanges, add_plan_differences
from scheduler.reports.what_if.quota_warnings import find_warnings
from scheduler.reports.what_if.what_if_cache import SPEC_CACHE, WhatIfCache, shared_cache

Document = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class QuotaImpact(PlanChanges):
    """Effects of quota edits.

    `tag` is the ETag of the quota versions, which clients send in `If-Match` to apply the edits.
    """

    tag: str
    quotas: list[Document]
    warnings: list[Document] = field(default_factory=list)

    @property
    def changes_nothing(self) -> bool:
        return not any(quota["before"] != quota["after"] for quota in self.quotas)

    @property
    def removed(self) -> list[Document]:
        return [quota for quota in self.quotas if quota["after"] is None and quota["before"] is not None]


def preview_draft(*, actor: Actor, draft: Draft, now: datetime | None = None) -> QuotaImpact:
    """Return the effects of a quota draft that `actor` may apply.

    Raises Invalid if the draft has values that are not allowed.
    """
    drafted = compare_with_stored_quotas(draft)
    with shared_cache() as cache:
        return _build_impact(actor, drafted, now or timezone.now(), cache)


def current_quota_warnings(owner: Tenant, pool: PoolOrGroup, now: datetime | None = None) -> list[Document]:
    """Return the warnings about an owner's current quota."""
    with shared_cache() as cache:
        view = observe(now or timezone.now(), SPEC_CACHE, cache.observations)
    try:
        queue = _queue_name(owner, view)
    except KeyError:  # the owner has been deleted
        return []
    return _warning_documents(view.snapshot, [(queue, name) for name in _affected_pools(pool, view)])


def _warning_documents(snapshot: Snapshot, edited_queues: Iterable[tuple[str, str]]) -> list[Document]:
    return [
        {"code": w.code, "pool": w.pool, "queue": w.queue, "message": w.message}
        for w in find_warnings(snapshot, edited_queues)
    ]


def _build_impact(
    actor: Actor, drafted: Sequence[DraftedChange], now: datetime, cache: WhatIfCache
) -> QuotaImpact:
    view = observe(now, SPEC_CACHE, cache.observations)
    edited = with_edited_quotas(view, drafted)
    quotas = [_quota_document(edit) for edit in drafted]
    impact = QuotaImpact(tag=version_tag_before_draft(drafted), quotas=quotas)
    edited_queues = [
        (_queue_name(edit.change.owner, view), pool)
        for edit in drafted
        for pool in _affected_pools(edit.change.pool, view)
    ]
    impact.warnings = _warning_documents(edited, edited_queues)
    if not impact.changes_nothing:
        add_plan_differences(impact, actor, view, edited, cache)
    return impact


def with_edited_quotas(view: ClusterView, drafted: Iterable[DraftedChange]) -> Snapshot:
    queues = {queue.name: queue for queue in view.snapshot.queues}
    # Removed quotas come first, because another quota of the same owner may replace them.
    for edit in sorted(drafted, key=lambda edit: edit.after is not None):
        name = _queue_name(edit.change.owner, view)
        for pool in _affected_pools(edit.change.pool, view):
            queues[name] = _edit_pool_quota(queues[name], pool, edit)
    return replace(view.snapshot, queues=tuple(queues[queue.name] for queue in view.snapshot.queues))


def _edit_pool_quota(queue: Queue, pool: str, drafted: DraftedChange) -> Queue:
    present = queue.pool_quotas.get(pool)
    usage = present.usage if present is not None else Decayed()
    place = drafted.change.pool
    group = place.name if isinstance(place, QuotaGroup) else ""
    pool_quota = build_pool_quota(drafted.after, drafted.change.owner.rank, usage, group)
    if present is not None:
        pool_quota = replace(pool_quota, cluster_quotas=present.cluster_quotas)
    return replace(queue, pool_quotas={**queue.pool_quotas, pool: pool_quota})


def _affected_pools(place: PoolOrGroup, view: ClusterView) -> list[str]:
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
