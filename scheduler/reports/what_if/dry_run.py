"""Predict how the scheduler would handle an unsaved workload, without storing anything."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from berth.core.spec import WorkloadSpec
from berth.core.values.amounts import MILLI
from projects.actor import Actor
from projects.models import Phase, Workload
from projects.services.workloads import name_taken_error
from projects.services.workloads.prediction import Prediction, TasksPrediction
from scheduler.engine import model
from scheduler.engine.explain.reasons import is_schedulable
from scheduler.engine.forecast import Forecast, forecast_pending
from scheduler.engine.from_spec import to_timestamp, workload_from_spec
from scheduler.engine.plan import Bundle, Kind, Place, Plan, Rejection
from scheduler.loop.decide import decide_pools
from scheduler.loop.observe.dependencies import find_dependencies
from scheduler.loop.observe.view import ClusterView, observe
from scheduler.loop.observe.workloads import deferred_pool
from scheduler.reports.evictions.records import predicted_evictions
from scheduler.reports.evictions.rendering import RenderedEviction, render
from scheduler.reports.explanations.awaited_ends import awaited_ends, encode_awaited_ends
from scheduler.reports.explanations.pool_readiness import with_pool_readiness
from scheduler.reports.explanations.scale_up import list_scale_up_first
from scheduler.reports.visibility import Viewer, redact_blocker, viewer_for
from scheduler.reports.what_if.boot_forecast import add_boot_forecast, missing_nodes
from scheduler.reports.what_if.position_reason import explain_position
from scheduler.reports.what_if.slots import dry_run_slot
from scheduler.reports.what_if.what_if_cache import SPEC_CACHE, shared_cache


def predict_workloads(
    *,
    actor: Actor,
    workload: Workload,
    spec: WorkloadSpec,
    now: datetime,
    others: Sequence[str] = (),
    edited: Workload | None = None,
    requeued: bool = False,
    compares: bool = False,
) -> TasksPrediction:
    """Predict how the next cycle would handle an unsaved workload.

    `others` contains the names of identical workloads, such as the next tasks of an array. If `edited` is
    set, the unsaved workload replaces the workload `edited`. With `compares`, the outcome of a pending
    `edited` without the edit is also predicted. Raises RateLimited if too many dry runs of the project are in
    progress, and Conflict if another live workload has the same name.
    """
    with dry_run_slot(workload.project), shared_cache() as cache:
        view = observe(now, SPEC_CACHE, cache.observations)
        candidate, stored = add_unsaved_workload(view, workload, spec, now, edited, requeued=requeued)
        prefix = workload.handle.removesuffix(workload.name)
        candidates = [candidate, *(replace(candidate, name=f"{prefix}{name}") for name in others)]
        snapshot = replace(view.snapshot, workloads=(*stored, *candidates))
        plan, forecasts = forecast_pending(snapshot, decide_pools(snapshot, cache.layouts))
        viewer = viewer_for(actor)
        prediction = _predict_first(snapshot, plan, forecasts, workload, candidate, view, viewer)
        tasks = _sum_task_outcomes(prediction, plan, candidates, view, viewer)
        if not compares or edited is None or edited.phase != Phase.PENDING:
            return tasks
        former = next((each for each in view.snapshot.workloads if each.name == edited.handle), None)
        if former is None or former == candidate:
            return replace(tasks, unedited=prediction)
        plan, forecasts = forecast_pending(view.snapshot, decide_pools(view.snapshot, cache.layouts))
        unedited = _predict_first(view.snapshot, plan, forecasts, edited, former, view, viewer)
        return replace(tasks, unedited=unedited)


def _predict_first(
    snapshot: model.Snapshot,
    plan: Plan,
    forecasts: Mapping[str, Forecast],
    workload: Workload,
    candidate: model.Workload,
    view: ClusterView,
    viewer: Viewer,
) -> Prediction:
    """Return the prediction for the workload, given the plan for a snapshot that contains it."""
    bundles = [bundle for bundle in plan.bundles if bundle.workload == workload.handle]
    rejection = next((each for each in plan.rejections if each.workload == workload.handle), None)
    prediction = _build_prediction(bundles, rejection, workload, candidate, view, viewer)
    if prediction.outcome != "would_stay_pending":
        return prediction
    forecast = forecasts.get(workload.handle, Forecast(None, ""))
    start = None if forecast.at is None else datetime.fromtimestamp(forecast.at, UTC)
    ends = awaited_ends(viewer, encode_awaited_ends(forecast.after))
    prediction = replace(
        prediction,
        expected_start=start,
        expected_start_reason=forecast.because,
        expected_start_after=[asdict(each) for each in ends],
    )
    if rejection is not None:
        because = explain_position(rejection, plan.rejections, viewer)
        prediction = replace(prediction, queue_position_reason=because)
    others = [each for each in snapshot.workloads if each.name != workload.handle]
    prediction = replace(prediction, may_change_at=_next_backoff_end(others, candidate, view.at))
    missing = missing_nodes(bundles, rejection, view)
    return prediction if missing is None else add_boot_forecast(prediction, missing, view.at)


def _next_backoff_end(
    stored: Sequence[model.Workload], candidate: model.Workload, now: datetime
) -> datetime | None:
    """Return when the next backoff of a workload in one of the candidate's pools ends, or None if no such
    workload is in backoff.
    """
    ends = [
        each.backoff_until
        for each in stored
        if each.backoff_until is not None
        and each.backoff_until > to_timestamp(now)
        and not each.pods
        and set(each.pools) & set(candidate.pools)
    ]
    return datetime.fromtimestamp(min(ends), UTC) if ends else None


def add_unsaved_workload(
    view: ClusterView,
    workload: Workload,
    spec: WorkloadSpec,
    now: datetime,
    edited: Workload | None = None,
    *,
    requeued: bool = False,
) -> tuple[model.Workload, tuple[model.Workload, ...]]:
    """Return the unsaved workload as an engine object, together with all other workloads except `edited`.

    An edited workload keeps its submission time unless it is `requeued`. Raises Conflict if another live
    workload has the same name.
    """
    if workload.handle in view.workloads and edited is None:
        raise name_taken_error(workload)
    is_pending = edited is not None and edited.phase == Phase.PENDING
    deferred = deferred_pool(workload.pending_since if is_pending else now, spec, now)
    entries = () if edited is not None and edited.run else spec.after
    dependencies = find_dependencies([(workload, entries)], view.workloads, view.queues)
    candidate = replace(
        workload_from_spec(spec),
        name=workload.handle,
        project=view.queues.projects[workload.project_id],
        pools=tuple(pool for pool in workload.pools if pool != deferred) or tuple(workload.pools),
        submitted=to_timestamp(now),
        after=dependencies.unmet[workload.pk],
    )
    stored = {each.name: each for each in (*dependencies.placeholders, *view.snapshot.workloads)}
    former = stored.pop(workload.handle, None)
    if edited is not None:
        candidate = replace(
            candidate,
            submitted=to_timestamp(now if requeued else edited.requeued_at or edited.submitted_at),
            preemptions=edited.preemptions,
            restarts=edited.restarts,
            backoff_until=former.backoff_until if former else None,
        )
    return candidate, tuple(stored.values())


def _sum_task_outcomes(
    first: Prediction,
    plan: Plan,
    candidates: Sequence[model.Workload],
    view: ClusterView,
    viewer: Viewer,
) -> TasksPrediction:
    names = [candidate.name for candidate in candidates]
    rejections = {each.workload: each for each in plan.rejections}
    bundles = {name: list[Bundle]() for name in names}
    for bundle in plan.bundles:
        if bundle.workload in bundles:
            bundles[bundle.workload].append(bundle)
    outcomes = {name: _predict_outcome(bundles[name], rejections.get(name)) for name in names}
    counts = Counter(outcomes.values())
    own = [bundle for each in bundles.values() for bundle in each]
    queued = next((name for name in names if outcomes[name] not in ("would_start", "would_evict")), None)
    rejected = [rejections[queued]] if queued is not None and queued in rejections else []
    explained = list_scale_up_first(with_pool_readiness(rejected, view.below_threshold))
    blockers = [each for rejection in explained for each in _blocker_documents(rejection, candidates[0])]
    evictions = render(viewer, predicted_evictions(own, view, candidates))
    return TasksPrediction(
        first, len(names), counts["would_start"], counts["would_evict"],
        [eviction_document(eviction) for eviction in evictions], blockers,
    )  # fmt: skip


def _build_prediction(
    bundles: list[Bundle],
    rejected: Rejection | None,
    workload: Workload,
    candidate: model.Workload,
    view: ClusterView,
    viewer: Viewer,
) -> Prediction:
    rejections = [] if rejected is None else [rejected]
    explained = list_scale_up_first(with_pool_readiness(rejections, view.below_threshold))
    rejection = next(iter(explained), None)
    evictions = render(viewer, predicted_evictions(bundles, view, [candidate]))
    return Prediction(
        outcome=_predict_outcome(bundles, rejection),
        workload={
            "name": workload.name,
            "project": workload.project.name,
            "pools": list(workload.pools),
            "priority": workload.priority,
            "preemptible": workload.preemptible,
            "gpus": workload.gpu_milli_min / MILLI,
        },
        decisions=[_decision_document(bundle, workload.handle) for bundle in bundles],
        evictions=[eviction_document(eviction) for eviction in evictions],
        blockers=_blocker_documents(rejection, candidate) if rejection else [],
        queue_position=rejection.position if rejection else None,
    )


def _blocker_documents(rejection: Rejection, candidate: model.Workload) -> list[dict[str, Any]]:
    numbers = {"pool": rejection.pool} if len(candidate.pools) > 1 else {}
    named = [replace(blocker, numbers={**blocker.numbers, **numbers}) for blocker in rejection.blockers]
    return [asdict(redact_blocker(blocker, rejection.workload)) for blocker in named]


def _predict_outcome(bundles: list[Bundle], rejection: Rejection | None) -> str:
    if any(bundle.evictions for bundle in bundles):
        return "would_evict"
    if any(bundle.kind is Kind.START for bundle in bundles):
        return "would_start"
    return (
        "would_stay_pending" if rejection is None or is_schedulable(rejection.blockers) else "unschedulable"
    )


def _decision_document(bundle: Bundle, handle: str) -> dict[str, Any]:
    places = [step for step in bundle.steps if isinstance(step, Place) and step.workload == handle]
    return {
        "kind": str(bundle.kind),
        "pool": bundle.pool,
        "message": bundle.message,
        "pods": [
            {"role": step.role, "index": step.index, "node": step.node, "devices": list(step.devices)}
            for step in places
        ],
    }


def eviction_document(eviction: RenderedEviction) -> dict[str, Any]:
    """Return a predicted eviction as a JSON object, worded and redacted as in the audit log."""
    row = eviction.row
    return {
        "kind": row.kind,
        "pool": row.pool_name,
        "project": eviction.victim.project,
        "workload": eviction.victim.name,
        "victim": eviction.victim.display_name,
        "preemptor": eviction.preemptor.display_name if eviction.preemptor else "",
        "rule": eviction.rule,
        "pods": len(row.pods),
        "entire_workload": row.entire_workload,
        "gpus": row.gpu_milli / MILLI,
        "lost_gpu_seconds": row.lost_gpu_seconds,
        "summary": eviction.summary,
        "explanation": eviction.explanation,
    }
