"""Open a workload's port from its page."""

import uuid

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_POST

from berth.server.web.pages import Request, signed_in
from projects.port_proxy.links import create_port_link
from projects.selectors import find_workload


@signed_in
@require_POST
def open_port(request: Request, workload_id: uuid.UUID, port: str) -> HttpResponse:
    """Return a page that forwards the browser to the port, because a form cannot redirect to a different
    origin.
    """
    workload = find_workload(request.actor, workload_id)
    url, _ = create_port_link(actor=request.actor, workload=workload, port=port, at=timezone.now())
    response = render(
        request, "projects/workloads/port.html", {"workload": workload, "port": port, "url": url}
    )
    response.headers["Cache-Control"] = "no-store"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
