"""Evaluate gangs and apply the verdicts to their workloads."""

import logging
import uuid
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from berth.core.spec import RestartPolicy
from projects.models import Phase, Pod, PodState, Workload
from projects.services import announce
from projects.services.workloads.moves import move
from scheduler.engine.backoff import backoff_seconds
from scheduler.loop.dispatch.verdict import LIVE_STATES, GangFacts, PodFact, Verdict, verdict
from scheduler.loop.observe.specs import ParsedSpec, SpecCache
from scheduler.reports.usage.allocation_hours import update_gpu_totals

log = logging.getLogger(__name__)

ACTOR = "scheduler"
EVALUATED_PHASES = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
MAX_TRANSITIONS = 4  # maximum per evaluation: starting, running, stopping, ended


def evaluate_gangs(ids: Collection[uuid.UUID], now: datetime, specs: SpecCache) -> list[str]:
    """Evaluate gangs in the caller's transaction. Return a note for each gang that could not be evaluated."""
    rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
    workloads = list(rows.filter(pk__in=ids, phase__in=EVALUATED_PHASES).order_by("pk"))
    notes = _evaluate_all(workloads, now, specs)
    update_gpu_totals(workload.pk for workload in workloads)
    return notes


def _evaluate_all(workloads: Sequence[Workload], now: datetime, specs: SpecCache) -> list[str]:
    """Evaluate all workloads. If that fails, bisect to isolate the offending workload."""
    if not workloads:
        return []
    try:
        with transaction.atomic():
            pods = _run_pods(workloads)
            for workload in workloads:
                _evaluate_gang(workload, pods[workload.pk], now, specs.get(workload))
    except (OperationalError, InterfaceError):
        raise
    except (DatabaseError, AssertionError, LookupError, ValueError) as error:
        if len(workloads) == 1:
            log.exception("the gang of %s could not be evaluated", workloads[0].pk)
            return [f"The gang of {workloads[0].handle} could not be evaluated: {error!r}"]
        reloaded = list(Workload.objects.filter(pk__in=[w.pk for w in workloads]).order_by("pk"))
        middle = len(reloaded) // 2
        return [*_evaluate_all(reloaded[:middle], now, specs), *_evaluate_all(reloaded[middle:], now, specs)]
    return []


def _run_pods(workloads: Iterable[Workload]) -> dict[uuid.UUID, list[Pod]]:
    """Return all pods in each workload's current run."""
    runs = {workload.pk: workload.run for workload in workloads}
    pods: dict[uuid.UUID, list[Pod]] = {pk: [] for pk in runs}
    for pod in Pod.objects.filter(workload_id__in=runs).order_by("workload_id", "created_at", "pk"):
        if pod.run == runs[pod.workload_id]:
            pods[pod.workload_id].append(pod)
    return pods


def stop_live_pods(workload: Workload, reason: str, now: datetime) -> int:
    return Pod.objects.filter(workload=workload, state__in=(PodState.STARTING, PodState.RUNNING)).update(
        state=PodState.STOPPING, stop_reason=reason, since=now
    )


def _evaluate_gang(workload: Workload, pods: Sequence[Pod], now: datetime, parsed: ParsedSpec) -> None:
    if workload.phase == Phase.STOPPING:
        _stop_gang(workload, pods, workload.reason, now)
    for _ in range(MAX_TRANSITIONS):
        step = verdict(_gang_facts(workload, pods, parsed))
        if step is None:
            return
        _apply_verdict(step, workload, pods, now)


def _stop_gang(workload: Workload, pods: Iterable[Pod], reason: str, now: datetime) -> None:
    running = [pod for pod in pods if pod.state in (PodState.STARTING, PodState.RUNNING)]
    if running:
        stop_live_pods(workload, reason, now)
        for pod in running:
            pod.state = PodState.STOPPING


def _gang_facts(workload: Workload, pods: Iterable[Pod], parsed: ParsedSpec) -> GangFacts:
    latest: dict[tuple[str, int], Pod] = {}
    for pod in sorted(pods, key=lambda pod: (pod.created_at, pod.state in LIVE_STATES, str(pod.pk))):
        latest[pod.role, pod.index] = pod
    return GangFacts(
        phase=workload.phase,
        next_phase=workload.next_phase,
        reason=workload.reason,
        message=workload.message,
        tree=parsed.tree,
        pods=[
            PodFact(pod.role, pod.index, pod.state, pod.exit_code, pod.signal, pod.message, pod.stop_reason)
            for _, pod in sorted(latest.items())
        ],
        policy=parsed.spec.restart_policy if parsed.spec else RestartPolicy(),
        restarts=workload.restarts,
        is_stale=workload.stale_since is not None,
        idle_roles=idle_roles(parsed),
    )


def idle_roles(parsed: ParsedSpec) -> frozenset[str]:
    roles = parsed.spec.all_roles if parsed.spec else ()
    return frozenset(role.name for role in roles if role.idle)


def _apply_verdict(step: Verdict, workload: Workload, pods: Iterable[Pod], now: datetime) -> None:
    columns = _verdict_columns(step, workload, now)
    if not step.to:
        Workload.objects.filter(pk=workload.pk).update(**columns)
        announce.workload_changed(workload)
    else:
        moved = move(
            workload,
            expected=[workload.phase],
            to=step.to,
            reason=step.reason,
            message=step.message,
            actor=ACTOR,
            now=now,
            data={"run": workload.run},
            keep_reservations=_all_consolidated(pods),
            **columns,
        )
        assert moved, "a locked row cannot leave its phase"
        workload.phase, workload.reason, workload.message = step.to, step.reason, step.message
        if step.to == Phase.STOPPING:
            _stop_gang(workload, pods, step.reason, now)
    for name, value in columns.items():
        setattr(workload, name, value)


def _all_consolidated(pods: Iterable[Pod]) -> bool:
    """Return whether a consolidation stopped every pod. If so, the new placement stays reserved."""
    return all(pod.state == PodState.STOPPED and pod.stop_reason == "Consolidated" for pod in pods)


def _verdict_columns(step: Verdict, workload: Workload, now: datetime) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if step.stale is not None:
        columns["stale_since"] = now if step.stale else None
    if step.to == Phase.RUNNING:
        columns |= {"started_at": now, "first_started_at": workload.first_started_at or now}
    if step.to == Phase.STOPPING:
        columns["next_phase"] = step.next_phase
    elif step.to:
        columns["stale_since"] = None
    if step.exit_code is not None:
        columns["exit_code"] = step.exit_code
    if step.counts_as_restart:
        restarts = workload.restarts + 1
        columns |= {"restarts": restarts, "backoff_until": now + timedelta(seconds=backoff_seconds(restarts))}
    return columns


def workloads_to_evaluate() -> Iterable[uuid.UUID]:
    """Return IDs of workloads that always need a verdict: stopping, or active without a live pod."""
    stopping = Workload.objects.filter(phase=Phase.STOPPING).values_list("pk", flat=True)
    live = Pod.objects.filter(state__in=("starting", "running", "stopping")).values("workload_id")
    empty = Workload.objects.filter(phase__in=(Phase.STARTING, Phase.RUNNING)).exclude(pk__in=live)
    return {*stopping, *empty.values_list("pk", flat=True)}
