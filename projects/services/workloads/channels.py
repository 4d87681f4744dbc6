"""Permission to run commands in a workload's pods, and the audit entries of these commands.

The entries name the pod and the duration, but never the command or what was typed.
"""

from datetime import datetime

from django.db import transaction

from berth.core.errors import Conflict
from projects.access import Action, require
from projects.actor import Actor
from projects.models import Phase, Pod, Workload
from projects.services import audit


def require_channel(actor: Actor, workload: Workload) -> None:
    """Raise NotFound, Forbidden, or Conflict if the workload is not running."""
    require(actor, Action.OPERATE, workload)
    if workload.phase != Phase.RUNNING:
        raise Conflict(
            f"{workload.name} is {workload.phase}. Commands can only be run in a workload that is running."
        )


def record_opened(*, actor: Actor, pod: Pod) -> None:
    with transaction.atomic():
        after = _describe(pod)
        audit.write_entry(actor, "open shell", pod.workload, after=after, project=pod.workload.project)


def record_closed(
    *, actor: Actor, pod: Pod, opened_at: datetime, closed_at: datetime, exit_code: int | None
) -> None:
    seconds = max(round((closed_at - opened_at).total_seconds()), 0)
    after = {**_describe(pod), "seconds": seconds, "exit_code": exit_code}
    with transaction.atomic():
        audit.write_entry(actor, "close shell", pod.workload, after=after, project=pod.workload.project)


def _describe(pod: Pod) -> dict[str, object]:
    return {"pod": f"{pod.role}-{pod.index}", "run": pod.run}
