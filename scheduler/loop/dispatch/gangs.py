"""Apply the verdicts on gangs to their workloads."""

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
from scheduler.loop.dispatch.verdict import LIVE, GangFacts, PodFact, Verdict, verdict
from scheduler.loop.observe.specs import ParsedSpec, SpecCache
from scheduler.reports.usage.allocation_hours import recount

log = logging.getLogger(__name__)

ACTOR = "scheduler"
JUDGED = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
MOST_MOVES = 4  # starting, running, stopping, ended


def judge_gangs(ids: Collection[uuid.UUID], now: datetime, specs: SpecCache) -> list[str]:
    """Apply verdicts in the caller's transaction; return a note for each workload that cannot be judged."""
    rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
    workloads = list(rows.filter(pk__in=ids, phase__in=JUDGED).order_by("pk"))
    notes = _judge_all(workloads, now, specs)
    recount(workload.pk for workload in workloads)
    return notes


def _judge_all(workloads: Sequence[Workload], now: datetime, specs: SpecCache) -> list[str]:
    """Judge all workloads. If that fails, split them in half until the bad one is isolated."""
    if not workloads:
        return []
    try:
        with transaction.atomic():
            attempts = _run_pods(workloads)
            for workload in workloads:
                _judge(workload, attempts[workload.pk], now, specs.of(workload))
    except (OperationalError, InterfaceError):
        raise
    except (DatabaseError, AssertionError, LookupError, ValueError) as error:
        if len(workloads) == 1:
            log.exception("the gang of %s could not be judged", workloads[0].pk)
            return [f"The gang of {workloads[0].handle} could not be judged: {error!r}"]
        again = list(Workload.objects.filter(pk__in=[w.pk for w in workloads]).order_by("pk"))
        middle = len(again) // 2
        return [*_judge_all(again[:middle], now, specs), *_judge_all(again[middle:], now, specs)]
    return []


def _run_pods(workloads: Iterable[Workload]) -> dict[uuid.UUID, list[Pod]]:
    """Return all pods in each workload's current run."""
    runs = {workload.pk: workload.run for workload in workloads}
    attempts: dict[uuid.UUID, list[Pod]] = {pk: [] for pk in runs}
    for pod in Pod.objects.filter(workload_id__in=runs).order_by("workload_id", "created_at", "pk"):
        if pod.run == runs[pod.workload_id]:
            attempts[pod.workload_id].append(pod)
    return attempts


def stop_live_pods(workload: Workload, reason: str, now: datetime) -> int:
    return Pod.objects.filter(workload=workload, state__in=(PodState.STARTING, PodState.RUNNING)).update(
        state=PodState.STOPPING, stop_reason=reason, since=now
    )


def _judge(workload: Workload, attempts: Sequence[Pod], now: datetime, parsed: ParsedSpec) -> None:
    if workload.phase == Phase.STOPPING:
        _stop(workload, attempts, workload.reason, now)
    for _ in range(MOST_MOVES):
        step = verdict(_gang_facts(workload, attempts, parsed))
        if step is None:
            return
        _apply_verdict(step, workload, attempts, now)


def _stop(workload: Workload, attempts: Iterable[Pod], reason: str, now: datetime) -> None:
    running = [pod for pod in attempts if pod.state in (PodState.STARTING, PodState.RUNNING)]
    if running:
        stop_live_pods(workload, reason, now)
        for pod in running:
            pod.state = PodState.STOPPING


def _gang_facts(workload: Workload, attempts: Iterable[Pod], parsed: ParsedSpec) -> GangFacts:
    latest: dict[tuple[str, int], Pod] = {}
    for pod in sorted(attempts, key=lambda pod: (pod.created_at, pod.state in LIVE, str(pod.pk))):
        latest[pod.role, pod.index] = pod
    return GangFacts(
        phase=workload.phase,
        next_phase=workload.next_phase,
        reason=workload.reason,
        message=workload.message,
        tree=parsed.tree,
        pods=[
            PodFact(pod.role, pod.index, pod.state, pod.exit_code, pod.signal, pod.message)
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


def _apply_verdict(step: Verdict, workload: Workload, attempts: Iterable[Pod], now: datetime) -> None:
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
            keep_reservations=_all_consolidated(attempts),
            **columns,
        )
        assert moved, "the row is locked"
        workload.phase, workload.reason, workload.message = step.to, step.reason, step.message
        if step.to == Phase.STOPPING:
            _stop(workload, attempts, step.reason, now)
    for name, value in columns.items():
        setattr(workload, name, value)


def _all_consolidated(attempts: Iterable[Pod]) -> bool:
    """Return True if every pod was stopped by a consolidation, so that the new place stays reserved."""
    return all(pod.state == PodState.STOPPED and pod.stop_reason == "Consolidated" for pod in attempts)


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
        times = workload.restarts + 1
        columns |= {"restarts": times, "backoff_until": now + timedelta(seconds=backoff_seconds(times))}
    return columns


def workloads_to_judge() -> Iterable[uuid.UUID]:
    """Return workloads that always need a verdict: stopping ones, and running ones without a live pod."""
    stopping = Workload.objects.filter(phase=Phase.STOPPING).values_list("pk", flat=True)
    live = Pod.objects.filter(state__in=("starting", "running", "stopping")).values("workload_id")
    empty = Workload.objects.filter(phase__in=(Phase.STARTING, Phase.RUNNING)).exclude(pk__in=live)
    return {*stopping, *empty.values_list("pk", flat=True)}
