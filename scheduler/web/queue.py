"""Page of a pool's queue, with each workload's sort key."""

from datetime import datetime
from typing import Any

from django.db.models import Q
from django.http import HttpResponse, StreamingHttpResponse
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_GET

from berth.core.amounts import MILLI
from berth.server.web.lists.tables import Column, list_query, requested_csv, table_state
from berth.server.web.pages import Request, page, signed_in
from projects.access import visible_pools
from scheduler.reports.queues.queue_list import NOT_EVALUATED, queue_length, queued_workloads

QueueEntry = tuple[Any, datetime | None, bool]  # workload, expected start, whether it has been evaluated
COLUMNS: tuple[Column[QueueEntry], ...] = (
    Column(
        "position",
        "Position",
        lambda row: row[0].queue_position if row[2] else None,
        order="queue_position",
        number=True,
    ),
    Column("name", "Workload", lambda row: row[0].name, order="name"),
    Column("project", "Project", lambda row: row[0].project.name, order="project__name", in_file=True),
    Column(
        "gpus", "Requested", lambda row: row[0].gpu_milli_min / MILLI, "GPUs", "gpu_milli_min", number=True
    ),
    Column("priority", "Priority", lambda row: row[0].priority, order="priority", number=True),
    Column("since", "Pending since", lambda row: row[0].since, order="since"),
    Column("reason", "Pending reason", lambda row: row[0].reason, order="reason"),
    Column("message", "Message", lambda row: row[0].message, in_file=True),
    Column("expected", "Expected start", lambda row: row[1]),
    Column(
        "ordering",
        "Ordering",
        lambda row: "; ".join((row[0].explanation or {}).get("ordering", ())),
        in_file=True,
    ),
    Column("submitted", "Submitted", lambda row: row[0].submitted_at, in_file=True),
)


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    pools = list(visible_pools(request.actor).order_by("name"))
    pool = next((pool for pool in pools if pool.name == request.GET.get("pool")), pools[0] if pools else None)
    listing = None
    if pool is not None:
        rows = queued_workloads(request.actor, pool)
        for word in table_state(request.GET, "")["search"].split():
            rows = rows.filter(
                Q(name__icontains=word) | Q(project__name__icontains=word) | Q(message__icontains=word)
            )
        listing = list_query(
            request, COLUMNS, rows, _queue_entries, file_name=f"queue-{pool.name}", default="position"
        )
        if file := requested_csv(request, listing):
            return file
    context = {
        "pools": pools,
        "pool": pool,
        "listing": listing,
        "rows": listing.rows if listing else [],
        "length": queue_length(pool) if pool else None,
    }
    return page(request, "scheduler/queue/list.html", context, inner="scheduler/queue/rows.html")


def _queue_entries(rows: list[Any]) -> list[QueueEntry]:
    result = []
    for row in rows:
        starts = (row.explanation or {}).get("expected_start")
        result.append((row, parse_datetime(starts) if starts else None, row.queue_position != NOT_EVALUATED))
    return result
