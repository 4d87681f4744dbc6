"""Warn about and suspend workloads with idle GPUs, according to the rules of pools and projects.

All state is stored in rows.
"""

import json
import logging
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from berth.core.idle_rule import IdleRule, read_rule
from berth.core.values.amounts import MILLI
from berth.core.wording.words import format_count
from berth.db.loops.lease import fenced_transaction
from berth.db.queries import prepared
from berth.db.writes.set_writes import write_with_bisection
from projects.actor import Actor
from projects.engine.idle_rules import IdleFacts, IdleStep, IssuedWarning, next_step
from projects.models import Audit, IdleWarning, Phase, Workload
from projects.queries.idle_gpus import MAX_MEASUREMENT_AGE
from projects.services import announce, audit, events
from projects.services.notifications.deliveries import IdleReport, enqueue_idle_notifications
from projects.services.workloads.phase_transitions import PhaseTransition
from scheduler.loop.context import SchedulerContext
from scheduler.loop.dispatch.lifecycle.gangs import ACTOR, change_phases_and_stop_pods

log = logging.getLogger(__name__)

IDLE_RULES_INTERVAL = timedelta(seconds=20)
SUSPENDED_REASON = "IdleGpus"
WARNING_KIND, WITHDRAWAL_KIND = "idle_warning", "idle_warning_withdrawn"

HAS_RULES = """
    SELECT EXISTS (SELECT FROM pools_nodepool WHERE idle_rule <> '{}')
        OR EXISTS (SELECT FROM projects_project WHERE idle_rule <> '{}')
        OR EXISTS (SELECT FROM projects_idlewarning)
"""
# Running workloads that have been warned, or whose GPUs have all been idle for as long as the rule allows.
# Inference services are not included, because their autoscalers decide how many GPUs they need.
DUE = """
    WITH ruled AS (
        SELECT workload.id, workload.run,
               CASE WHEN project.idle_rule <> '{}' THEN project.idle_rule ELSE pool.idle_rule END AS rule,
               CASE WHEN project.idle_rule <> '{}' THEN 'project ' || project.name
                    ELSE 'pool ' || pool.name END AS rule_owner
          FROM projects_workload AS workload
          JOIN projects_project AS project ON project.id = workload.project_id
          JOIN pools_nodepool AS pool ON pool.id = workload.pool_id
         WHERE workload.phase = 'running' AND workload.kind <> 'service' AND workload.gpu_milli_now > 0
           AND (project.idle_rule <> '{}' OR pool.idle_rule <> '{}')
           AND NOT EXISTS (SELECT FROM projects_inferenceengine AS engine
                            WHERE engine.workload_id = workload.id)
    ), measured AS (
        SELECT ruled.id, ruled.run, ruled.rule, ruled.rule_owner,
               CASE WHEN bool_and(pod.state = 'running' AND use.busy_at IS NOT NULL AND use.at >= %(recent)s
                                  AND NOT jsonb_path_exists(use.devices, '$[*][0] ? (@ == null)'))
                    THEN max(greatest(use.busy_at, pod.started_at
                             + (ruled.rule->>'warmup')::int * interval '1 second')) END AS since
          FROM ruled
          JOIN projects_pod AS pod ON pod.workload_id = ruled.id
          JOIN scheduler_allocation AS held ON held.pod_id = pod.id AND held.released_at IS NULL
           AND cardinality(held.devices) > 0
          LEFT JOIN scheduler_podutilization AS use ON use.pod_id = pod.id
         WHERE ruled.rule->>'action' <> 'none'
         GROUP BY ruled.id, ruled.run, ruled.rule, ruled.rule_owner
    )
    SELECT coalesce(measured.id, warning.workload_id), measured.run, measured.rule, measured.rule_owner,
           measured.since, warning.run, warning.since, warning.suspend_at, warning.rule
      FROM measured FULL JOIN projects_idlewarning AS warning ON warning.workload_id = measured.id
     WHERE warning.workload_id IS NOT NULL
        OR measured.since <= %(now)s - (measured.rule->>'after')::int * interval '1 second'
"""
# Mean utilization in percent of each workload's busiest pod since the workload became idle.
BUSIEST = """
    SELECT workload_id, max(percent) FROM (
        SELECT idle.workload_id, 100 * sum(point.gpu_busy_milli_seconds)
               / nullif(sum(point.gpu_milli_seconds), 0) AS percent
          FROM unnest(%(workloads)s::uuid[], %(since)s::timestamptz[]) AS idle(workload_id, since)
          JOIN projects_pod AS pod ON pod.workload_id = idle.workload_id
          JOIN scheduler_utilizationpoint AS point ON point.pod_id = pod.id AND point.step = 60
           AND point.at >= idle.since
         GROUP BY idle.workload_id, pod.id) AS each_pod
     GROUP BY workload_id
"""


