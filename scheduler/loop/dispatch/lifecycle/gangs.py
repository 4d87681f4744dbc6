"""Evaluate gangs and apply the verdicts to their workloads."""

import logging
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, transaction
from django.db.models import F, OuterRef, Subquery

from berth.db.queries import prepared
from berth.db.queries.compiled import compiled_once
from berth.db.writes.bulk_rows import load_related_objects
from projects.models import Phase, Pod, PodState, Workload
from projects.models.workloads import LIVE_POD_STATES
from projects.services import announce
from projects.services.workloads.phase_transitions import PhaseTransition, change_phases
from scheduler.loop.dispatch.lifecycle.retries import (
    failure_columns,
    failure_event_data,
    node_names,
    peer_failure_columns,
    retry_state,
    store_increased_memory,
)
from scheduler.loop.dispatch.lifecycle.verdict import LIVE_STATES, GangFacts, PodFact, Verdict, decide_verdict
from scheduler.loop.observe.specs import ParsedSpec, SpecCache
from scheduler.loop.queries import PROJECTS
from scheduler.reports.usage.allocation_hours import update_gpu_totals

log = logging.getLogger(__name__)

ACTOR = "scheduler"
START_REJECTED = "StartRejected"  # reason for stopping replicas that were never started
EVALUATED_PHASES = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
MAX_TRANSITIONS = 4  # maximum phase changes per evaluation, for example starting, running, stopping, ended
EVALUATED = compiled_once(
    lambda keys: (
        Workload.objects.select_for_update(of=("self",))
        .filter(pk__any=keys, phase__in=EVALUATED_PHASES)
        .defer("labels", "explanation", "pending_reasons")
        .order_by("pk")
    )
)
TO_EVALUATE = f"""
    SELECT id FROM projects_workload WHERE phase = 'stopping'
    UNION ALL
    SELECT id FROM projects_workload
     WHERE phase IN ('starting', 'running')
       AND id NOT IN (SELECT workload_id FROM projects_pod
                       WHERE state IN ({", ".join(f"'{state}'" for state in LIVE_POD_STATES)}))
"""  # noqa: S608
PODS = compiled_once(
    lambda keys: Pod.objects.filter(workload_id__any=keys, run=F("workload__run")).order_by(
        "workload_id", "created_at", "pk"
    )
)

Evictions = Mapping[uuid.UUID, str]
NO_EVICTIONS: Evictions = {}


def load_gangs(
    workloads: Sequence[Workload], specs: SpecCache, evictions: Evictions = NO_EVICTIONS
) -> list["Gang"]:
    pods = _run_pods(workloads)
    return [Gang(workload, pods[workload.pk], specs.get(workload), evictions) for workload in workloads]


def lock_gangs(ids: Collection[uuid.UUID]) -> list[Workload]:
    """Lock the workloads to evaluate, and return them. Pods must be locked afterwards."""
    workloads = list(EVALUATED([*ids]))
    load_related_objects(workloads, "project", PROJECTS)
    return workloads


def evaluate_gangs(
    workloads: Sequence[Workload], now: datetime, specs: SpecCache, evictions: Evictions = NO_EVICTIONS
) -> list[str]:
    """Evaluate the gangs of locked workloads. Return a note for each gang that could not be evaluated."""
    if not workloads:
        return []
    try:
        with transaction.atomic():
            apply_gang_verdicts(workloads, now, specs, evictions)
    except (OperationalError, InterfaceError):
        raise
    except (DatabaseError, AssertionError, LookupError, ValueError) as error:
        if len(workloads) == 1:
            log.exception("the gang of %s could not be evaluated", workloads[0].pk)
            return [f"The gang of {workloads[0].handle} could not be evaluated: {error!r}"]
        rows = Workload.objects.filter(pk__in=[workload.pk for workload in workloads])
        reloaded = list(rows.select_related("project__department").order_by("pk"))
        middle = len(reloaded) // 2
        return [
            *evaluate_gangs(reloaded[:middle], now, specs, evictions),
            *evaluate_gangs(reloaded[middle:], now, specs, evictions),
        ]
    return []


def recount_gpus(workloads: Iterable[Workload], specs: SpecCache) -> None:
    """Update the number of GPUs allocated to each workload after pods have ended."""
    update_gpu_totals(workload.pk for workload in workloads if specs.get(workload).may_use_gpus)


@dataclass(frozen=True, slots=True)
class Gang:
    """A workload with the pods of its current run.

    `evictions` contains clauses that explain why the cluster is stopping live pods.
    """

    workload: Workload
    pods: Sequence[Pod]
    spec: ParsedSpec
    evictions: Evictions = field(default_factory=dict)

    def mark_pods_stopping(self) -> bool:
        """Mark live pods as stopping, in memory only. Return whether the gang has live pods."""
        live = [pod for pod in self.pods if pod.state in (PodState.STARTING, PodState.RUNNING)]
        for pod in live:
            pod.state = PodState.STOPPING
        return bool(live)


