"""Quota grid of all departments and projects in all pools."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Max
from django.http import HttpResponse, QueryDict, StreamingHttpResponse
from django.views.decorators.http import require_GET

from berth.server.api.transport.streaming import csv_response
from berth.server.web.pages import Request, page, signed_in
from berth.server.web.zones import user_time_zone
from pools.models import NodePool
from projects.access import Action, may
from projects.actor import Actor
from projects.models import QuotaChange
from projects.models.tenants import PoolOrGroup
from projects.selectors import departments
from projects.web.quotas.cells import FIELDS
from scheduler.web.quotas.grid_table import Row, Table, allocated_gpus, build_table, gpu_capacities
from scheduler.web.quotas.pools_and_groups import group_members, pools_and_groups_to_show

PAGE_SIZE = 60  # rows per page
MAX_POOLS = 6  # with more pools, the user selects the pools to show
DEFAULT_FIELDS = tuple(name for name, field in FIELDS.items() if field.is_default)


@dataclass(frozen=True, slots=True)
class GridQuery:
    """Query parameters of the page.

    Invalid parameters are ignored. If `hides_default` is set, rare fields that have only default values are
    left out.
    """

    every: Sequence[PoolOrGroup]
    pools: Sequence[PoolOrGroup]
    fields: Sequence[str]
    hides_default: bool
    search: str
    within: str
    sort: str
    start: int


@dataclass(frozen=True, slots=True)
class PoolHeader:
    """Column header for a pool or quota group.

    `pools` contains the pools of a quota group, and is empty for a single pool. `capacity` is the capacity at
    maximum size, or None if the user may not see it. `ready` is the capacity of ready nodes.
    """

    pool: PoolOrGroup
    pools: list[str]
    columns: int
    capacity: int | None
    ready: int
    quota_sum: int
    unlimited: int

    @property
    def is_oversubscribed(self) -> bool:
        return self.capacity is not None and (self.unlimited > 0 or self.quota_sum > self.capacity)


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    query = parse_grid_query(request.GET, request.actor)
    is_file = request.GET.get("format") == "csv"
    # Read the latest change before the rows, so that no change is missed.
    latest = QuotaChange.objects.aggregate(n=Max("pk"))["n"] or 0
    grid = build_table(
        request.actor, query.pools, query.fields,
        search=query.search, within=query.within, sort=query.sort,
        hide_default=query.hides_default and not is_file,
    )  # fmt: skip
    if is_file:
        return csv_response(request, "quotas", csv_header(grid), csv_rows(grid.rows_with_cells(0)))
    administers = may(request.actor, Action.ADMINISTER)
    rows = grid.rows_with_cells(query.start, PAGE_SIZE)
    after = query.start + PAGE_SIZE
    context = {
        "query": query,
        "rows": rows,
        "start": query.start,
        "more": after if after < len(grid.rows) else None,
        "before": max(0, query.start - PAGE_SIZE) if query.start else None,
        "total": len(grid.rows),
        "latest": latest,
        "tenants": grid.tenants,
        "sort": query.sort,
        "edge": grid.fields[0],
        "columns": [(pool, name, FIELDS[name]) for pool in query.pools for name in grid.fields],
        "hidden_titles": _join_titles(name for name in grid.default_fields if name not in grid.fields),
        "shown_titles": _join_titles(name for name in grid.default_fields if name in grid.fields),
        "default_values": DEFAULT_FIELDS,
        "heads": _build_pool_headers(grid, administers=administers),
        "all_fields": [(name, field, name in grid.fields) for name, field in FIELDS.items()],
        "all_pools": [(pool, pool in query.pools) for pool in query.every],
        "departments": departments(request.actor),
        "zone": user_time_zone(request).key,
        "may_edit": any(row.editable for row in grid.rows),
        "may_administer": administers,
        "is_filtered": bool(query.search or query.within),
    }
    part = "scheduler/quotas/grid_rows.html" if "rows" in request.GET else "scheduler/quotas/grid_table.html"
    response = page(request, "scheduler/quotas/grid.html", context, inner=part)
    response.headers["X-Next-Rows"] = str(after if after < len(grid.rows) else "")
    return response


def parse_grid_query(query: QueryDict, actor: Actor) -> GridQuery:
    every = pools_and_groups_to_show(actor)
    by_use = _sort_most_used_first(every)
    named = {word for text in query.getlist("pools") for word in text.split(",")}
    chosen = {word for text in query.getlist("values") for word in text.split(",")}
    start = query.get("rows", "")
    return GridQuery(
        every=every,
        pools=[pool for pool in by_use if pool.name in named] or by_use[:MAX_POOLS],
        fields=tuple(name for name in FIELDS if name in chosen) or DEFAULT_FIELDS,
        hides_default=not any(name in chosen for name in FIELDS),
        search=query.get("search", "").replace("\x00", "")[:100].strip().lower(),
        within=query.get("department", "").replace("\x00", "")[:100],
        sort=query.get("sort", "name")[:100],
        start=int(start) if start.isdecimal() and len(start) < 7 else 0,
    )


def _sort_most_used_first(places: Sequence[PoolOrGroup]) -> list[PoolOrGroup]:
    """Sort quota groups before pools.

    Within each kind, those with allocated GPUs come before the others. Ties are sorted by capacity, largest
    first, and then by name. The order matters because narrow windows show only the first columns.
    """
    used = {place for (_, place), gpus in allocated_gpus(places).items() if any(gpus)}
    capacity = gpu_capacities(places)
    return sorted(
        places,
        key=lambda place: (
            isinstance(place, NodePool), place.name not in used, -capacity.get(place.name, (0, 0))[0]
        ),
    )  # fmt: skip


def _join_titles(names: Iterable[str]) -> str:
    return " and ".join(FIELDS[name].title for name in names).capitalize()


def csv_header(grid: Table) -> list[str]:
    cells = [f"{pool.name}: {FIELDS[name].head}" for pool in grid.pools for name in grid.fields]
    return ["Department", "Project", *cells]


def csv_rows(rows: Iterable[Row]) -> Iterable[list[Any]]:
    for row in rows:
        cells = [cell.text if row.numbers_visible else "" for cell in row.cells]
        yield [row.top_name, "" if row.is_department else row.name, *cells]


def _build_pool_headers(grid: Table, *, administers: bool) -> list[PoolHeader]:
    capacity = gpu_capacities(grid.pools) if administers else {}
    tops = [row for row in grid.rows if row.is_department]
    members = group_members(grid.pools)
    pool_headers = []
    for pool in grid.pools:
        largest, ready = capacity.get(pool.name, (0, 0))
        quotas = [row.quotas[pool.name].values["gpu_milli"] for row in tops if pool.name in row.quotas]
        pool_headers.append(
            PoolHeader(
                pool=pool,
                pools=members.get(pool.name, []),
                columns=len(grid.fields),
                capacity=largest if administers and "gpu" in grid.fields else None,
                ready=ready,
                quota_sum=sum(quota for quota in quotas if quota is not None),
                unlimited=sum(quota is None for quota in quotas),
            )
        )
    return pool_headers
