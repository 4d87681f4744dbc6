"""Workload page with its tabs."""

import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from berth.core.errors import RateLimited
from berth.server.web.pages import Request, page, signed_in
from projects.access import Action, may
from projects.actor import Actor
from projects.models import Phase, Workload
from projects.queries.costs import workload_cost, workload_gpu_hours
from projects.queries.idle_gpus import idle_since
from projects.queries.idle_rules import idle_status
from projects.selectors import find_workload
from projects.services.code import describe_code
from projects.services.dependencies import dependency_statuses, find_dependents
from projects.services.workloads import current_quota_warnings, is_editable, ports, resubmission_obstacle
from projects.services.workloads.pending.unschedulable import REASON as UNSCHEDULABLE
from projects.web.workloads.actions import allowed_actions
from projects.web.workloads.listing.replicas import load_replicas
from projects.web.workloads.listing.sorting import ALL_RUNNING
from projects.web.workloads.request_labels import set_request_labels
from projects.web.workloads.resubmission import latest_resubmission, resubmission_source
from scheduler.engine.smallest_change.change import ChangeKind
from scheduler.engine.smallest_change.search import Outcome
from scheduler.models import Eviction
from scheduler.reports.evictions.rendering import RenderedEviction
from scheduler.reports.explanations.edits import unevaluated_edit_time
from scheduler.reports.explanations.workload import PENDING_PHASES, expected_start
from scheduler.reports.health import is_scheduler_running
from scheduler.reports.log_errors import ERROR_PATTERN
from scheduler.reports.queues.unknown_start import unknown_start_summary
from scheduler.reports.selectors import evictions
from scheduler.reports.visibility import viewer_for
from scheduler.reports.what_if.smallest_change import NOT_PENDING, RenderedChange, find_smallest_change
from scheduler.web.utilization.pages import utilization_strip_context, workload_utilization
from scheduler.web.workloads import details
from scheduler.web.workloads.failure import (
    describe_failure,
    failure_fact,
    first_failed_pod,
    last_pool,
    other_failures,
)
from scheduler.web.workloads.failure_line import FAILURE_PATTERN
from scheduler.web.workloads.files.code import role_commands
from scheduler.web.workloads.files.outputs import load_outputs
from scheduler.web.workloads.logs.log import pods_by_run
from scheduler.web.workloads.metrics import load_metrics
from scheduler.web.workloads.pending.change_facts import build_change_facts
from scheduler.web.workloads.pending.change_link import (
    describe_responsible_admins,
    link_to_change,
    link_workloads,
)
from scheduler.web.workloads.pending.copy_forecast import describe_copy
from scheduler.web.workloads.pending.predicted_start import find_accepted_prediction, link_prediction
from scheduler.web.workloads.pod_groups import pod_table
from scheduler.web.workloads.terminal import load_terminal
from scheduler.web.workloads.timeline.entries import TimelineEntry, timeline

Context = dict[str, Any]
EVICTIONS_ON_OVERVIEW, EVENTS_ON_OVERVIEW = 5, 6
PLACED = r"[\d,]+ pods? with .+ on .+\.$"  # pattern for messages about a placement, not about start progress
PHASES_WITH_PODS = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
REFRESH_HEADER = "Berth-Refresh"  # sent by live.js with its automatic requests
TABS_OF_RUNS = frozenset(("logs", "terminal", "metrics", "outputs", "resources"))


@dataclass(frozen=True, slots=True)
class Tab:
    """Tab of the workload page: its route, title, and the data that only this tab shows.

    `live_part` is the part of the page that is refreshed after changes. If it is empty, only the header is
    refreshed.
    """

    route: str
    title: str
    load: Callable[[Request, Workload], Context]
    live_part: str = ""


@signed_in
@require_GET
def detail(request: Request, workload_id: uuid.UUID, tab: str = "overview") -> HttpResponse:
    """Show one tab of a workload's page."""
    workload = find_workload(request.actor, workload_id)
    chosen, header = TABS[tab], _header_context(request, workload, tab)
    context = {
        **header,
        **chosen.load(request, workload),
        "tab": tab,
        "tabs": [
            (key, each.title, reverse(each.route, args=[workload.pk]))
            for key, each in TABS.items()
            if key == tab or _has_contents(key, workload, is_operator=header["is_operator"])
        ],
        "tab_template": f"scheduler/workloads/{tab}.html",
        "live_part": chosen.live_part,
    }
    return page(request, "scheduler/workloads/page.html", context, inner="scheduler/workloads/changes.html")