def apply_gang_verdicts(
    workloads: Sequence[Workload], now: datetime, specs: SpecCache, evictions: Evictions = NO_EVICTIONS
) -> None:
    """Evaluate the gangs of locked workloads, and change the phase of each gang that gets a verdict."""
    gangs = load_gangs(workloads, specs, evictions)
    _stop_gangs([gang for gang in gangs if gang.workload.phase == Phase.STOPPING], now)
    transitions: list[PhaseTransition] = []
    for _ in range(MAX_TRANSITIONS):
        verdicts = [
            (gang, step) for gang in gangs if (step := decide_verdict(build_gang_facts(gang))) is not None
        ]
        if not verdicts:
            break
        # A verdict without a target phase writes to the row immediately.
        if not all(step.to for _, step in verdicts):
            _change_locked_rows(transitions, now)
            transitions = []
        transitions += _apply_verdicts(verdicts, now)
        if stopping := [gang for gang, step in verdicts if step.to == Phase.STOPPING]:
            _change_locked_rows(transitions, now)
            transitions = []
            store_increased_memory([(gang.workload.pk, step.retry) for gang, step in verdicts if step.retry])
            _stop_gangs(stopping, now)
        # Only gangs that had a verdict and have not ended can change again.
        gangs = [gang for gang, _ in verdicts if gang.workload.phase in EVALUATED_PHASES]
    _change_locked_rows(transitions, now)


def _change_locked_rows(transitions: Sequence[PhaseTransition], now: datetime) -> None:
    made = change_phases(transitions, actor=ACTOR, now=now) if transitions else []
    assert len(made) == len(transitions), "a locked row cannot leave its phase"


def _run_pods(workloads: Iterable[Workload]) -> dict[uuid.UUID, list[Pod]]:
    pods: dict[uuid.UUID, list[Pod]] = {workload.pk: [] for workload in workloads}
    for pod in PODS([*pods]):
        pods[pod.workload_id].append(pod)
    return pods


def change_phases_and_stop_pods(
    transitions: Sequence[PhaseTransition], now: datetime
) -> list[PhaseTransition]:
    """Change the phases of locked workloads, and stop the live pods of stopping workloads.

    Return the transitions that were made.
    """
    made = change_phases(transitions, actor=ACTOR, now=now)
    stop_live_pods([transition.workload.pk for transition in made if transition.to == Phase.STOPPING], now)
    return made


def stop_live_pods(workloads: Collection[uuid.UUID], now: datetime) -> int:
    """Stop the workloads' live pods, each with its workload's reason. Return the number of pods."""
    live = Pod.objects.filter(workload__in=workloads, state__in=(PodState.STARTING, PodState.RUNNING))
    reason = Workload.objects.filter(pk=OuterRef("workload_id")).values("reason")
    return live.update(state=PodState.STOPPING, stop_reason=Subquery(reason), since=now)


def _stop_gangs(gangs: Iterable[Gang], now: datetime) -> None:
    stopped = [gang.workload.pk for gang in gangs if gang.mark_pods_stopping()]
    if stopped:
        stop_live_pods(stopped, now)


def build_gang_facts(gang: Gang) -> GangFacts:
    workload, pods, parsed = gang.workload, gang.pods, gang.spec
    latest: dict[tuple[str, int], Pod] = {}
    replaced: list[Pod] = []
    in_order = pods if len(pods) == 1 else sorted(pods, key=_age_sort_key)
    for pod in in_order:
        earlier = latest.get((pod.role, pod.index))
        if earlier is not None and (earlier.state == PodState.LOST or _eviction_reason(earlier, gang)):
            replaced.append(earlier)
        latest[pod.role, pod.index] = pod
    return GangFacts(
        phase=workload.phase,
        next_phase=workload.next_phase,
        reason=workload.reason,
        message=workload.message,
        tree=parsed.tree,
        pods=[_build_pod_fact(pod, gang) for _, pod in sorted(latest.items())],
        retries=retry_state(workload, parsed),
        is_stale=workload.stale_since is not None,
        idle_roles=idle_role_names(parsed),
        replaced=[_build_pod_fact(pod, gang) for pod in replaced],
        peer_failures=workload.peer_failures,
        started_at=workload.started_at,
        checkpoint_at=workload.last_checkpoint_at,
    )


def _build_pod_fact(pod: Pod, gang: Gang) -> PodFact:
    return PodFact(
        pod.role,
        pod.index,
        pod.state,
        pod.exit_code,
        pod.signal,
        pod.message,
        pod.stop_reason,
        pod.node_id,
        pod.ended_at,
        pod.created_at,
        _eviction_reason(pod, gang),
    )


