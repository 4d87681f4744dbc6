"""Background tasks of the scheduler. Each task may be interrupted or run twice."""

from datetime import timedelta

from django.conf import settings
from django.core.management import call_command
from django.utils import timezone

from berth.server.api.idempotency import delete_expired_responses
from berth.server.wiring import load_wiring, local_environments
from pools.environments.recipes import digests_in_use
from pools.services import environments, machines
from projects.code.collector import UNUSED, prune_code_store
from projects.code.stores import open_store
from projects.models import Leftover, WorkloadDeletion
from projects.services.code_fetches import delete_unused_fetches
from projects.services.notifications import deliveries
from projects.services.people import tokens
from projects.services.secrets import delete_unused_values
from projects.services.sessions import calls
from projects.services.workloads import channels, ports
from scheduler.loop.snapshots import drop_expired_cycles
from scheduler.reports.usage.budgets import record_budget_warnings
from scheduler.reports.utilization.storage import delete_old_measurements

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def clear_workspace(leftover: int) -> bool:
    """Delete a workspace and then its row. Return whether the row existed."""
    row = Leftover.objects.select_related("pool").filter(pk=leftover, kind=Leftover.Kind.WORKSPACE).first()
    if row is None:
        return False
    load_wiring().runtime_for(row.pool).drop_workspace(row.name)
    Leftover.objects.filter(pk=row.pk).delete()
    return True


def delete_expired() -> dict[str, int]:
    """Delete expired rows and files, and mark interrupted channels as ended.

    Return the number of affected rows or files, keyed by kind. The retention periods are described in
    docs/operations.md.
    """
    now = timezone.now()
    retention = {name: timedelta(days=days) for name, days in settings.BERTH_KEEP_DAYS.items()}
    call_command("clearsessions")
    return {
        "tokens": tokens.delete_ended_tokens(before=now - retention["tokens"]),
        "join tokens": machines.delete_expired_tokens(before=now - retention["tokens"]),
        "deletions": WorkloadDeletion.objects.filter(deleted_at__lt=now - DAY).delete()[0],
        "deliveries": deliveries.delete_old_deliveries(before=now - retention["deliveries"]),
        "local environments": len(local_environments().delete_unused_environments(digests_in_use())),
        "environments": environments.delete_unused_environments(before=now - DAY),
        "stored responses": _delete_expired_responses(),
        "interrupted channels": channels.close_abandoned_channels(now),
        "port links": ports.delete_links(before=now),
        "secret values": delete_unused_values(before=now - DAY),
        "calls": calls.delete_ended_session_calls(before=now - HOUR),
        "measurements": delete_old_measurements(
            minutes_before=now - retention["utilization by minute"],
            hours_before=now - retention["utilization by hour"],
        ),
        "snapshots": drop_expired_cycles(
            now, snapshot_retention=retention["snapshots"], cycle_retention=retention["cycles"]
        ),
    }


def delete_unused_code() -> int:
    """Delete code that no workload needs. Return the number of deleted trees and chunks."""
    retention = timedelta(days=settings.BERTH_KEEP_DAYS["code"])
    now = timezone.now()
    delete_unused_fetches(now - UNUSED)
    return prune_code_store(open_store(), now, retention=retention)


def check_budgets() -> int:
    """Warn about budgets that are nearly exhausted. Return the number of new warnings."""
    return record_budget_warnings(timezone.now())


def _delete_expired_responses() -> int:
    count = 0
    while more := delete_expired_responses():
        count += more
    return count
