"""Here somebody gives way: pods are told to stop, and the audit says for whom, by which rule."""

import uuid
from collections.abc import Collection
from typing import Any

from projects.models import Phase, Pod, PodState, Workload
from projects.services import announce, events
from scheduler import backoff
from scheduler.commit.bind import ACTOR
from scheduler.commit.scene import Scene, shift
from scheduler.engine.plan import Bundle, Evict, Kind, Place, Standing
from scheduler.engine.plan import Eviction as Decided
from scheduler.models import Eviction

REASONS = {
    Kind.SHRINK: "Shrunk",
    Kind.CONSOLIDATE: "Consolidated",
    Kind.RECLAIM: "Reclaimed",
    Kind.PREEMPT: "Preempted",
    Kind.STALE_GANG: "StaleGang",
    Kind.DRAIN: "Drained",
}
PUNISHED = (Kind.RECLAIM, Kind.PREEMPT)  # they count as preemptions and earn a backoff


def evict(bundle: Bundle, scene: Scene) -> int:
    """Returns how many workloads gave way."""
    stopped = {(s.workload, s.role, s.index): s for s in bundle.steps if isinstance(s, Evict)}
    moved_on = {step.workload for step in bundle.steps if isinstance(step, Place)}
    for decided in bundle.evictions:
        workload = scene.ground.workloads[decided.workload]
        steps = [
            stopped.pop((decided.workload, *pod))
            for pod in decided.pods
            if (decided.workload, *pod) in stopped
        ]
        stop_pods([scene.seen.pods[s.workload, s.role, s.index] for s in steps], REASONS[decided.kind], scene)
        gpu_milli = sum(step.milli * len(step.devices) for step in steps)
        _write_down(decided, bundle, workload, gpu_milli, scene)
        if decided.whole:
            send_back(workload, decided.kind, _told(decided), scene, moves_on=decided.workload in moved_on)
        else:
            events.record(
                REASONS[decided.kind].lower(),
                workload,
                _told(decided),
                actor=ACTOR,
                data={"pods": len(steps)},
            )
            announce.workload_changed(workload)
    stop_pods([scene.seen.pods[key] for key in stopped], REASONS.get(bundle.kind, "Stopped"), scene)
    return len(bundle.evictions)


def stop_pods(ids: Collection[uuid.UUID], reason: str, scene: Scene) -> None:
    if ids:
        Pod.objects.filter(pk__in=ids, state__in=(PodState.STARTING, PodState.RUNNING)).update(
            state=PodState.STOPPING, stop_reason=reason, since=scene.now
        )
        for pk in ids:
            scene.ground.pods[pk].state = PodState.STOPPING


def send_back(workload: Workload, kind: Kind, message: str, scene: Scene, *, moves_on: bool) -> None:
    """On its way back to pending. Who is moved to another place at once has no backoff."""
    columns: dict[str, Any] = {}
    if kind in PUNISHED and not moves_on:
        times = workload.preemptions + 1
        columns = {"preemptions": times, "backoff_until": backoff.until(scene.now, times)}
    shift(
        workload,
        scene,
        expected=[Phase.STARTING, Phase.RUNNING],
        to=Phase.STOPPING,
        next_phase=Phase.PENDING,
        reason=REASONS[kind],
        message=message,
        **columns,
    )


def _told(decided: Decided) -> str:
    whom = f" for {decided.beneficiary}" if decided.beneficiary else ""
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
        numbers={
            "victim": [_numbers(standing) for standing in decided.victim],
            "winner": [_numbers(standing) for standing in decided.winner],
            "refused": list(decided.refused),
            "units": {"gpu": "milli-GPU", "cpu": "milli-CPU", "memory_mib": "MiB"},
        },
        pods=[{"role": role, "index": index} for role, index in decided.pods],
        whole=decided.whole,
        gpu_milli=gpu_milli,
        lost_gpu_seconds=decided.lost_gpu_seconds,
    )


def _numbers(standing: Standing) -> dict[str, Any]:
    return {
        "queue": standing.queue,
        "quota": standing.quota._asdict(),
        "share": standing.share._asdict(),
        "allocated_before": standing.allocated_before._asdict(),
        "allocated_after": standing.allocated_after._asdict(),
        "usage": standing.usage,
    }