@dataclass(frozen=True, slots=True)
class DueStep:
    workload: uuid.UUID
    facts: IdleFacts
    owner: str
    step: IdleStep

    @property
    def idle_time(self) -> tuple[IdleRule, datetime]:
        """Rule that applies, and the time when all GPUs became idle."""
        rule, since = self.facts.rule, self.facts.idle_since
        assert rule is not None and since is not None, "unmeasured workloads are neither warned nor suspended"
        return rule, since


def apply_idle_rules(now: datetime, context: SchedulerContext) -> int:
    """Warn about and suspend workloads according to their idle rules.

    Return the number of new warnings, withdrawn warnings and suspensions.
    """
    if prepared.fetch_one(HAS_RULES, ()) == (False,) or not (due := _due_steps(now)):
        return 0
    by_pk = {each.workload: each for each in due}
    with fenced_transaction(context.held_lease):
        rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
        locked = list(rows.filter(pk__in=by_pk).order_by("pk"))
        steps = [(row, each) for row in locked if (each := by_pk[row.pk]).facts.run == row.run]
        running = [(row, each) for row, each in steps if row.phase == Phase.RUNNING]
        rejected = write_with_bisection(running, lambda part: _write_steps(part, now))
        stopped = by_pk.keys() - {row.pk for row, _ in running}
        IdleWarning.objects.filter(workload__in=stopped).delete()
    for (workload, _), reason in rejected:
        log.error("the idle rule could not be applied to workload %s: %s", workload.pk, reason)
    return len(running) - len(rejected)


def _due_steps(now: datetime) -> list[DueStep]:
    due = []
    for row in prepared.fetch_all(DUE, {"now": now, "recent": now - MAX_MEASUREMENT_AGE}):
        workload, run, rule, owner, since, *warned = row
        warning_run, warning_since, suspend_at, warning_rule = warned
        warning = None
        if warning_rule is not None:
            rule_then = IdleRule(**json.loads(warning_rule))
            warning = IssuedWarning(warning_run, warning_since, suspend_at, rule_then)
        facts = IdleFacts(run or warning_run, read_rule(json.loads(rule or "{}")), since, warning)
        if step := next_step(facts, now):
            due.append(DueStep(workload, facts, owner or "", step))
    return due


def _write_steps(steps: Sequence[tuple[Workload, DueStep]], now: datetime) -> None:
    by_step: dict[IdleStep, list[tuple[Workload, DueStep]]] = {step: [] for step in IdleStep}
    for workload, due in steps:
        by_step[due.step].append((workload, due))
    removed = [workload for workload, due in steps if due.step is not IdleStep.WARN]
    if removed:
        IdleWarning.objects.filter(workload__in=removed).delete()
    _withdraw_warnings([workload for workload, _ in by_step[IdleStep.WITHDRAW]])
    _record_warnings(by_step[IdleStep.WARN], now)
    _suspend(by_step[IdleStep.SUSPEND], now)
    announce.workloads_changed([workload for workload, _ in steps])


