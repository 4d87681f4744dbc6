"""Task queue jobs of the scheduler; each may run twice or be interrupted."""

from datetime import timedelta

from django.conf import settings
from django.core.management import call_command
from django.utils import timezone

from berth.server.api.idempotency import delete_expired_responses
from berth.server.wiring import environments_here, wired
from pools.environments.recipes import digests_in_use
from pools.services import environments, machines
from projects.models import Leftover
from projects.services.notifications import deliveries
from projects.services.people import tokens
from projects.services.sessions import calls
from projects.services.workloads import ports
from scheduler.loop.snapshots import drop_old
from scheduler.reports.usage.budgets import watch_budgets
from scheduler.reports.utilization.storage import forget_old

AN_HOUR = timedelta(hours=1)
A_DAY = timedelta(days=1)


def clear_workspace(leftover: int) -> bool:
    """Delete a workspace, then its row, so that a retry is possible. Return False if the row is gone."""
    row = Leftover.objects.select_related("pool").filter(pk=leftover, kind=Leftover.Kind.WORKSPACE).first()
    if row is None:
        return False
    wired().runtime_of(row.pool).drop_workspace(row.name)
    Leftover.objects.filter(pk=row.pk).delete()
    return True


def delete_expired() -> dict[str, int]:
    """Delete expired rows and files; return the number of each kind (retention: docs/operations.md)."""
    now = timezone.now()
    retention = {name: timedelta(days=days) for name, days in settings.BERTH_KEEP_DAYS.items()}
    call_command("clearsessions")
    return {
        "tokens": tokens.delete_ended(before=now - retention["tokens"]),
        "join tokens": machines.delete_expired_tokens(before=now - retention["tokens"]),
        "deliveries": deliveries.delete_old(before=now - retention["deliveries"]),
        "environments": len(environments_here().clear(digests_in_use())),
        "environments known": environments.delete_unused(before=now - A_DAY),
        "answers": _delete_expired_responses(),
        "links to ports": ports.delete_links(before=now),
        "calls": calls.delete_ended(before=now - AN_HOUR),
        "use": forget_old(
            minutes_before=now - retention["utilization by minute"],
            hours_before=now - retention["utilization by hour"],
        ),
        "snapshots": drop_old(now, snapshots_kept=retention["snapshots"], cycles_kept=retention["cycles"]),
    }


def check_budgets() -> int:
    """Warn about budgets that are nearly used up; return the number of new warnings."""
    return watch_budgets(timezone.now())


def _delete_expired_responses() -> int:
    count = 0
    while more := delete_expired_responses():
        count += more
    return count
