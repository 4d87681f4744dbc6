"""Find the smallest single change that would start a pending workload now.

The answer is cached until the cluster's state changes.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

from django.utils import timezone

from berth.core.spec import WorkloadSpec
from berth.core.values.amounts import MILLI
from projects.models import Phase, Workload
from projects.services.arrays.waiting import explain_held_task
from projects.services.workloads.pending.unschedulable import REASON as UNSCHEDULABLE
from scheduler.engine.layout.carry_over import is_same_cluster
from scheduler.engine.model import Snapshot
from scheduler.engine.smallest_change.change import Change, ChangeKind, Value
from scheduler.engine.smallest_change.phrases import action_phrase
from scheduler.engine.smallest_change.search import Effects, Outcome, SmallestChange, smallest_change
from scheduler.engine.smallest_change.sentences import change_sentence
from scheduler.loop.decide import without_pools
from scheduler.loop.observe.view import ClusterView, observe
from scheduler.reports.evictions.predicted import rule_in_present_tense
from scheduler.reports.visibility import HIDDEN_WORKLOAD, Viewer, project_from_handle
from scheduler.reports.what_if.dry_run import add_unsaved_workload
from scheduler.reports.what_if.fitting_replicas import explain_replica_limit
from scheduler.reports.what_if.slots import dry_run_slot
from scheduler.reports.what_if.what_if_cache import SPEC_CACHE, shared_cache

log = logging.getLogger(__name__)

# The answer can change merely because time passes, for example when a minimum runtime ends.
MAX_AGE = timedelta(seconds=30)
SENTENCES_BY_PHASE = {Phase.RESERVED: "Capacity is already reserved for the workload."}
NOT_PENDING = "The workload is not pending."
ENDING_KINDS = (ChangeKind.WORKLOAD_ENDED, ChangeKind.DEPENDENCY_ENDED)  # changes whose subject is a workload


@dataclass(frozen=True, slots=True)
class RenderedChange:
    """Smallest change as text and as data, without names that are hidden from the user."""

    outcome: str
    sentence: str
    change: Mapping[str, Any] | None = None
    evicted_workloads: int = 0
    scaled_down_workloads: int = 0
    moved_workloads: int = 0
    affected: tuple[str, ...] = ()  # visible workloads that the sentence may name, as `project/name`
    evicted: tuple[str, ...] = ()  # visible workloads that the change would evict, as `project/name`
    scaled_down: tuple[str, ...] = ()  # visible workloads that the change would scale down
    moved: tuple[str, ...] = ()  # visible workloads that the change would move
    action: str = ""  # what the user has to do, such as "Request 5 replicas instead of 6", or empty
    rule: str = ""  # the rule that allows the evictions; empty if there are several or a victim is hidden
    fit: str = ""  # reason why a smaller number of replicas fits, as a clause, or empty
    # Lower request with which the workload would start without affecting others, as data and as `action`.
    change_without_evictions: Mapping[str, Any] | None = None
    action_without_evictions: str = ""


def find_smallest_change(
    workload: Workload, viewer: Viewer, now: datetime | None = None, *, is_background: bool = False
) -> RenderedChange:
    """Return the smallest change for a workload that the viewer may see.

    With `is_background`, the search leaves dry-run slots to requests that a user waits for. Raises
    RateLimited if too many dry runs of the project are in progress.
    """
    if workload.phase != Phase.PENDING:
        sentence = SENTENCES_BY_PHASE.get(Phase(workload.phase), NOT_PENDING)
        return RenderedChange(Outcome.NOT_NEEDED, sentence)
    if workload.held:
        return RenderedChange(Outcome.NO_CHANGE, explain_held_task(workload).message)
    at = now or timezone.now()
    with shared_cache() as cache:
        view = observe(at, SPEC_CACHE, cache.observations)
    if workload.handle not in view.workloads:
        return RenderedChange(Outcome.NOT_NEEDED, NOT_PENDING)  # the workload has ended
    if _all_pools_below_threshold(view, workload) and workload.reason != UNSCHEDULABLE:
        return RenderedChange(Outcome.NO_CHANGE, str(view.below_threshold[workload.pools[0]]))
    result = _results.get(view, workload.handle)
    if result is None:
        with dry_run_slot(workload.project, is_background=is_background):
            result = _results.put(view, workload.handle, _search_change(view, workload, view.snapshot))
    return _render_change(result, workload, viewer, view.snapshot)


def find_unsaved_workload_change(
    workload: Workload, spec: WorkloadSpec, viewer: Viewer, now: datetime | None = None
) -> RenderedChange:
    """Return the smallest change that would let an unsaved workload start now.

    If the workload could never start as specified, changes that let it start later also count. Raises
    RateLimited if too many dry runs of the project are in progress, and Conflict if another live workload has
    the same name.
    """
    at = now or timezone.now()
    with dry_run_slot(workload.project):
        with shared_cache() as cache:
            view = observe(at, SPEC_CACHE, cache.observations)
        candidate, stored = add_unsaved_workload(view, workload, spec, at)
        snapshot = replace(view.snapshot, workloads=(*stored, candidate))
        result = _search_change(view, workload, snapshot)
    return _render_change(result, workload, viewer, snapshot)


def _all_pools_below_threshold(view: ClusterView, workload: Workload) -> bool:
    return all(pool in view.below_threshold for pool in workload.pools)


def _search_change(view: ClusterView, workload: Workload, snapshot: Snapshot) -> SmallestChange:
    """Search for the smallest change in pools that accept workloads.

    The outcome is SCHEDULABLE if no pool accepts workloads yet, and UNDECIDED if the engine fails.
    """
    has_to_wait = _all_pools_below_threshold(view, workload)
    pools = snapshot if has_to_wait else without_pools(snapshot, view.below_threshold)
    try:
        result = smallest_change(pools, workload.handle)
    except Exception:
        log.exception("the engine failed for a change that would start %s", workload.handle)
        return SmallestChange(Outcome.UNDECIDED)
    if has_to_wait and result.outcome is Outcome.CHANGE:
        return replace(result, outcome=Outcome.SCHEDULABLE, effects=Effects(), without_evictions=None)
    return result


@dataclass(slots=True)
class _ResultCache:
    """Cache of smallest changes, keyed by workload, for the latest observed state of the cluster."""

    snapshot: Snapshot | None = None
    results: dict[str, tuple[datetime, SmallestChange]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def get(self, view: ClusterView, handle: str) -> SmallestChange | None:
        with self.lock:
            if self.snapshot is None or not _is_same_state(self.snapshot, view.snapshot):
                return None
            at, result = self.results.get(handle, (view.at, None))
            return result if view.at - at <= MAX_AGE else None

    def put(self, view: ClusterView, handle: str, result: SmallestChange) -> SmallestChange:
        with self.lock:
            if self.snapshot is None or not _is_same_state(self.snapshot, view.snapshot):
                self.snapshot, self.results = view.snapshot, {}
            self.results[handle] = view.at, result
        return result


_results = _ResultCache()


def _is_same_state(before: Snapshot, now: Snapshot) -> bool:
    """Return whether nothing but the time has changed between the snapshots."""
    return (
        is_same_cluster(before, now)
        and before.workloads == now.workloads
        and before.reservations == now.reservations
    )


def _render_change(
    result: SmallestChange, workload: Workload, viewer: Viewer, snapshot: Snapshot
) -> RenderedChange:
    def is_visible(handle: str) -> bool:
        return viewer.can_see_project_named(project_from_handle(handle))

    def display_name(handle: str) -> str:
        return handle if is_visible(handle) else HIDDEN_WORKLOAD

    change, effects, alternative = result.change, result.effects, result.without_evictions
    awaited = (change.subject,) if change is not None and change.kind in ENDING_KINDS else ()
    has_one_rule = len(effects.rules) == 1 and all(map(is_visible, effects.evicted))
    return RenderedChange(
        outcome=result.outcome,
        sentence=change_sentence(result, workload.project.name, display_name),
        change=None if change is None else _change_as_document(change, display_name),
        evicted_workloads=len(effects.evicted),
        scaled_down_workloads=len(effects.scaled_down),
        moved_workloads=len(effects.moved),
        evicted=tuple(filter(is_visible, effects.evicted)),
        scaled_down=tuple(filter(is_visible, effects.scaled_down)),
        moved=tuple(filter(is_visible, effects.moved)),
        action="" if change is None else action_phrase(change, workload.project.name, display_name),
        rule=rule_in_present_tense(effects.rules[0], "after this change") if has_one_rule else "",
        fit=explain_replica_limit(result, snapshot, workload.handle, is_visible),
        change_without_evictions=None
        if alternative is None
        else _change_as_document(alternative, display_name),
        action_without_evictions=action_phrase(alternative, workload.project.name) if alternative else "",
        affected=tuple(
            filter(is_visible, (*awaited, *effects.evicted, *effects.scaled_down, *effects.moved))
        ),
    )


def _change_as_document(change: Change, display_name: Callable[[str], str]) -> Mapping[str, Any]:
    return {
        "kind": str(change.kind),
        "subject": display_name(change.subject) if change.kind in ENDING_KINDS else change.subject,
        "resource": change.resource,
        "pool": change.pool,
        "before": _to_api_units(change.resource, change.before),
        "after": _to_api_units(change.resource, change.after),
    }


def _to_api_units(resource: str, value: Value) -> int | float | str | None:
    """Convert thousandths of a GPU or CPU to whole units. Other values stay the same."""
    if isinstance(value, int) and resource in ("gpu", "cpu", "limit.cpu"):
        return value // MILLI if value % MILLI == 0 else value / MILLI
    return value
