"""Open a workload's port from its page."""

import uuid

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_POST

from berth.server.web.pages import Request, signed_in
from projects.selectors import find_workload
from projects.visits.links import link_to


@signed_in
@require_POST
def open_port(request: Request, workload_id: uuid.UUID, port: str) -> HttpResponse:
    """Return a page that forwards to the port, because forms may not redirect to another origin."""
    workload = find_workload(request.acting, workload_id)
    url, _ = link_to(acting=request.acting, workload=workload, port=port, at=timezone.now())
    answer = render(request, "projects/workloads/port.html", {"workload": workload, "port": port, "url": url})
    answer.headers["Cache-Control"] = "no-store"
    answer.headers["Referrer-Policy"] = "no-referrer"
    return answer
