"""CSV exports for a pool: history, nodes and capacity over time."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.db.models import F, Q, Sum
from django.http import StreamingHttpResponse

from berth.core.values.amounts import MILLI
from berth.server.api.transport.streaming import csv_response
from berth.server.web.lists.tables import Column, Listing, list_query, table_state
from berth.server.web.pages import Request
from pools import selectors
from pools.capacity_history import capacity_over_time
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import ALIVE
from pools.selectors import PROVIDER_EVENTS
from scheduler.models import Allocation
from scheduler.web.pools.capacity_chart import DEFAULT_SPAN, SPANS

PAGE_SIZE = 20
NODE_HEADERS = ("Node", "State", "GPUs", "Allocated (GPUs)", "Model", "CPU (cores)", "Memory (MiB)", "Since")
CAPACITY_HEADERS = ("From", "Desired (nodes)", "Current (nodes)", "Pending (nodes)", "Draining (nodes)")
HistoryRow = tuple[ScalingEvent, str]  # event, and the reason shown to the user
HISTORY: tuple[Column[HistoryRow], ...] = (
    Column("at", "Time", lambda row: row[0].at, order="pk"),
    Column("kind", "Kind", lambda row: row[0].kind, order="kind"),
    Column("node", "Node", lambda row: row[0].node.name if row[0].node else None),
    Column("before", "Desired before", lambda row: row[0].before, "nodes", is_csv_only=True),
    Column("after", "Desired nodes", lambda row: row[0].after, number=True),
    Column("reason", "Reason and result", lambda row: row[1]),
)


def scaling_history_listing(request: Request, pool: NodePool, *, is_admin: bool) -> Listing[HistoryRow]:
    rows = selectors.scaling_events(pool)
    for word in table_state(request.GET, "history")["search"].split():
        matches = Q(kind__icontains=word) | Q(node__name__icontains=word)
        by_berth = Q(reason__icontains=word)
        rows = rows.filter(
            matches | (by_berth if is_admin else by_berth & ~Q(kind__in=list(PROVIDER_EVENTS)))
        )

    def rows_with_reasons(some: list[ScalingEvent]) -> list[HistoryRow]:
        return [(row, selectors.visible_reason(row, is_admin=is_admin)) for row in some]

    return list_query(
        request, HISTORY, rows, rows_with_reasons,
        name="history", file_name=f"history-of-{pool.name}", default="-at", size=PAGE_SIZE,
    )  # fmt: skip


def requested_pool_csv(request: Request, pool: NodePool, now: datetime) -> StreamingHttpResponse | None:
    """Return the nodes or the capacity chart as a CSV file, or None if neither was requested."""
    file_format = request.GET.get("format", "")
    if file_format == "nodes":
        return csv_response(request, f"nodes-of-{pool.name}", NODE_HEADERS, _node_rows(pool))
    if file_format == "course":
        span = request.GET.get("span", "")
        return csv_response(
            request,
            f"capacity-of-{pool.name}",
            CAPACITY_HEADERS,
            _capacity_rows(pool, now, span if span in SPANS else DEFAULT_SPAN),
        )
    return None


def _node_rows(pool: NodePool) -> Iterator[list[Any]]:
    allocations = (
        Allocation.objects.filter(node__pool=pool, released_at__isnull=True).order_by().values_list("node")
    )
    milli = dict(allocations.annotate(n=Sum(F("gpu_milli") * F("devices__len"))))
    for node in Node.objects.filter(pool=pool, state__in=ALIVE).order_by("ordinal"):
        yield [
            node.name, node.state, node.gpus, (milli.get(node.pk) or 0) / MILLI, node.gpu_model,
            node.cpu_milli / MILLI, node.memory_mib, node.since,
        ]  # fmt: skip


def _capacity_rows(pool: NodePool, now: datetime, span: str) -> Iterator[list[Any]]:
    for point in capacity_over_time(pool, now=now, span=SPANS[span][1]):
        at = datetime.fromtimestamp(point.at, UTC)
        yield [at, point.desired, point.current, point.pending, point.draining]
