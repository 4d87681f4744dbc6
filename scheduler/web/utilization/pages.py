"""Utilization panels on the workload and node pages."""

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from berth.server.web.pages import Request, signed_in
from pools.models import Node
from pools.selectors import nodes
from projects.access import visible_nodes
from projects.idle_gpus import idle_since
from projects.models import Workload
from projects.selectors import find_workload
from scheduler.reports.utilization import summary
from scheduler.web.utilization.charts import SPANS, utilization_over_time


@signed_in
@require_GET
def workload(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    workload = find_workload(request.actor, workload_id)
    return _render_panel(request, workload_utilization(workload, request.GET.get("span", ""), timezone.now()))


@signed_in
@require_GET
def node(request: Request, name: str) -> HttpResponse:
    node = nodes().filter(name=name, pk__in=visible_nodes(request.actor)).first()
    if node is None:
        raise Http404
    return _render_panel(request, node_utilization(node, request.GET.get("span", ""), timezone.now()))


def workload_utilization(workload: Workload, span: str, now: datetime) -> dict[str, Any]:
    pods = summary.summarize_pods(summary.running_allocations().filter(pod__workload=workload), now)
    use = summary.sum_utilization(pod.use for pod in pods)
    end = workload.ended_at or now
    return {
        "use": use,
        "begun": workload.run > 0 or bool(pods),
        "pods_used": pods,
        "idle": idle_since([workload.pk], now).get(workload.pk),
        "has_measured_devices": _has_measurements(device for pod in pods for device in pod.devices),
        "course": utilization_over_time(Q(pod__workload=workload), use, span=span, end=end, now=now),
        "spans": SPANS,
        "address": reverse("workload-utilization", args=[workload.pk]),
        "live": workload.ended_at is None,
    }


def node_utilization(node: Node, span: str, now: datetime) -> dict[str, Any]:
    """Return the node's total utilization. Any user may see it, because it contains no workload names."""
    pods = summary.summarize_pods(summary.running_allocations().filter(node=node), now)
    use = summary.sum_utilization(pod.use for pod in pods)
    return {
        "begun": True,
        "use": use,
        "devices": summary.devices_by_node([node], now).get(node.pk, ()),
        "node": node,
        "course": utilization_over_time(Q(pod__node=node), use, span=span, end=now, now=now),
        "spans": SPANS,
        "address": reverse("node-utilization", args=[node.name]),
        "live": True,
    }


def _has_measurements(devices: Iterable[summary.Device]) -> bool:
    return any(device.busy_milli is not None or device.memory_mib is not None for device in devices)


def _render_panel(request: Request, context: dict[str, Any]) -> HttpResponse:
    return render(request, "scheduler/utilization/panel.html", context)
