"""Health of the scheduler: leader, last cycle and invariants."""

from datetime import datetime
from typing import Any

from berth.db.models import Lease
from projects.models import Phase, Workload
from scheduler.models import Cycle
from scheduler.reports.invariants import SCHEDULER_LEASE, check_invariants


def is_scheduler_running(now: datetime) -> bool:
    """Return whether a leader holds an unexpired lease, so that cycles are running."""
    return Lease.objects.filter(name=SCHEDULER_LEASE, expires_at__gt=now).exists()


def health_document(now: datetime) -> dict[str, Any]:
    """Return the leader, the last cycle and the other health values as a JSON object."""
    lease = Lease.objects.filter(name=SCHEDULER_LEASE).first()
    cycle = Cycle.objects.defer("snapshot", "plan").order_by("-id").first()
    return {
        "leader": None
        if lease is None or not lease.holder
        else {
            "holder": lease.holder,
            "epoch": lease.epoch,
            "renewed_at": lease.renewed_at,
            "expires_at": lease.expires_at,
            "alive": lease.expires_at > now,
        },
        "last_cycle": None
        if cycle is None
        else {
            "id": cycle.pk,
            "at": cycle.at,
            "trigger": cycle.trigger,
            "observe_ms": cycle.observe_ms,
            "decide_ms": cycle.decide_ms,
            "commit_ms": cycle.commit_ms,
            "applied": cycle.applied,
            "stale": cycle.stale,
            "evictions": cycle.evictions,
            "notes": cycle.notes,
        },
        "invariants": [
            {"name": invariant.name, "ok": invariant.ok, "detail": invariant.detail}
            for invariant in check_invariants(now)
        ],
        "pending": Workload.objects.filter(phase__in=(Phase.PENDING, Phase.RESERVED)).count(),
        "wake": None
        if lease is None
        else {"last_renewal_seconds": max(0.0, (now - lease.renewed_at).total_seconds())},
    }
