"""Eviction pages, which show each eviction with the rule that allowed it and the affected queues."""

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET
from rest_framework.request import Request as ApiRequest

from berth.core.problems import Problem
from berth.core.wording.words import format_gpus
from berth.db.queries.known_names import NameColumn
from berth.server.web.charts.bars import Bar, bar_scale, quota_bar
from berth.server.web.lists.filters import describe_unknown
from berth.server.web.lists.paging import load_slice, sort_rows
from berth.server.web.lists.periods import CHOICES, ListPeriod, parse_period
from berth.server.web.pages import Request, page, signed_in
from berth.server.web.zones import user_time_zone
from projects.access import visible_pools
from projects.actor import Actor
from projects.known_names import unknown_pool_problem, unknown_project_problem
from projects.models import Workload
from projects.selectors import projects, workloads
from scheduler.api.evictions import stream_csv
from scheduler.models import Cycle, Eviction
from scheduler.reports.evictions.known_parties import unknown_party_problems
from scheduler.reports.evictions.matrix import build_matrix, totals_by_project_pair
from scheduler.reports.evictions.rendering import RenderedEviction, render_with_links
from scheduler.reports.selectors import evictions, workload_search_filter
from scheduler.reports.visibility import viewer_for

FILTERS = {
    "kind": "kind",
    "pool": "pool_name",
    "project": "project_name",
    "preemptor": "preemptor_project_name",
}


SORTS = {"at": "pk", "kind": "kind", "gpus": "gpu_milli", "lost": "lost_gpu_seconds"}
PERIOD_FILTERS = ("since", "until", "period")


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    filters = {
        key: request.GET.get(key, "").replace("\x00", "")[:100]
        for key in (*FILTERS, "workload", *PERIOD_FILTERS)
    }
    period = parse_period(filters, user_time_zone(request), timezone.now())
    rows = filter_evictions(request.actor, filters, period)
    if request.GET.get("format") == "csv":
        period.require_valid()
        sort = request.GET.get("sort", "-at")
        chosen = sort if sort.removeprefix("-") in SORTS else "-at"
        return stream_csv(ApiRequest(request), sort_rows(rows, SORTS, chosen), viewer_for(request.actor))
    listing = load_slice(
        rows, SORTS, sort=request.GET.get("sort", ""), default="-at", cursor=request.GET.get("cursor", "")
    )
    totals = totals_by_project_pair(rows)
    moved = rows.filter(kind="consolidate").count()
    context = {
        "filters": filters,
        "period": period,
        "unknown": "" if listing.rows else describe_unknown(*unknown_name_problems(request.actor, filters)),
        "slice": listing,
        "sort": listing.sort,
        "rows": render_with_links(viewer_for(request.actor), listing.rows),
        "kinds": [kind for kind, _ in Eviction.KINDS],
        "pools": visible_pools(request.actor).order_by("name"),
        "projects": projects(request.actor),
        "is_filtered": period.is_set or any(filters[key] for key in (*FILTERS, "workload")),
        "grid": build_matrix(totals),
        "count": sum(pair.count for pair in totals) - moved,
        "moved": moved,
        "periods": CHOICES,
        "lost_gpu_seconds": sum(pair.lost_gpu_seconds for pair in totals),
    }
    return page(request, "scheduler/evictions/list.html", context, inner="scheduler/evictions/rows.html")


@signed_in
@require_GET
def detail(request: Request, eviction_id: int) -> HttpResponse:
    row = evictions(request.actor).filter(pk=eviction_id).first()
    if row is None:
        raise Http404
    each = render_with_links(viewer_for(request.actor), [row])[0]
    has_cycle = row.cycle is not None and Cycle.objects.filter(pk=row.cycle).exists()
    sides = queues_with_titles(each)
    context = {
        "each": each,
        "row": row,
        "sides": sides,
        "has_usage": any(round(queue.get("usage") or 0, 3) for _, queues in sides for queue in queues),
        "has_cycle": has_cycle,
        "victim": _find_victim(request.actor, each),
    }
    return page(request, "scheduler/evictions/detail.html", context)


def _find_victim(actor: Actor, eviction: RenderedEviction) -> Workload | None:
    victim = eviction.victim
    if not victim.exists or victim.id is None:
        return None
    return workloads(actor).filter(pk=victim.id).first()


def filter_evictions(actor: Actor, filters: Mapping[str, str], period: ListPeriod) -> QuerySet[Eviction]:
    rows = evictions(actor).filter(
        **{column: filters[key] for key, column in FILTERS.items() if filters.get(key)}
    )
    if filters.get("workload"):
        rows = rows.filter(workload_search_filter(actor, filters["workload"]))
    return period.restrict(rows)


def unknown_name_problems(actor: Actor, filters: dict[str, str]) -> list[Problem | None]:
    rows, workload = evictions(actor), filters["workload"]
    is_part_of_name = bool(workload) and rows.filter(workload_search_filter(actor, workload)).exists()
    return [
        unknown_pool_problem(actor, filters["pool"], NameColumn(rows, "pool_name")),
        unknown_project_problem(actor, filters["project"], NameColumn(rows, "project_name")),
        unknown_project_problem(
            actor, filters["preemptor"], NameColumn(rows, "preemptor_project_name"), path="preemptor project"
        ),
        *unknown_party_problems(actor, victim=None if is_part_of_name else workload or None),
    ]


def queues_with_titles(eviction: RenderedEviction) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return a title and the visible queues with their bars, once for the victim and once for the preemptor.

    All bars have the same scale.
    """
    parties = (eviction.victim, eviction.preemptor)
    sides = [
        (f"Queues of {party.display_name}", party.queues)
        for party in parties
        if party is not None and party.queues
    ]
    scale = bar_scale(max((max(_queue_amounts(queue)) for _, queues in sides for queue in queues), default=0))
    return [
        (
            title,
            [
                {**queue, "bars": _before_and_after_bars(queue, scale) if any(_queue_amounts(queue)) else []}
                for queue in queues
            ],
        )
        for title, queues in sides
    ]


def _queue_amounts(queue: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the queue's quota, its fair share, and its allocations before and after the eviction, in
    milli-GPU. Unlimited and missing amounts count as 0.
    """
    keys = ("quota", "share", "allocated_before", "allocated_after")
    return tuple(int((queue.get(key) or {}).get("gpu") or 0) for key in keys)


def _before_and_after_bars(queue: Mapping[str, Any], scale: int) -> list[tuple[str, Bar]]:
    quota, share = ((queue.get(key) or {}).get("gpu") for key in ("quota", "share"))  # None if unlimited
    *_, before, after = _queue_amounts(queue)
    return [
        (
            word,
            quota_bar(
                allocated=amount, quota=quota, share=share, requested=0, scale=scale,
                label=f"{format_gpus(amount)} allocated {word} the eviction",
            ),
        )
        for word, amount in (("before", before), ("after", after))
    ]  # fmt: skip
