"""Utilization panels on the workload and node pages."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from berth.core.values.amounts import MILLI
from berth.core.wording.words import format_gpus
from berth.server.web.numbers import memory, thousandths, used_memory
from berth.server.web.pages import Request, signed_in
from pools.models import Node, NodePool
from pools.selectors import nodes
from projects.access import visible_nodes
from projects.models import Phase, Workload
from projects.queries.idle_gpus import MAX_MEASUREMENT_AGE, idle_since
from projects.selectors import find_workload
from scheduler.reports.utilization import summary
from scheduler.reports.utilization.over_time import MeanUtilization
from scheduler.web.utilization.charts import (
    DEFAULT_SPAN,
    LAST_RUN,
    SPANS,
    UtilizationChart,
    utilization_over_time,
)
from scheduler.web.utilization.pod_bars import PodBars, pod_bars

LAST_KNOWN = timedelta(days=1)  # pages do not show older measurements
# Column of each chart, and the minimum upper end of its y-axis, as in `charts.MIN_TOP`.
# A chart whose peak is below FLAT_PART of its y-axis looks empty.
CHART_TOPS: Mapping[str, tuple[str, int]] = {"cpu": ("cpu_milli", 100), "memory": ("memory_mib", 100)}
FLAT_PART = 0.05
FIRST_MEASUREMENT = timedelta(seconds=30)
MEASURED_PHASES = (Phase.RUNNING, Phase.STOPPING)


@signed_in
@require_GET
def workload(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    workload = find_workload(request.actor, workload_id)
    if request.GET.get("part") == "strip":
        context = {
            "workload": workload,
            "is_refresh": True,
            **utilization_strip_context(workload, timezone.now()),
        }
        return render(request, "scheduler/utilization/strip.html", context)
    return _render_panel(request, workload_utilization(workload, request.GET.get("span", ""), timezone.now()))


@signed_in
@require_GET
def node(request: Request, name: str) -> HttpResponse:
    node = nodes().filter(name=name, pk__in=visible_nodes(request.actor)).first()
    if node is None:
        raise Http404
    return _render_panel(request, node_utilization(node, request.GET.get("span", ""), timezone.now()))


def workload_utilization(workload: Workload, span: str, now: datetime) -> dict[str, Any]:
    pods = summary.summarize_pods(
        summary.running_allocations().filter(pod__workload=workload), now, LAST_KNOWN
    )
    use = summary.sum_utilization(pod.use for pod in pods)
    end, spans = workload.ended_at or now, _time_range_labels(workload)
    is_short = workload.started_at is not None and end - workload.started_at < SPANS[DEFAULT_SPAN][1]
    if LAST_RUN in spans and span not in spans and (is_short or workload.ended_at is not None):
        span = LAST_RUN
    return {
        "use": use,
        "begun": workload.run > 0 or bool(pods),
        "pods_used": pods,
        "idle": idle_since([workload.pk], now).get(workload.pk),
        "has_measured_devices": _has_measurements(device for pod in pods for device in pod.devices),
        "course": utilization_over_time(
            Q(pod__workload=workload),
            _current_utilization(use, now),
            span=span,
            end=end,
            now=now,
            started_at=workload.started_at,
        ),
        "spans": spans,
        "address": reverse("workload-utilization", args=[workload.pk]),
        "live": workload.ended_at is None,
    }


def _time_range_labels(workload: Workload) -> Mapping[str, str]:
    """Return the labels of the time ranges.

    For a finished workload, only ranges within its last run are included.
    """
    labels = {key: label for key, (label, _) in SPANS.items()}
    if workload.started_at is None:
        return labels
    if workload.ended_at is not None:
        length = workload.ended_at - workload.started_at
        labels = {key: label for key, (label, span) in SPANS.items() if span < length}
    return {LAST_RUN: "Last run" if workload.run > 1 else "Whole run"} | labels


@dataclass(frozen=True, slots=True)
class StripFigure:
    """Current usage of one resource, with a chart of the last hour.

    `lowest` contains the utilization and name of the least used pod, and the number of other pods with the
    same utilization. If there is only one pod, `lowest` describes its least used GPU, and the name is empty.
    """

    title: str
    used: str
    allocated: str
    chart: UtilizationChart | None
    old_since: datetime | None  # time of the measurement if it is no longer current
    reason: str = ""  # reason why nothing was measured
    lowest: tuple[str, str, int] | None = None


def is_unmeasured(workload: Workload, now: datetime) -> bool:
    """Return whether the run is starting, or is so new that it has not been measured yet."""
    is_new = workload.phase == Phase.RUNNING and now - workload.since < FIRST_MEASUREMENT
    return is_new or workload.phase == Phase.STARTING


def utilization_strip_context(workload: Workload, now: datetime) -> dict[str, Any]:
    """Return the template context for the strip above a workload's log.

    The figures are empty if nothing was measured.
    """
    is_measured = workload.phase in MEASURED_PHASES
    running = summary.running_allocations().filter(pod__workload=workload)
    pods = summary.summarize_pods(running, now, LAST_KNOWN) if is_measured else []
    bars = pod_bars(pods)
    return {
        "strip": _utilization_strip(workload, pods, bars, now),
        "strip_begin": now - SPANS["1h"][1],
        "strip_end": now,
        "pod_bars": bars,
        "is_unmeasured": is_unmeasured(workload, now),
    }


def _utilization_strip(
    workload: Workload, pods: Sequence[summary.PodSummary], bars: PodBars | None, now: datetime
) -> list[StripFigure]:
    use = summary.sum_utilization(pod.use for pod in pods)
    if not use.measured:
        return []
    course = utilization_over_time(
        Q(pod__workload=workload), _current_utilization(use, now), span="1h", end=now, now=now
    )
    charts = {chart.key: chart for chart in course.charts}
    cpu = "" if use.cpu_milli is None else thousandths(use.cpu_milli)
    figures = [
        (
            "cpu",
            "CPU",
            cpu,
            _allocated_cores(use.allocated_cpu_milli) if use.allocated_cpu_milli else "cores, none requested",
        ),
        (
            "memory",
            "Memory",
            "" if use.memory_mib is None else used_memory(use.memory_mib),
            f"of {memory(use.allocated_memory_mib)}" if use.allocated_memory_mib else "none requested",
        ),
    ]
    old_since = None if _is_current(use, now) else use.at
    for key in [key for key in charts if _is_flat_at_zero(key, course.rows)]:
        del charts[key]
    shown = [
        StripFigure(title, used, allocated, charts.get(key), old_since)
        for key, title, used, allocated in (*_gpu_figures(use), *figures)
    ]
    lowest = _lowest_utilization(pods, bars)
    if lowest and len(shown) > len(figures):
        average = "average of pods" if lowest[1] else "average of GPUs"
        shown[0] = replace(shown[0], allocated=average, lowest=lowest)
    if use.allocated_gpu_milli and len(shown) == len(figures):
        allocated, reason = f"of {format_gpus(use.allocated_gpu_milli)}", _unmeasured_reason(pods, now)
        shown.insert(0, StripFigure("GPU utilization and memory", "", allocated, None, None, reason))
    return shown


def _allocated_cores(cpu_milli: int) -> str:
    return f"of {thousandths(cpu_milli)} {'core' if cpu_milli == MILLI else 'cores'}"


def _is_flat_at_zero(key: str, points: Sequence[MeanUtilization]) -> bool:
    if key not in CHART_TOPS:
        return False
    column, least = CHART_TOPS[key]
    peak = max((getattr(point, column) or 0 for point in points), default=0)
    scale = max([least, *(getattr(point, f"allocated_{column}") or 0 for point in points)])
    return bool(peak < FLAT_PART * scale)


def _lowest_utilization(
    pods: Iterable[summary.PodSummary], bars: PodBars | None
) -> tuple[str, str, int] | None:
    """Return the utilization and name of the least used pod, and the number of other pods with the same
    utilization. For a single pod, return the utilization of its least used GPU, with an empty name. Return
    None if there is nothing to compare.
    """
    if bars is not None:
        lowest = f"{bars.lowest.rounded_percent}%", bars.lowest.pod, bars.equally_low
        return lowest if bars.has_lowest else None
    busy = [each.busy_milli for pod in pods for each in pod.devices if each.busy_milli is not None]
    return (f"{min(busy) / 10:.0f}%", "", 0) if len(busy) > 1 else None


def _gpu_figures(use: summary.Utilization) -> list[tuple[str, str, str, str]]:
    """Return (key, title, used, allocated) for both GPU charts, or an empty list if neither was measured."""
    busy = "" if use.busy_percent is None else f"{use.busy_percent:.0f}%"
    used_memory_text = "" if use.gpu_memory_mib is None else memory(use.gpu_memory_mib)
    if not use.allocated_gpu_milli or not (busy or used_memory_text):
        return []
    of_memory = f"of {memory(use.allocated_gpu_memory_mib)}" if use.allocated_gpu_memory_mib else ""
    average = "average " if use.allocated_gpu_milli > MILLI else ""
    return [
        ("gpu", "GPU utilization", busy, f"{average}of {format_gpus(use.allocated_gpu_milli)}"),
        ("gpu-memory", "GPU memory", used_memory_text, of_memory),
    ]


def _unmeasured_reason(pods: Iterable[summary.PodSummary], now: datetime) -> str:
    nodes = Node.objects.select_related("pool").in_bulk({pod.node_id for pod in pods})
    if not nodes or summary.devices_by_node(list(nodes.values()), now, LAST_KNOWN):
        return ""
    if all(map(_has_simulated_gpus, nodes.values())):
        return "simulated GPUs have no measurements"
    names = sorted(node.name for node in nodes.values())
    where = names[0] if len(names) == 1 else f"the {len(names)} nodes"
    return f"nvidia-smi is not responding on {where}"


def _has_simulated_gpus(node: Node) -> bool:
    return bool(settings.BERTH_DECLARED_GPUS) and node.pool.provider == NodePool.Provider.LOCAL


def _is_current(use: summary.Utilization, now: datetime) -> bool:
    return use.at is not None and use.at >= now - MAX_MEASUREMENT_AGE


def _current_utilization(use: summary.Utilization, now: datetime) -> summary.Utilization:
    """Return the utilization, with stale measurements set to None."""
    if _is_current(use, now):
        return use
    return replace(use, gpu_milli=None, gpu_memory_mib=None, cpu_milli=None, memory_mib=None)


def node_utilization(node: Node, span: str, now: datetime) -> dict[str, Any]:
    """Return a node's total utilization. Every user may see the total, because it names no workloads."""
    pods = summary.summarize_pods(summary.running_allocations().filter(node=node), now, LAST_KNOWN)
    use = summary.sum_utilization(pod.use for pod in pods)
    return {
        "begun": True,
        "use": use,
        "is_measured": bool(summary.devices_by_node([node], now, LAST_KNOWN)),
        "is_simulated": _has_simulated_gpus(node),
        "node": node,
        "course": utilization_over_time(
            Q(pod__node=node), _current_utilization(use, now), span=span, end=now, now=now, node=node
        ),
        "spans": {key: label for key, (label, _) in SPANS.items()},
        "address": reverse("node-utilization", args=[node.name]),
        "live": True,
    }


def _has_measurements(devices: Iterable[summary.DeviceMeasurements]) -> bool:
    return any(device.busy_milli is not None or device.memory_mib is not None for device in devices)


def _render_panel(request: Request, context: dict[str, Any]) -> HttpResponse:
    return render(request, "scheduler/utilization/panel.html", context)