@signed_in
@require_GET
def smallest_change(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    """Return a card with the smallest change that would start the workload now.

    The response is empty if the page already explains what the workload waits for. If no dry run can start
    when the page is refreshed, the response is 204, so that the page keeps its card.
    """
    workload = find_workload(request.actor, workload_id)
    if workload.phase != Phase.PENDING:
        return HttpResponse()
    is_refresh = REFRESH_HEADER in request.headers
    try:
        answer = find_smallest_change(workload, viewer_for(request.actor), is_background=is_refresh)
    except RateLimited as error:
        if is_refresh:
            return HttpResponse(status=204)
        answer = RenderedChange("", error.detail)
    change = answer.change
    if workload.held or (change and change["kind"] == ChangeKind.BACKOFF_OVER):
        return HttpResponse()
    in_array = request.GET.get("page") == "array"
    if answer.outcome == Outcome.NOT_NEEDED and answer.sentence != NOT_PENDING:
        if find_accepted_prediction(request, workload):
            return HttpResponse()
        response = render(request, "scheduler/workloads/next_cycle.html", {"in_array": in_array})
        if not in_array:
            response["Berth-Needs"] = "why"  # this element is gone if the workload has started meanwhile
        return response
    link = link_to_change(request.actor, workload, change) if change else None
    alternative = answer.change_without_evictions
    note = describe_responsible_admins(request.actor, workload.project, change) if change else ""
    note = note or (link.note if link else "")
    now = timezone.now()
    start = None if unevaluated_edit_time(workload) else expected_start(workload, now)[0]
    lowers_request = change is not None and change["kind"] == ChangeKind.REQUEST_LOWERED
    context = {
        "workload": workload,
        "started_gpus": 0 if lowers_request else workload.gpu_milli_min,
        "sentence": link_workloads(request.actor, answer.sentence, answer.affected),
        "facts": build_change_facts(request.actor, workload.project, answer, now),
        "start": start if start is not None and start > now else None,
        "has_no_change": answer.outcome == Outcome.NO_CHANGE,
        "may_edit": may(request.actor, Action.OPERATE, workload) and is_editable(workload),
        "link": link,
        "alternative_link": link_to_change(request.actor, workload, alternative) if alternative else None,
        "note": note,
        "copy": describe_copy(request.actor, link.url) if in_array and link else "",
    }
    name = "array_change" if in_array else "smallest_change"
    return render(request, f"scheduler/workloads/{name}.html", context)


@signed_in
@require_GET
def review_change(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    """Redirect to the page that makes the smallest change, or to the workload if there is no change."""
    workload = find_workload(request.actor, workload_id)
    try:
        change = find_smallest_change(workload, viewer_for(request.actor)).change
    except RateLimited:
        change = None
    link = link_to_change(request.actor, workload, change) if change else None
    return redirect(link.url if link else reverse("workload", args=[workload.pk]))


def _has_contents(tab: str, workload: Workload, *, is_operator: bool) -> bool:
    if workload.run == 0 and tab in TABS_OF_RUNS:
        return False
    return tab != "terminal" or (is_operator and workload.phase in PHASES_WITH_PODS)


def _header_context(request: Request, workload: Workload, tab: str) -> Context:
    is_operator = may(request.actor, Action.OPERATE, workload)
    set_request_labels([workload])
    return {
        "workload": workload,
        **_pending_context(workload, tab),
        "is_operator": is_operator,
        "evicted": _last_eviction(request.actor, workload),
        "replicas": load_replicas([workload]).get(workload.pk),
        "actions": allowed_actions(workload) if is_operator else [],
        "is_resubmittable": _is_resubmittable(request.actor, workload),
        "resubmitted_as": latest_resubmission(request.actor, workload),
        "is_editable": is_operator and is_editable(workload),
        "ports": _open_ports(request.actor, workload),
        "last_pool": last_pool(workload),
        "failure_fact": failure_fact(workload),
    }


def _last_eviction(actor: Actor, workload: Workload) -> Eviction | None:
    """Return the eviction that made the workload pending, or None."""
    if workload.phase not in PENDING_PHASES or not workload.preemptions:
        return None
    last = evictions(actor).filter(workload_id=workload.pk).order_by("-pk").first()
    return last if last is not None and workload.started_at and last.at >= workload.started_at else None


def _is_resubmittable(actor: Actor, workload: Workload) -> bool:
    may_submit = workload.ended_at is not None and may(actor, Action.SUBMIT, workload.project)
    return may_submit and not resubmission_obstacle(workload)


def _pending_context(workload: Workload, tab: str) -> Context:
    """Return the pending reason, message, restart delay and last edit that the header shows.

    Information that the page states elsewhere is omitted.
    """
    reasons = [each["reason"] for each in (workload.explanation or {}).get("blockers", [])]
    has_card = tab == "overview" and workload.phase in PENDING_PHASES and bool(reasons or workload.held)
    is_pending = workload.phase == Phase.PENDING and bool(workload.reason)
    has_row = tab == "timeline" and workload.explained_at is not None
    has_reason = is_pending and workload.reason != UNSCHEDULABLE
    is_stated = has_card or has_reason or workload.phase == Phase.FAILED
    return {
        "edited_at": (edited_at := unevaluated_edit_time(workload)),
        "message": "" if is_stated else _message_to_show(workload),
        "shows_reason": has_reason and not (has_card or has_row or edited_at),
        "not_before": _active_backoff(workload, timezone.now()),
        "forecast": None if edited_at else _queue_context(workload),
    }


def _message_to_show(workload: Workload) -> str:
    """Return the workload's message, or "" if it only says that the workload is placed or running."""
    is_running = workload.phase == Phase.RUNNING and re.match(ALL_RUNNING, workload.message)
    is_placed = workload.phase == Phase.STARTING and re.match(PLACED, workload.message)
    return "" if is_running or is_placed else workload.message


def _queue_context(workload: Workload) -> Context | None:
    stored = workload.explanation or {}
    is_reserved = workload.phase == Phase.RESERVED
    is_queued = workload.phase == Phase.PENDING and not workload.held and stored.get("queue_position")
    if not is_reserved and not is_queued:
        return None
    start, because = expected_start(workload, timezone.now())
    return {
        "position": None if is_reserved else stored["queue_position"],
        "pool": stored.get("pool"),
        "start": start,
        "unknown_start": because and unknown_start_summary(because),
    }


def _overview_context(request: Request, workload: Workload) -> Context:
    actor, now = request.actor, timezone.now()
    current, earlier = details.pod_placements(actor, workload)
    failed_pod, failure = first_failed_pod(workload, current), describe_failure(workload, current)
    suffered = details.evictions_as_victim(actor, workload)
    caused = details.evictions_as_preemptor(actor, workload)
    last_eviction = suffered[0] if suffered and workload.phase in PENDING_PHASES else None
    return {
        "pending": details.pending_detail(actor, workload),
        "predicted": link_prediction(request, workload),
        "quota_warnings": current_quota_warnings(actor, workload) if workload.reason == UNSCHEDULABLE else (),
        "failure": failure,
        # Recent events omit this message, because the failure card states it.
        "failure_message": workload.message if failure else None,
        "resubmitted_from": resubmission_source(actor, workload),
        "failure_pattern": FAILURE_PATTERN,
        "other_failures": other_failures(actor, workload, failure),
        "failed_pod": failed_pod,
        "pods": pod_table(current, failed_pod),
        "earlier": pod_table(earlier),
        **utilization_strip_context(workload, now),
        "log_runs": pods_by_run([*current, *earlier]),
        "error_pattern": ERROR_PATTERN,
        # A pending workload's last eviction is described at the top of the page.
        "as_victim": suffered[1 if last_eviction else 0 :][:EVICTIONS_ON_OVERVIEW],
        "as_preemptor": caused[:EVICTIONS_ON_OVERVIEW],
        "recent_events": _recent_events(actor, workload, suffered, caused),
        "no_scheduler": workload.phase in PENDING_PHASES and not is_scheduler_running(now),
        "last_eviction": last_eviction,
        "ran_for": _last_run_seconds(workload),
        "last_run": _last_run(workload, current, last_eviction),
        "lost_if_evicted": details.work_lost_if_evicted(workload, current, now),
        "lost_work": details.work_lost_in_failure(workload, current),
        "gpu_hours": workload_gpu_hours(workload.pk, now),
        "cost": workload_cost(workload.pk, now),
        "idle": idle_since([workload.pk], now).get(workload.pk),
        "idle_rule": idle_status(workload),
        "image": _image_with_digest(workload),
        "code": describe_code(workload),
        "waits_for": dependency_statuses(actor, workload),
        "awaited_by": find_dependents(actor, workload),
    }


def _last_run(
    workload: Workload, placements: Sequence[details.PodPlacement], eviction: RenderedEviction | None
) -> tuple[datetime, datetime] | None:
    """Return the start and end of a pending or suspended workload's last run, or None if unknown."""
    if workload.started_at is None or workload.phase not in (*PENDING_PHASES, Phase.SUSPENDED):
        return None
    ends = [each.pod.ended_at for each in placements if each.pod.ended_at is not None]
    ends += [eviction.row.at] if eviction else []
    return (workload.started_at, max(ends)) if ends and max(ends) >= workload.started_at else None


def _last_run_seconds(workload: Workload) -> float | None:
    """Return how long the last run took, or None if the workload never ran or has not ended."""
    if workload.started_at is None or workload.ended_at is None:
        return None
    return (workload.ended_at - workload.started_at).total_seconds()


def _recent_events(
    actor: Actor,
    workload: Workload,
    suffered: Sequence[RenderedEviction],
    caused: Sequence[RenderedEviction],
) -> Sequence[TimelineEntry]:
    """Return the latest events. The current pending reason is omitted, because a card shows it."""
    entries = timeline(actor, workload, suffered, caused, shows_still_pending=False).entries
    return entries[:EVENTS_ON_OVERVIEW]


def _log_context(request: Request, workload: Workload) -> Context:
    current, earlier = details.pod_placements(request.actor, workload)
    return {
        "log_runs": pods_by_run([*current, *earlier]),
        "error_pattern": ERROR_PATTERN,
        "failed_pod": first_failed_pod(workload, current),
    }


def _resources_context(request: Request, workload: Workload) -> Context:
    return workload_utilization(workload, request.GET.get("span", ""), timezone.now())


def _timeline_context(request: Request, workload: Workload) -> Context:
    suffered = details.evictions_as_victim(request.actor, workload)
    caused = details.evictions_as_preemptor(request.actor, workload)
    return {
        "timeline": timeline(request.actor, workload, suffered, caused),
        "as_victim": suffered,
        "as_preemptor": caused,
    }


def _spec_context(request: Request, workload: Workload) -> Context:
    return {
        "spec": details.document_text(workload),
        "roles": role_commands(workload),
        "image": _image_with_digest(workload),
        "code": describe_code(workload),
    }


TABS = {
    "overview": Tab("workload", "Overview", _overview_context, "overview_live"),
    "logs": Tab("workload-logs", "Logs", _log_context),
    "terminal": Tab("workload-terminal", "Terminal", load_terminal),
    "metrics": Tab("workload-metrics", "Metrics", load_metrics),
    "outputs": Tab("workload-outputs", "Outputs", load_outputs, "outputs_live"),
    "resources": Tab("workload-resources", "Resources", _resources_context),
    "timeline": Tab("workload-timeline", "Timeline", _timeline_context, "timeline_live"),
    "spec": Tab("workload-spec", "Spec", _spec_context),
}


def _image_with_digest(workload: Workload) -> dict[str, Any] | None:
    reference = workload.spec.get("image") if isinstance(workload.spec, dict) else None
    if not reference:
        return None
    newest = workload.images.exclude(digest="").order_by("-run").first()
    return {"reference": reference, "digest": newest and newest.digest, "run": newest and newest.run}


def _open_ports(actor: Actor, workload: Workload) -> list[str]:
    names = [port["name"] for port in ports.declared_ports(workload)]
    can = bool(names) and bool(settings.BERTH_APPS_ORIGIN) and workload.phase == Phase.RUNNING
    return names if can and may(actor, Action.OPERATE, workload) else []


def _active_backoff(workload: Workload, now: datetime) -> datetime | None:
    until = workload.backoff_until
    return until if until is not None and until > now and workload.phase == Phase.PENDING else None
