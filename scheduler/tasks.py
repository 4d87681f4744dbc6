"""Task queue jobs of the scheduler; each may run twice or be interrupted.

Each task may run twice, or be killed half way."""

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
from scheduler.reports.usage.budgets import watch_budgets
from scheduler.reports.utilization.storage import forget_old
from scheduler.snapshots import drop_old

AN_HOUR = timedelta(hours=1)
A_DAY = timedelta(days=1)


def clear_workspace(leftover: int) -> bool:
    """True when it was still to be done. The row goes last: until then somebody comes again."""
    left = Leftover.objects.select_related("pool").filter(pk=leftover, kind=Leftover.Kind.WORKSPACE).first()
    if left is None:
        return False
    wired().runtime_of(left.pool).drop_workspace(left.name)
    Leftover.objects.filter(pk=left.pk).delete()
    return True


def keep_house() -> dict[str, int]:
    """What is of no use any more goes; how long things are kept is in docs/operations.md."""
    now = timezone.now()
    kept = {name: timedelta(days=days) for name, days in settings.BERTH_KEEP_DAYS.items()}
    call_command("clearsessions")
    return {
        "tokens": tokens.forget_ended(before=now - kept["tokens"]),
        "join tokens": machines.forget_tokens(before=now - kept["tokens"]),
        "deliveries": deliveries.forget_old(before=now - kept["deliveries"]),
        "environments": len(environments_here().clear(digests_in_use())),
        "environments known": environments.forget_unused(before=now - A_DAY),
        "answers": _old_answers(),
        "links to ports": ports.forget_links(before=now),
        "calls": calls.forget_ended(before=now - AN_HOUR),
        "use": forget_old(
            minutes_before=now - kept["utilization by minute"], hours_before=now - kept["utilization by hour"]
        ),
        "snapshots": drop_old(now, snapshots_kept=kept["snapshots"], cycles_kept=kept["cycles"]),
    }


def watch() -> int:
    """Whoever set a budget is told when much of it is used; returns how many warnings were new."""
    return watch_budgets(timezone.now())


def _old_answers() -> int:
    gone = 0
    while more := delete_expired_responses():
        gone += more
    return gone
