"""Terminal tab of a workload's page."""

import uuid
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from berth.core.errors import Conflict
from berth.server.web.pages import Request, signed_in
from projects import selectors
from projects.models import PodState, Workload
from projects.selectors import find_workload
from projects.services.workloads.channels import require_channel

MAX_PODS = 500
NO_POD = "No pod is running yet."


def load_terminal(request: Request, workload: Workload) -> dict[str, Any]:
    """Return the pods that can have a terminal, or the reason why there are none.

    Raises Forbidden if the user may not run commands in the pods.
    """
    try:
        require_channel(request.actor, workload)
    except Conflict as obstacle:
        return {"terminal_obstacle": obstacle.detail}
    pods = selectors.pods(request.actor).filter(
        workload=workload, run=workload.run, state__in=(PodState.RUNNING, PodState.STOPPING)
    )
    rows = list(pods.order_by("rank", "role", "index")[:MAX_PODS])
    return {"terminal_pods": rows, "terminal_obstacle": "" if rows else NO_POD}


@signed_in
@require_GET
def pods(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    context = load_terminal(request, find_workload(request.actor, workload_id))
    return render(request, "scheduler/workloads/terminal_pods.html", context)
