"""Page that explains the fair share of a department or project."""

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_GET

from berth.server.web.pages import Request, page, signed_in
from pools.models import NodePool
from projects.selectors import find_owner
from scheduler.reports.fair_share.trace import UNITS, share_trace


@signed_in
@require_GET
def trace(request: Request, kind: str, name: str, pool: str) -> HttpResponse:
    owner, where = find_owner(request.actor, kind, name), get_object_or_404(NodePool, name=pool)
    traces = share_trace(actor=request.actor, owner=owner, pool=where)
    context = {
        "owner": owner,
        "pool": where,
        "chapters": [(trace_, UNITS[trace_.resource]) for trace_ in traces],
        "others": [(trace_, UNITS[trace_.resource]) for trace_ in traces if trace_.resource != "gpu"],
        "back": f"{reverse('quotas')}?pool={where.name}",
    }
    return page(
        request, "scheduler/fair_share/trace.html", context, inner="scheduler/fair_share/trace_body.html"
    )
