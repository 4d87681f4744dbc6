"""Describe for users which idle rule applies to a workload, and when it takes effect."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from berth.core.idle_rule import IdleRule, applicable_rule
from pools.models import NodePool
from projects.models import IdleWarning, InferenceEngine, Phase, Workload, WorkloadKind
from projects.models.workloads import ENDED_PHASES


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """Idle rule that applies to a workload. `owner` is where the rule comes from, such as "pool train"."""

    owner: str
    rule: IdleRule

    @property
    def sentence(self) -> str:
        return f"{self.rule.sentence} This is the rule of {self.owner}."


@dataclass(frozen=True, slots=True)
class IdleStatus:
    """Idle rules that apply to a workload in its pools, and the current warning, if any."""

    rules: tuple[AppliedRule, ...]
    warning: IdleWarning | None

    @property
    def sentence(self) -> str:
        """Return the text of the warning, if any. Otherwise, return the text of the rules, or "" if there are
        none.
        """
        return self.warning.message if self.warning else " ".join(rule.sentence for rule in self.rules)


def idle_status(workload: Workload) -> IdleStatus:
    """Return the idle rules that apply to a workload, and its current warning.

    Ended workloads, inference services and workloads without GPUs have no rules.
    """
    if workload.phase in ENDED_PHASES or not _has_gpus(workload) or _serves_requests(workload):
        return IdleStatus((), None)
    pools = [workload.pool] if workload.pool else NodePool.objects.filter(name__in=workload.pools)
    by_name = {pool.name: pool for pool in pools}
    names = [workload.pool.name] if workload.pool else [name for name in workload.pools if name in by_name]
    return IdleStatus(_applied_rules(workload, (by_name[name] for name in names)), current_warning(workload))


def current_warning(workload: Workload) -> IdleWarning | None:
    return current_warnings([workload]).get(workload.pk) if workload.phase == Phase.RUNNING else None


def current_warnings(workloads: Iterable[Workload]) -> dict[uuid.UUID, IdleWarning]:
    """Return the warnings that running workloads received in their current runs."""
    runs = {row.pk: row.run for row in workloads if row.phase == Phase.RUNNING}
    rows = IdleWarning.objects.filter(workload__in=runs) if runs else ()
    return {row.workload_id: row for row in rows if row.run == runs[row.workload_id]}


def _applied_rules(workload: Workload, pools: Iterable[NodePool]) -> tuple[AppliedRule, ...]:
    of_project = workload.project.idle_rule
    applied: dict[AppliedRule, None] = {}
    for pool in pools:
        owner = f"project {workload.project.name}" if of_project else f"pool {pool.name}"
        if rule := applicable_rule(of_project, pool.idle_rule):
            applied[AppliedRule(owner, rule)] = None
    return tuple(applied)


def _has_gpus(workload: Workload) -> bool:
    return bool(workload.gpu_milli_min or workload.gpu_milli_now)


def _serves_requests(workload: Workload) -> bool:
    if workload.kind == WorkloadKind.SERVICE:
        return True
    return InferenceEngine.objects.filter(workload=workload).exists()
