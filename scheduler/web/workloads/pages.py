"""Page of one workload."""

import uuid
from datetime import datetime
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from berth.server.web.pages import Request, page, signed_in
from projects.access import Action, may
from projects.acting import Acting
from projects.models import Phase, Workload
from projects.selectors import find_workload
from projects.services.workloads import ports
from projects.web.workloads.pages import steps_for
from scheduler.web.utilization.pages import used_by
from scheduler.web.workloads import details
from scheduler.web.workloads.log import runs_of
from scheduler.web.workloads.timeline import timeline


@signed_in
@require_GET
def detail(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    workload = find_workload(request.acting, workload_id)
    context = {
        **used_by(workload, request.GET.get("span", ""), timezone.now()),
        **workload_context(request, workload),
    }
    return page(request, "scheduler/workloads/page.html", context, inner="scheduler/workloads/changes.html")


def workload_context(request: Request, workload: Workload) -> dict[str, Any]:
    acting = request.acting
    now, earlier = details.placed(acting, workload)
    as_victim, as_preemptor = details.as_victim(acting, workload), details.as_preemptor(acting, workload)
    return {
        "workload": workload,
        "steps": steps_for(workload) if may(acting, Action.OPERATE, workload) else [],
        "ports": _open_ports(acting, workload),
        "waiting": details.waiting(acting, workload),
        "pods": now,
        "earlier": earlier,
        "log_runs": runs_of([*now, *earlier]),
        "timeline": timeline(acting, workload, as_victim, as_preemptor),
        "as_victim": as_victim,
        "as_preemptor": as_preemptor,
        "spec": details.written(workload),
        "backoff_until": _active_backoff(workload, timezone.now()),
    }


def _open_ports(acting: Acting, workload: Workload) -> list[str]:
    """Return the names of the ports that the reader can open now."""
    names = [each["name"] for each in ports.declared_ports(workload)]
    can = bool(names) and bool(settings.BERTH_APPS_ORIGIN) and workload.phase == Phase.RUNNING
    return names if can and may(acting, Action.OPERATE, workload) else []


def _active_backoff(workload: Workload, now: datetime) -> datetime | None:
    """Return the end of the workload's backoff, or None if there is no active backoff."""
    until = workload.backoff_until
    return until if until is not None and until > now and workload.phase == Phase.PENDING else None
