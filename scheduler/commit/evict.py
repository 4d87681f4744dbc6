"""Evict workloads: stop their pods and write the audit record."""

import uuid
from collections.abc import Iterable
from typing import Any

from projects.models import Phase, Pod, PodState, Workload
from projects.services import announce, events
from scheduler import backoff
from scheduler.commit.bind import ACTOR
from scheduler.commit.ground import CAN_STOP, Key
from scheduler.commit.promises import unpromise
from scheduler.commit.scene import Scene, shift
from scheduler.engine.plan import Bundle, Evict, Kind, Place
from scheduler.engine.plan import Eviction as Decided
from scheduler.models import Eviction
from scheduler.reports.evictions.records import numbers_of
from scheduler.reports.visibility import called, project_of

REASONS = {
    Kind.SHRINK: "Shrunk",
    Kind.CONSOLIDATE: "Consolidated",
    Kind.RECLAIM: "Reclaimed",
    Kind.PREEMPT: "Preempted",
    Kind.STALE_GANG: "StaleGang",
}
PUNISHED = (Kind.RECLAIM, Kind.PREEMPT)  # they count as preemptions and earn a backoff


def evict(bundle: Bundle, scene: Scene) -> int:
    """Returns how many workloads gave way."""
    leaving = {(s.workload, s.role, s.index): s for s in bundle.steps if isinstance(s, Evict)}
    moved_on = {step.workload for step in bundle.steps if isinstance(step, Place)}
    for decided in bundle.evictions:
        workload = scene.ground.workloads[decided.workload]
        keys = [key for pod in decided.pods if (key := (decided.workload, *pod)) in leaving]
        steps = [leaving.pop(key) for key in keys]
        _write_down(decided, bundle, workload, sum(s.milli * len(s.devices) for s in steps), scene)
        message = _told(decided, scene)
        _let_go(keys, REASONS[decided.kind], message, scene)
        if decided.whole and workload.phase in (Phase.STARTING, Phase.RUNNING):
            send_back(workload, decided, scene, moves_on=decided.workload in moved_on)
        else:
            kind = REASONS[decided.kind].lower()
            events.record(kind, workload, message, actor=ACTOR, data={"pods": len(steps)})
            announce.workload_changed(workload)
    _let_go(leaving, REASONS.get(bundle.kind, "Stopped"), bundle.message, scene)
    return len(bundle.evictions)


def _let_go(keys: Iterable[Key], reason: str, message: str, scene: Scene) -> None:
    """Pods are told to stop; what was only promised is promised no more, all of the workload's together."""
    pods: list[uuid.UUID] = []
    for key in keys:
        pod = scene.ground.standing(scene.seen, key)
        if pod is not None:
            pods.append(pod)
        else:
            unpromise(scene.ground.workloads[key[0]], reason, message, scene.now, cycle=scene.cycle)
    if pods:
        Pod.objects.filter(pk__in=pods, state__in=CAN_STOP).update(
            state=PodState.STOPPING, stop_reason=reason, since=scene.now
        )
    for pk in pods:
        scene.ground.pods[pk].state = PodState.STOPPING


def send_back(workload: Workload, decided: Decided, scene: Scene, *, moves_on: bool) -> None:
    """On its way back to pending. Who is moved at once, or only gave up its turn, has no backoff."""
    columns: dict[str, Any] = {}
    if decided.kind in PUNISHED and not moves_on:
        columns = {"preemptions": workload.preemptions + 1}
        if decided.earns_backoff:
            columns["backoff_until"] = backoff.until(scene.now, columns["preemptions"])
    shift(
        workload,
        scene,
        expected=[Phase.STARTING, Phase.RUNNING],
        to=Phase.STOPPING,
        next_phase=Phase.PENDING,
        reason=REASONS[decided.kind],
        message=_told(decided, scene),
        **columns,
    )


def _told(decided: Decided, scene: Scene) -> str:
    """For the people of the project that gave way: strangers' work is told by its size."""
    whom = ""
    if decided.beneficiary is not None:
        project, _, name = decided.beneficiary.partition("/")
        winner = scene.ground.workloads.get(decided.beneficiary)
        own = project == project_of(decided.workload)
        whom = f" for {called(project, name, winner.gpu_milli_min if winner else None, seen=own)}"
    return f"{REASONS[decided.kind]}{whom}: {decided.rule}"


def _write_down(decided: Decided, bundle: Bundle, workload: Workload, gpu_milli: int, scene: Scene) -> None:
    winner = scene.ground.workloads.get(decided.beneficiary) if decided.beneficiary else None
    project, pool = workload.project, scene.seen.pools[bundle.pool]
    Eviction.objects.create(
        at=scene.now,
        cycle=scene.cycle,
        kind=str(decided.kind),
        pool_id=pool.pk,
        pool_name=pool.name,
        workload_id=workload.pk,
        workload_name=workload.name,
        project_id=project.pk,
        project_name=project.name,
        department_id=project.department_id,
        department_name=project.department.name,
        beneficiary_id=winner.pk if winner else None,
        beneficiary_name=winner.name if winner else "",
        beneficiary_project_id=winner.project_id if winner else None,
        beneficiary_project_name=winner.project.name if winner else "",
        rule=decided.rule,
        numbers=numbers_of(decided, workload.gpu_milli_min, winner.gpu_milli_min if winner else None),
        pods=[{"role": role, "index": index} for role, index in decided.pods],
        whole=decided.whole,
        gpu_milli=gpu_milli,
        lost_gpu_seconds=decided.lost_gpu_seconds,
    )
