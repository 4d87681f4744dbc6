"""Decide whether an idle rule warns about a workload or suspends it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from berth.core.idle_rule import IdleRule


class IdleStep(StrEnum):
    WARN = "warn"
    SUSPEND = "suspend"
    WITHDRAW = "withdraw"  # withdraw the warning


@dataclass(frozen=True, slots=True)
class IssuedWarning:
    """Warning issued during one run of a workload, with the idle rule that applied then."""

    run: int
    since: datetime
    suspend_at: datetime | None
    rule: IdleRule


@dataclass(frozen=True, slots=True)
class IdleFacts:
    """Idle rule of a running workload, and when all of its GPUs became idle.

    `idle_since` is None while a GPU is not measured. During the warm-up, it lies in the future.
    """

    run: int
    rule: IdleRule | None
    idle_since: datetime | None
    warning: IssuedWarning | None


def next_step(facts: IdleFacts, now: datetime) -> IdleStep | None:
    """Return the next step that the idle rule requires, or None if no step is due."""
    rule, since, warning = facts.rule, facts.idle_since, facts.warning
    if warning is not None and (rule != warning.rule or facts.run != warning.run):
        return IdleStep.WITHDRAW
    if rule is None or since is None:
        return None
    if warning is None:
        return IdleStep.WARN if since <= now - timedelta(seconds=rule.after) else None
    if since > warning.since:
        return IdleStep.WITHDRAW
    is_due = warning.suspend_at is not None and now >= warning.suspend_at
    return IdleStep.SUSPEND if is_due else None
