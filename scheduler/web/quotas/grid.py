"""Quota grid of all departments and projects in all pools."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Max
from django.http import HttpResponse, QueryDict, StreamingHttpResponse
from django.views.decorators.http import require_GET

from berth.server.api.transport.streaming import csv_file
from berth.server.web.pages import Request, page, signed_in
from berth.server.web.zones import zone_of
from pools.models import NodePool
from projects.access import Action, may, visible_pools
from projects.acting import Acting
from projects.models import QuotaChange
from projects.selectors import departments
from projects.web.quotas.cells import FIELDS
from scheduler.web.quotas.grid_table import Row, Table, capacity, table

AT_ONCE = 60  # rows
MOST_POOLS = 6  # with more, the reader selects the pools
USUAL = tuple(name for name, field in FIELDS.items() if field.usual)


@dataclass(frozen=True, slots=True)
class Looked:
    """Query parameters of the page. Invalid parameters are ignored."""

    every: Sequence[NodePool]
    pools: Sequence[NodePool]
    fields: Sequence[str]
    search: str
    within: str
    sort: str
    start: int


@dataclass(frozen=True, slots=True)
class Head:
    """Header of a pool. Only readers who see all departments see the sum of department quotas."""

    pool: NodePool
    columns: int
    has: int | None
    promised: int
    unlimited: int

    @property
    def oversold(self) -> bool:
        return self.has is not None and (self.unlimited > 0 or self.promised > self.has)


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    query = looked(request.GET, request.acting)
    latest = QuotaChange.objects.aggregate(n=Max("pk"))["n"] or 0  # before the rows, to miss no change
    grid = table(
        request.acting, query.pools, query.fields,
        search=query.search, within=query.within, sort=query.sort,
    )  # fmt: skip
    if request.GET.get("format") == "csv":
        return csv_file(request, "quotas", heads(grid), lines(grid.drawn(0)))
    administers = may(request.acting, Action.ADMINISTER)
    rows = grid.drawn(query.start, AT_ONCE)
    after = query.start + AT_ONCE
    context = {
        "query": query,
        "rows": rows,
        "start": query.start,
        "more": after if after < len(grid.rows) else None,
        "before": max(0, query.start - AT_ONCE) if query.start else None,
        "total": len(grid.rows),
        "latest": latest,
        "tenants": grid.tenants,
        "sort": query.sort,
        "edge": query.fields[0],
        "fields": [(name, FIELDS[name]) for name in query.fields],
        "columns": [(pool, name, FIELDS[name]) for pool in query.pools for name in query.fields],
        "heads": _pool_heads(grid, administers=administers),
        "all_fields": [(name, field, name in query.fields) for name, field in FIELDS.items()],
        "all_pools": [(pool, pool in query.pools) for pool in query.every],
        "departments": departments(request.acting),
        "zone": zone_of(request).key,
        "may_edit": any(row.editable for row in grid.rows),
        "may_administer": administers,
        "narrowed": bool(query.search or query.within),
    }
    part = "scheduler/quotas/grid_rows.html" if "rows" in request.GET else "scheduler/quotas/grid_table.html"
    response = page(request, "scheduler/quotas/grid.html", context, inner=part)
    response.headers["X-Next-Rows"] = str(after if after < len(grid.rows) else "")
    return response


def looked(query: QueryDict, acting: Acting) -> Looked:
    every = list(visible_pools(acting).order_by("name"))
    named = {word for text in query.getlist("pools") for word in text.split(",")}
    chosen = {word for text in query.getlist("values") for word in text.split(",")}
    start = query.get("rows", "")
    return Looked(
        every=every,
        pools=[pool for pool in every if pool.name in named] or every[:MOST_POOLS],
        fields=tuple(name for name in FIELDS if name in chosen) or USUAL,
        search=query.get("search", "").replace("\x00", "")[:100].strip().lower(),
        within=query.get("department", "").replace("\x00", "")[:100],
        sort=query.get("sort", "name")[:100],
        start=int(start) if start.isdecimal() and len(start) < 7 else 0,
    )


def heads(grid: Table) -> list[str]:
    cells = [f"{pool.name}: {FIELDS[name].head}" for pool in grid.pools for name in grid.fields]
    return ["Department", "Project", *cells]


def lines(rows: Iterable[Row]) -> Iterable[list[Any]]:
    for row in rows:
        cells = [cell.text if row.numbers_visible else "" for cell in row.cells]
        yield [row.top_name, "" if row.is_department else row.name, *cells]


def _pool_heads(grid: Table, *, administers: bool) -> list[Head]:
    has = capacity(grid.pools) if administers else {}
    tops = [row for row in grid.rows if row.is_department]
    heads_ = []
    for pool in grid.pools:
        quotas = [row.quotas[pool.pk].values["gpu_milli"] for row in tops if pool.pk in row.quotas]
        heads_.append(
            Head(
                pool=pool,
                columns=len(grid.fields),
                has=has.get(pool.pk, 0) if administers and "gpu" in grid.fields else None,
                promised=sum(each for each in quotas if each is not None),
                unlimited=sum(each is None for each in quotas),
            )
        )
    return heads_
