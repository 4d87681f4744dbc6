"""Predict what the scheduler would do with one more workload, storing nothing."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone

from berth.core.amounts import MILLI
from berth.core.spec import WorkloadSpec
from projects.acting import Acting
from projects.models import Workload
from projects.services.workloads import name_taken, prepared, warnings_of
from scheduler.deciding import decide_what_can_be
from scheduler.engine.explain.reasons import is_schedulable
from scheduler.engine.forecast import Forecast, forecasts
from scheduler.engine.from_spec import seconds_of, workload_from_spec
from scheduler.engine.model import Workload as Asked
from scheduler.engine.plan import Bundle, Kind, Place, Plan, Refusal
from scheduler.observe import Seen, observe
from scheduler.reports.evictions.records import foreseen
from scheduler.reports.evictions.rendering import Told, told
from scheduler.reports.explanations.pool_readiness import told as retold
from scheduler.reports.visibility import discreet, reader
from scheduler.reports.what_if.slots import dry_run_slot
from scheduler.reports.what_if.what_if_cache import SPECS, Learnt, asked_before


@dataclass(frozen=True, slots=True)
class Foreseen:
    """`outcome`: would_start | would_evict | would_wait | unschedulable. GPUs are devices or parts of one."""

    outcome: str
    workload: dict[str, Any]
    decisions: list[dict[str, Any]] = field(default_factory=list)
    evictions: list[dict[str, Any]] = field(default_factory=list)
    blockers: list[dict[str, Any]] = field(default_factory=list)
    position: int | None = None
    expected_start: datetime | None = None
    expected_because: str = ""
    warnings: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def dry_run(*, acting: Acting, document: Mapping[str, Any], now: datetime | None = None) -> Foreseen:
    """What the next cycle would do with this document, if nothing else changed until then.

    Raises what `submit` would raise, and RateLimited while the project has too many of them in progress.
    """
    at = now or timezone.now()
    workload, spec = prepared(acting=acting, document=document, now=at)
    with dry_run_slot(workload.project), asked_before() as learnt:
        answer = _looked_at(acting, workload, spec, at, learnt)
    return replace(answer, warnings=warnings_of(workload, spec))


def _looked_at(
    acting: Acting, workload: Workload, spec: WorkloadSpec, at: datetime, learnt: Learnt
) -> Foreseen:
    seen = observe(at, SPECS, learnt.known)
    if workload.handle in seen.workloads or _is_live(workload):
        raise name_taken(workload)
    asked = workload_from_spec(
        spec,
        name=workload.handle,
        project=seen.queues.projects[workload.project_id],
        pools=tuple(workload.pools),
        submitted=seconds_of(at),
        waits_for=(),
    )
    snapshot = replace(seen.snapshot, workloads=(*seen.snapshot.workloads, asked))
    plan = decide_what_can_be(snapshot, learnt.carried)
    found = _foreseen(plan, workload, asked, seen, acting)
    if found.outcome != "would_wait":
        return found
    expected = forecasts(snapshot, plan).get(workload.handle, Forecast(None, ""))
    at_last = None if expected.at is None else datetime.fromtimestamp(expected.at, UTC)
    return replace(found, expected_start=at_last, expected_because=expected.because)


def would_be_taken(*, acting: Acting, document: Mapping[str, Any]) -> None:
    """Raises what `submit` would raise, without asking the scheduler."""
    workload, _ = prepared(acting=acting, document=document)
    if _is_live(workload):
        raise name_taken(workload)


def _is_live(workload: Workload) -> bool:
    live = Workload.objects.filter(project=workload.project, name=workload.name)
    return live.exclude(phase__in=("completed", "failed", "cancelled")).exists()


def _foreseen(plan: Plan, workload: Workload, asked: Asked, seen: Seen, acting: Acting) -> Foreseen:
    mine = [bundle for bundle in plan.bundles if bundle.workload == workload.handle]
    refusals = [found for found in plan.refusals if found.workload == workload.handle]
    refusal = next(iter(retold(refusals, seen.opening)), None)
    shown: dict[str, Any] = {"name": workload.name, "project": workload.project.name}
    shown |= {
        "pools": list(workload.pools),
        "priority": workload.priority,
        "preemptible": workload.preemptible,
    }
    return Foreseen(
        outcome=_outcome(mine, refusal),
        workload={**shown, "gpus": workload.gpu_milli_min / MILLI},
        decisions=[_decision(bundle, workload.handle) for bundle in mine],
        evictions=[shown_eviction(each) for each in told(reader(acting), foreseen(mine, seen, [asked]))],
        blockers=[asdict(discreet(found, workload.handle)) for found in refusal.blockers] if refusal else [],
        position=refusal.position if refusal else None,
    )


def _outcome(mine: list[Bundle], refusal: Refusal | None) -> str:
    if any(bundle.evictions for bundle in mine):
        return "would_evict"
    if any(bundle.kind is Kind.START for bundle in mine):
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


def shown_eviction(each: Told) -> dict[str, Any]:
    """Who would give way, in the words and under the discretion of the audit."""
    row = each.row
    return {
        "kind": row.kind,
        "pool": row.pool_name,
        "project": each.victim.project,
        "workload": each.victim.name,
        "gave_way": each.victim.called,
        "for_whom": each.beneficiary.called if each.beneficiary else "",
        "rule": each.rule,
        "pods": len(row.pods),
        "whole": row.whole,
        "gpus": row.gpu_milli / MILLI,
        "lost_gpu_seconds": row.lost_gpu_seconds,
        "summary": each.summary,
        "lines": each.lines,
    }
