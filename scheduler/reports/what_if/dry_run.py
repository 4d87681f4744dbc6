"""Predict how the scheduler would handle one more workload, without storing anything."""

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from berth.core.amounts import MILLI
from berth.core.spec import WorkloadSpec
from projects.acting import Acting
from projects.models import Workload
from projects.services.workloads import name_taken
from projects.services.workloads.prediction import Prediction
from scheduler.engine import model
from scheduler.engine.explain.reasons import is_schedulable
from scheduler.engine.forecast import Forecast, forecasts
from scheduler.engine.from_spec import seconds_of, workload_from_spec
from scheduler.engine.plan import Bundle, Kind, Place, Plan, Refusal
from scheduler.loop.decide import decide_pools
from scheduler.loop.observe.view import ClusterView, observe
from scheduler.reports.evictions.records import predicted_evictions
from scheduler.reports.evictions.rendering import RenderedEviction, render
from scheduler.reports.explanations.pool_readiness import with_pool_readiness
from scheduler.reports.visibility import reader, redacted
from scheduler.reports.what_if.slots import dry_run_slot
from scheduler.reports.what_if.what_if_cache import SPECS, shared_cache


def predict(*, acting: Acting, workload: Workload, spec: WorkloadSpec, now: datetime) -> Prediction:
    """Predict how the next cycle would handle an unsaved workload if nothing else changed.

    Raises RateLimited while too many dry runs in the project are in progress, and Conflict if a live workload
    has the same name.
    """
    with dry_run_slot(workload.project), shared_cache() as cache:
        view = observe(now, SPECS, cache.observations)
        if workload.handle in view.workloads:
            raise name_taken(workload)
        candidate = workload_from_spec(
            spec,
            name=workload.handle,
            project=view.queues.projects[workload.project_id],
            pools=tuple(workload.pools),
            submitted=seconds_of(now),
            depends_on=(),
        )
        snapshot = replace(view.snapshot, workloads=(*view.snapshot.workloads, candidate))
        plan = decide_pools(snapshot, cache.layouts)
        prediction = _prediction(plan, workload, candidate, view, acting)
        if prediction.outcome != "would_wait":
            return prediction
        forecast = forecasts(snapshot, plan).get(workload.handle, Forecast(None, ""))
        start = None if forecast.at is None else datetime.fromtimestamp(forecast.at, UTC)
        return replace(prediction, expected_start=start, expected_start_reason=forecast.because)


def _prediction(
    plan: Plan, workload: Workload, candidate: model.Workload, view: ClusterView, acting: Acting
) -> Prediction:
    bundles = [bundle for bundle in plan.bundles if bundle.workload == workload.handle]
    refusals = [refusal for refusal in plan.refusals if refusal.workload == workload.handle]
    refusal = next(iter(with_pool_readiness(refusals, view.below_threshold)), None)
    evictions = render(reader(acting), predicted_evictions(bundles, view, [candidate]))
    blockers = refusal.blockers if refusal else ()
    return Prediction(
        outcome=_outcome(bundles, refusal),
        workload={
            "name": workload.name,
            "project": workload.project.name,
            "pools": list(workload.pools),
            "priority": workload.priority,
            "preemptible": workload.preemptible,
            "gpus": workload.gpu_milli_min / MILLI,
        },
        decisions=[_decision(bundle, workload.handle) for bundle in bundles],
        evictions=[shown_eviction(each) for each in evictions],
        blockers=[asdict(redacted(blocker, workload.handle)) for blocker in blockers],
        queue_position=refusal.position if refusal else None,
    )


def _outcome(bundles: list[Bundle], refusal: Refusal | None) -> str:
    if any(bundle.evictions for bundle in bundles):
        return "would_evict"
    if any(bundle.kind is Kind.START for bundle in bundles):
        return "would_start"
    return "would_wait" if refusal is None or is_schedulable(refusal.blockers) else "unschedulable"


def _decision(bundle: Bundle, handle: str) -> dict[str, Any]:
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


def shown_eviction(each: RenderedEviction) -> dict[str, Any]:
    """Return a predicted eviction with the same wording and redactions as in the audit."""
    row = each.row
    return {
        "kind": row.kind,
        "pool": row.pool_name,
        "project": each.victim.project,
        "workload": each.victim.name,
        "victim": each.victim.called,
        "preemptor": each.preemptor.called if each.preemptor else "",
        "rule": each.rule,
        "pods": len(row.pods),
        "entire_workload": row.entire_workload,
        "gpus": row.gpu_milli / MILLI,
        "lost_gpu_seconds": row.lost_gpu_seconds,
        "summary": each.summary,
        "explanation": each.explanation,
    }
