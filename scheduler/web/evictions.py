"""Pages of evictions, with their rules and numbers."""

from datetime import datetime, time
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import QuerySet
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.timezone import is_naive, make_aware
from django.views.decorators.http import require_GET
from rest_framework.request import Request as ApiRequest

from berth.server.web.lists.paging import ordered, slice_of
from berth.server.web.pages import Request, page, signed_in
from berth.server.web.zones import zone_of
from projects.access import visible_pools
from projects.acting import Acting
from projects.selectors import projects
from scheduler.api.evictions import as_csv
from scheduler.models import Eviction
from scheduler.reports.evictions.matrix import grid, pairs
from scheduler.reports.evictions.rendering import RenderedEviction, to_open
from scheduler.reports.selectors import evictions, of_workload
from scheduler.reports.visibility import reader

FILTERS = {
    "kind": "kind",
    "pool": "pool_name",
    "project": "project_name",
    "preemptor": "preemptor_project_name",
}


SORTS = {"at": "pk", "kind": "kind", "gpus": "gpu_milli", "lost": "lost_gpu_seconds"}
OTHERS = ("workload", "since", "until")


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    filters = {key: request.GET.get(key, "").replace("\x00", "")[:100] for key in (*FILTERS, *OTHERS)}
    rows = filtered(request.acting, filters, zone_of(request))
    if request.GET.get("format") == "csv":
        sort = request.GET.get("sort", "-at")
        chosen = sort if sort.removeprefix("-") in SORTS else "-at"
        return as_csv(ApiRequest(request), ordered(rows, SORTS, chosen), reader(request.acting))
    listing = slice_of(
        rows, SORTS, sort=request.GET.get("sort", ""), default="-at", cursor=request.GET.get("cursor", "")
    )
    context = {
        "filters": filters,
        "slice": listing,
        "sort": listing.sort,
        "rows": to_open(reader(request.acting), listing.rows),
        "kinds": [kind for kind, _ in Eviction.KINDS],
        "pools": visible_pools(request.acting).order_by("name"),
        "projects": projects(request.acting),
        "narrowed": any(filters.values()),
        "grid": grid(pairs(rows)),
    }
    return page(request, "scheduler/evictions/list.html", context, inner="scheduler/evictions/rows.html")


@signed_in
@require_GET
def detail(request: Request, eviction_id: int) -> HttpResponse:
    row = evictions(request.acting).filter(pk=eviction_id).first()
    if row is None:
        raise Http404
    each = to_open(reader(request.acting), [row])[0]
    return page(request, "scheduler/evictions/detail.html", {"each": each, "row": row, "sides": sides(each)})


def filtered(acting: Acting, filters: dict[str, str], zone: ZoneInfo) -> QuerySet[Eviction]:
    rows = evictions(acting).filter(
        **{column: filters[key] for key, column in FILTERS.items() if filters.get(key)}
    )
    if filters.get("workload"):
        rows = rows.filter(of_workload(acting, filters["workload"]))
    since, until = moment(filters["since"], zone), moment(filters["until"], zone, end=True)
    if since:
        rows = rows.filter(at__gte=since)
    if until:
        rows = rows.filter(at__lte=until)
    return rows


def moment(text: str, zone: ZoneInfo, *, end: bool = False) -> datetime | None:
    """Parse a time from a URL, in `zone` if it has no offset. Return None if the text is not a time.

    A date stands for the first moment of the day, or for the last moment if `end` is set.
    """
    try:
        if day := parse_date(text):  # first, because a date also parses as midnight
            return make_aware(datetime.combine(day, time.max if end else time.min), zone)
        at = parse_datetime(text)
    except ValueError:
        return None
    return make_aware(at, zone) if at is not None and is_naive(at) else at


def sides(each: RenderedEviction) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the visible queues of the victim and the preemptor, with titles."""
    parties = (("Queues of the evicted workload", each.victim), ("Queues of the preemptor", each.preemptor))
    return [(title, party.queues) for title, party in parties if party is not None and party.queues]