def _eviction_reason(pod: Pod, gang: Gang) -> str:
    if pod.state in (PodState.STOPPING, PodState.STOPPED):
        if pod.stop_reason == "Shrunk":
            return "Berth scaled the workload down"
        return f"Berth evicted it ({pod.stop_reason})" if pod.stop_reason not in ("", START_REJECTED) else ""
    return gang.evictions.get(pod.pk, "") if pod.state in LIVE_POD_STATES else ""


def _age_sort_key(pod: Pod) -> tuple[datetime, bool, str]:
    return pod.created_at, pod.state in LIVE_STATES, str(pod.pk)


def idle_role_names(parsed: ParsedSpec) -> frozenset[str]:
    roles = parsed.spec.all_roles if parsed.spec else ()
    return frozenset(role.name for role in roles if role.idle)


def _apply_verdicts(verdicts: Sequence[tuple[Gang, Verdict]], now: datetime) -> list[PhaseTransition]:
    _update_staleness([(gang.workload, step) for gang, step in verdicts if not step.to], now)
    names = node_names(step.failure for _, step in verdicts if step.retry and step.retry.other_node)
    columns = {gang.workload.pk: _verdict_columns(step, gang, now, names) for gang, step in verdicts}
    transitions = [
        _verdict_transition(gang, step, columns[gang.workload.pk]) for gang, step in verdicts if step.to
    ]
    for gang, step in verdicts:
        if step.to:
            gang.workload.phase, gang.workload.reason = step.to, step.reason
            gang.workload.message = step.message
        for name, value in columns[gang.workload.pk].items():
            setattr(gang.workload, name, value)
    return transitions


def _update_staleness(changes: Sequence[tuple[Workload, Verdict]], now: datetime) -> None:
    for is_stale in (False, True):
        workloads = [workload for workload, step in changes if step.stale is is_stale]
        if workloads:
            rows = Workload.objects.filter(pk__in=[workload.pk for workload in workloads])
            rows.update(stale_since=now if is_stale else None)
    if changes:
        announce.workloads_changed([workload for workload, _ in changes])


def _verdict_transition(gang: Gang, step: Verdict, columns: dict[str, Any]) -> PhaseTransition:
    workload = gang.workload
    return PhaseTransition(
        workload,
        [workload.phase],
        step.to,
        step.reason,
        step.message,
        data={"run": workload.run, **failure_event_data(step.failure, step.retry)},
        columns=columns,
        keep_reservations=_are_all_consolidated(gang.pods),
    )


def _are_all_consolidated(pods: Iterable[Pod]) -> bool:
    """Return whether every pod was stopped by a consolidation. If so, the new placement stays reserved."""
    return all(pod.state == PodState.STOPPED and pod.stop_reason == "Consolidated" for pod in pods)


def _verdict_columns(step: Verdict, gang: Gang, now: datetime, names: Mapping[int, str]) -> dict[str, Any]:
    """Return the new values of the workload's columns that the verdict changes.

    `names` are the nodes where the gang failed.
    """
    workload = gang.workload
    columns: dict[str, Any] = {}
    if step.stale is not None:
        columns["stale_since"] = now if step.stale else None
    if step.to == Phase.RUNNING:
        columns |= _start_columns(workload, _latest_start(gang.pods) or now)
    elif step.to and workload.phase == Phase.STARTING and (started_at := _latest_start(gang.pods)):
        columns |= _start_columns(workload, started_at)
    if step.to == Phase.STOPPING:
        columns |= {"next_phase": step.next_phase, "backoff_until": None}
    elif step.to:
        columns["stale_since"] = None
    if step.exit_code is not None:
        columns["exit_code"] = step.exit_code
    if step.failure is not None and step.next_phase == Phase.PENDING:
        columns |= failure_columns(workload, step.failure, step.retry, now, names)
        columns["start_refusal"] = step.start_failure
    if step.peer_failures is not None:
        columns |= peer_failure_columns(step.peer_failures, now)
    return columns


def _start_columns(workload: Workload, started_at: datetime) -> dict[str, Any]:
    return {"started_at": started_at, "first_started_at": workload.first_started_at or started_at}


def _latest_start(pods: Sequence[Pod]) -> datetime | None:
    """Return when the last pod started, or None if any pod has no start time."""
    starts = [pod.started_at for pod in pods]
    return max(start for start in starts if start) if starts and all(starts) else None


def workloads_to_evaluate() -> Iterable[uuid.UUID]:
    """Return the IDs of workloads to evaluate in every tick: stopping workloads, and active workloads without
    a live pod.
    """
    return {pk for (pk,) in prepared.fetch_all(TO_EVALUATE, [])}
