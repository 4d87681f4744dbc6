"""Workload page."""

import uuid
from datetime import datetime
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from berth.core.errors import RateLimited
from berth.server.web.pages import Request, page, signed_in
from projects.access import Action, may
from projects.actor import Actor
from projects.models import Phase, Workload
from projects.selectors import find_workload
from projects.services.workloads import ports
from projects.web.workloads.pages import steps_for
from scheduler.reports.visibility import viewer_for
from scheduler.reports.what_if.smallest_change import find_smallest_change
from scheduler.web.utilization.pages import workload_utilization
from scheduler.web.workloads import details
from scheduler.web.workloads.log import pods_by_run
from scheduler.web.workloads.timeline import timeline


@signed_in
@require_GET
def detail(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    workload = find_workload(request.actor, workload_id)
    context = {
        **workload_utilization(workload, request.GET.get("span", ""), timezone.now()),
        **workload_context(request, workload),
    }
    return page(request, "scheduler/workloads/page.html", context, inner="scheduler/workloads/changes.html")


@signed_in
@require_GET
def smallest_change(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    """Return a card with the smallest change that would start the workload now, or nothing.

    The page loads the card separately, because finding the change may take seconds on a large cluster.
    """
    workload = find_workload(request.actor, workload_id)
    if workload.phase != Phase.PENDING:
        return HttpResponse()
    try:
        sentence = find_smallest_change(workload, viewer_for(request.actor)).sentence
    except RateLimited as error:
        sentence = error.detail
    return render(request, "scheduler/workloads/smallest_change.html", {"sentence": sentence})


def workload_context(request: Request, workload: Workload) -> dict[str, Any]:
    actor = request.actor
    now, earlier = details.pod_placements(actor, workload)
    evictions_as_victim, evictions_as_preemptor = (
        details.evictions_as_victim(actor, workload),
        details.evictions_as_preemptor(actor, workload),
    )
    return {
        "workload": workload,
        "steps": steps_for(workload) if may(actor, Action.OPERATE, workload) else [],
        "ports": _open_ports(actor, workload),
        "pending": details.pending_detail(actor, workload),
        "pods": now,
        "earlier": earlier,
        "log_runs": pods_by_run([*now, *earlier]),
        "timeline": timeline(actor, workload, evictions_as_victim, evictions_as_preemptor),
        "as_victim": evictions_as_victim,
        "as_preemptor": evictions_as_preemptor,
        "spec": details.document_text(workload),
        "backoff_until": _active_backoff(workload, timezone.now()),
        "image": _image(workload),
    }


def _image(workload: Workload) -> dict[str, Any] | None:
    """Return the document's image, with the digest from the latest run for which it is known."""
    reference = workload.spec.get("image") if isinstance(workload.spec, dict) else None
    if not reference:
        return None
    newest = workload.images.exclude(digest="").order_by("-run").first()
    return {"reference": reference, "digest": newest and newest.digest, "run": newest and newest.run}


def _open_ports(actor: Actor, workload: Workload) -> list[str]:
    """Return the names of the ports that the user can open now."""
    names = [port["name"] for port in ports.declared_ports(workload)]
    can = bool(names) and bool(settings.BERTH_APPS_ORIGIN) and workload.phase == Phase.RUNNING
    return names if can and may(actor, Action.OPERATE, workload) else []


def _active_backoff(workload: Workload, now: datetime) -> datetime | None:
    """Return when the workload's backoff ends, or None if it is not in backoff."""
    until = workload.backoff_until
    return until if until is not None and until > now and workload.phase == Phase.PENDING else None