def _record_warnings(steps: Sequence[tuple[Workload, DueStep]], now: datetime) -> None:
    if not steps:
        return
    warnings = [_build_warning(workload, due, now) for workload, due in steps]
    IdleWarning.objects.bulk_create(warnings)
    numbers = _event_numbers(steps)
    events.record_all(
        events.build(
            WARNING_KIND, warning.workload, warning.message, actor=ACTOR, data=numbers[warning.workload_id]
        )
        for warning in warnings
    )
    enqueue_idle_notifications(
        [IdleReport(row.workload, "IdleWarning", row.message, row.since) for row in warnings], now
    )


def _build_warning(workload: Workload, due: DueStep, now: datetime) -> IdleWarning:
    rule, since = due.idle_time
    suspend_at = now + rule.grace_period if rule.action == "suspend" else None
    message = f"{_idle_sentence(workload, rule, since)} "
    if suspend_at is None:
        message += f"Use them, or cancel the workload. This warning comes from the idle rule of {due.owner}."
    else:
        message += (
            f"Under the idle rule of {due.owner}, the workload will be suspended at "
            f"{_format_time(suspend_at)}, unless a GPU is used at {rule.below}% or more before then."
        )
    return IdleWarning(
        workload=workload, run=workload.run, since=since, at=now, suspend_at=suspend_at, rule=asdict(rule),
        message=message,
    )  # fmt: skip


def _suspend(steps: Sequence[tuple[Workload, DueStep]], now: datetime) -> None:
    if not steps:
        return
    numbers, transitions, reports = _event_numbers(steps), [], []
    for workload, due in steps:
        rule, since = due.idle_time
        message = f"Suspended under the idle rule of {due.owner}. {_idle_sentence(workload, rule, since)}"
        columns = {"next_phase": Phase.SUSPENDED}
        transitions.append(
            PhaseTransition(
                workload, [Phase.RUNNING], Phase.STOPPING, SUSPENDED_REASON, message,
                data=numbers[workload.pk], columns=columns,
            )
        )  # fmt: skip
        reports.append(IdleReport(workload, SUSPENDED_REASON, message, since))
    made = change_phases_and_stop_pods(transitions, now)
    assert len(made) == len(transitions), "a locked row cannot leave its phase"
    Audit.objects.bulk_create(_audit_entry(workload, numbers[workload.pk]) for workload, _ in steps)
    enqueue_idle_notifications(reports, now)


def _audit_entry(workload: Workload, numbers: Mapping[str, Any]) -> Audit:
    return audit.build_entry(
        Actor.system(ACTOR), "suspend_idle", workload, before={"phase": Phase.RUNNING},
        after={"phase": Phase.SUSPENDED, **numbers}, project=workload.project,
    )  # fmt: skip


def _withdraw_warnings(workloads: Collection[Workload]) -> None:
    events.record_all(
        events.build(
            WITHDRAWAL_KIND,
            workload,
            "The idle warning no longer applies: a GPU was used, its measurements were interrupted, or the "
            "rule changed.",
            actor=ACTOR,
        )
        for workload in workloads
    )


def _event_numbers(steps: Sequence[tuple[Workload, DueStep]]) -> dict[uuid.UUID, dict[str, Any]]:
    idle = {"workloads": [row.pk for row, _ in steps], "since": [due.idle_time[1] for _, due in steps]}
    busiest = dict(prepared.fetch_all(BUSIEST, idle))
    return {
        workload.pk: {
            "rule": due.idle_time[0].text,
            "rule_of": due.owner,
            "idle_since": due.idle_time[1].isoformat(timespec="seconds"),
            "gpus": workload.gpu_milli_now / MILLI,
            "mean_percent": None if (mean := busiest.get(workload.pk)) is None else round(mean, 2),
        }
        for workload, due in steps
    }


def _idle_sentence(workload: Workload, rule: IdleRule, since: datetime) -> str:
    gpus = format_count(workload.gpu_milli_now / MILLI, "GPU")
    return f"{gpus} stayed below {rule.below}% since {_format_time(since)}."


def _format_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
