"""Here the verdicts on gangs become moves of workloads, each workload by itself."""

import logging
import uuid
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from berth.core.spec import RestartPolicy
from projects.models import Phase, Pod, PodState, Workload
from projects.services import announce
from projects.services.moves import move
from scheduler import backoff
from scheduler.dispatch.verdict import LIVE, GangFacts, PodFact, Verdict, verdict
from scheduler.holdings import recount
from scheduler.models import Reservation
from scheduler.specs import Meaning, Specs

log = logging.getLogger(__name__)

ACTOR = "scheduler"
JUDGED = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
MOST_MOVES = 4  # starting, running, stopping, ended


def judge_gangs(ids: Collection[uuid.UUID], now: datetime, specs: Specs) -> list[str]:
    """In the caller's transaction. Returns what could not be judged, as sentences."""
    notes: list[str] = []
    rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
    for workload in rows.filter(pk__in=ids, phase__in=JUDGED).order_by("pk"):
        try:
            with transaction.atomic():
                _judge(workload, now, specs.of(workload))
        except (OperationalError, InterfaceError):
            raise
        except (DatabaseError, AssertionError, KeyError, ValueError) as error:
            log.exception("the gang of %s could not be judged", workload.pk)
            notes.append(f"The gang of {workload.handle} could not be judged: {error!r}")
    return notes


def stop_live_pods(workload: Workload, reason: str, now: datetime) -> int:
    return Pod.objects.filter(workload=workload, state__in=(PodState.STARTING, PodState.RUNNING)).update(
        state=PodState.STOPPING, stop_reason=reason, since=now
    )


def _judge(workload: Workload, now: datetime, meaning: Meaning) -> None:
    if workload.phase == Phase.STOPPING:
        stop_live_pods(workload, workload.reason, now)
    for _ in range(MOST_MOVES):
        found = verdict(_facts(workload, meaning))
        if found is None:
            break
        _carry_out(found, workload, now)
    recount([workload.pk])


def _facts(workload: Workload, meaning: Meaning) -> GangFacts:
    latest: dict[tuple[str, int], Pod] = {}
    attempts = Pod.objects.filter(workload=workload, run=workload.run)
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
    )


def _carry_out(found: Verdict, workload: Workload, now: datetime) -> None:
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
            **columns,
        )
        assert moved, "the row is locked"
        workload.phase, workload.reason, workload.message = found.to, found.reason, found.message
        if found.to == Phase.STOPPING:
            stop_live_pods(workload, found.reason, now)
        elif found.to in (Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED):
            Reservation.objects.filter(workload=workload).delete()
    for name, value in columns.items():
        setattr(workload, name, value)


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
