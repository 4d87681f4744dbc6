"""Apply the verdicts on gangs to their workloads."""

import logging
import uuid
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from berth.core.spec import RestartPolicy
from projects.models import Phase, Pod, PodState, Workload
from projects.services import announce
from projects.services.workloads.moves import move
from scheduler import backoff
from scheduler.dispatch.verdict import LIVE, GangFacts, PodFact, Verdict, verdict
from scheduler.reports.usage.allocation_hours import recount
from scheduler.specs import Meaning, Specs

log = logging.getLogger(__name__)

ACTOR = "scheduler"
JUDGED = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
MOST_MOVES = 4  # starting, running, stopping, ended


def judge_gangs(ids: Collection[uuid.UUID], now: datetime, specs: Specs) -> list[str]:
    """In the caller's transaction. Returns what could not be judged, as sentences."""
    rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
    found = list(rows.filter(pk__in=ids, phase__in=JUDGED).order_by("pk"))
    notes = _judge_all(found, now, specs)
    recount(workload.pk for workload in found)
    return notes


def _judge_all(workloads: Sequence[Workload], now: datetime, specs: Specs) -> list[str]:
    """All of them; where that fails, each half by itself, until the one that cannot be is found."""
    if not workloads:
        return []
    try:
        with transaction.atomic():
            attempts = _attempts(workloads)
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


def _attempts(workloads: Iterable[Workload]) -> dict[uuid.UUID, list[Pod]]:
    """By workload, every pod of its present run."""
    runs = {workload.pk: workload.run for workload in workloads}
    found: dict[uuid.UUID, list[Pod]] = {pk: [] for pk in runs}
    for pod in Pod.objects.filter(workload_id__in=runs).order_by("workload_id", "created_at", "pk"):
        if pod.run == runs[pod.workload_id]:
            found[pod.workload_id].append(pod)
    return found


def stop_live_pods(workload: Workload, reason: str, now: datetime) -> int:
    return Pod.objects.filter(workload=workload, state__in=(PodState.STARTING, PodState.RUNNING)).update(
        state=PodState.STOPPING, stop_reason=reason, since=now
    )


def _judge(workload: Workload, attempts: Sequence[Pod], now: datetime, meaning: Meaning) -> None:
    if workload.phase == Phase.STOPPING:
        _stop(workload, attempts, workload.reason, now)
    for _ in range(MOST_MOVES):
        found = verdict(_facts(workload, attempts, meaning))
        if found is None:
            return
        _carry_out(found, workload, attempts, now)


def _stop(workload: Workload, attempts: Iterable[Pod], reason: str, now: datetime) -> None:
    running = [pod for pod in attempts if pod.state in (PodState.STARTING, PodState.RUNNING)]
    if running:
        stop_live_pods(workload, reason, now)
        for pod in running:
            pod.state = PodState.STOPPING


def _facts(workload: Workload, attempts: Iterable[Pod], meaning: Meaning) -> GangFacts:
    latest: dict[tuple[str, int], Pod] = {}
    for pod in sorted(attempts, key=lambda pod: (pod.created_at, pod.state in LIVE, str(pod.pk))):
        latest[pod.role, pod.index] = pod
    return GangFacts(
        phase=workload.phase,
        next_phase=workload.next_phase,
        reason=workload.reason,
        message=workload.message,
        tree=meaning.tree,
        pods=[
            PodFact(pod.role, pod.index, pod.state, pod.exit_code, pod.signal, pod.message)
            for _, pod in sorted(latest.items())
        ],
        policy=meaning.spec.restart_policy if meaning.spec else RestartPolicy(),
        restarts=workload.restarts,
        is_stale=workload.stale_since is not None,
        idle_roles=idle_roles(meaning),
    )


def idle_roles(meaning: Meaning) -> frozenset[str]:
    roles = meaning.spec.all_roles if meaning.spec else ()
    return frozenset(role.name for role in roles if role.idle)


def _carry_out(found: Verdict, workload: Workload, attempts: Iterable[Pod], now: datetime) -> None:
    columns = _columns(found, workload, now)
    if not found.to:
        Workload.objects.filter(pk=workload.pk).update(**columns)
        announce.workload_changed(workload)
    else:
        moved = move(
            workload,
            expected=[workload.phase],
            to=found.to,
            reason=found.reason,
            message=found.message,
            actor=ACTOR,
            now=now,
            data={"run": workload.run},
            keeps_promises=_only_moves(attempts),
            **columns,
        )
        assert moved, "the row is locked"
        workload.phase, workload.reason, workload.message = found.to, found.reason, found.message
        if found.to == Phase.STOPPING:
            _stop(workload, attempts, found.reason, now)
    for name, value in columns.items():
        setattr(workload, name, value)


def _only_moves(attempts: Iterable[Pod]) -> bool:
    """All its pods went for the sake of order, and it has a place promised where it goes on."""
    return all(pod.state == PodState.STOPPED and pod.stop_reason == "Consolidated" for pod in attempts)


def _columns(found: Verdict, workload: Workload, now: datetime) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if found.stale is not None:
        columns["stale_since"] = now if found.stale else None
    if found.to == Phase.RUNNING:
        columns |= {"started_at": now, "first_started_at": workload.first_started_at or now}
    if found.to == Phase.STOPPING:
        columns["next_phase"] = found.next_phase
    elif found.to:
        columns["stale_since"] = None
    if found.exit_code is not None:
        columns["exit_code"] = found.exit_code
    if found.counts_as_restart:
        times = workload.restarts + 1
        columns |= {"restarts": times, "backoff_until": backoff.until(now, times)}
    return columns


def told_to_stop() -> Iterable[uuid.UUID]:
    """Workloads on their way out, and those that run without a pod: they need a verdict in any case."""
    stopping = Workload.objects.filter(phase=Phase.STOPPING).values_list("pk", flat=True)
    live = Pod.objects.filter(state__in=("starting", "running", "stopping")).values("workload_id")
    empty = Workload.objects.filter(phase__in=(Phase.STARTING, Phase.RUNNING)).exclude(pk__in=live)
    return {*stopping, *empty.values_list("pk", flat=True)}
