"""Page of a pool's queue, with each workload's sort key."""

from collections import Counter
from datetime import datetime
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_GET

from berth.core.amounts import MILLI
from berth.server.web.lists.tables import Column, list_query, requested_csv, table_state
from berth.server.web.pages import Request, page, signed_in
from projects.access import visible_pools
from projects.models import Workload
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
    Column("project", "Project", lambda row: row[0].project.name, order="project__name"),
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
    filters = {key: request.GET.get(key, "").replace("\x00", "")[:100] for key in ("reason", "project")}
    reasons: list[tuple[str, int]] = []
    projects: list[str] = []
    if pool is not None:
        rows = queued_workloads(request.actor, pool)
        reasons, projects = _filter_choices(rows)
        if filters["reason"]:
            rows = rows.filter(reason=filters["reason"])
        if filters["project"]:
            rows = rows.filter(project__name=filters["project"])
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
        "filters": filters,
        "is_filtered": bool(any(filters.values()) or (listing and listing.search)),
        "reasons": reasons,
        "queued": sum(count for _, count in reasons),
        "projects": projects,
        "length": queue_length(pool) if pool else None,
    }
    return page(request, "scheduler/queue/list.html", context, inner="scheduler/queue/rows.html")


def _filter_choices(rows: QuerySet[Workload]) -> tuple[list[tuple[str, int]], list[str]]:
    """Return the reasons of the queued workloads with their counts, most frequent first, and the projects."""
    counts = rows.order_by().values_list("reason", "project__name").annotate(n=Count("pk"))
    reasons: Counter[str] = Counter()
    projects = set()
    for reason, project, count in counts:
        reasons[reason] += count
        projects.add(project)
    return reasons.most_common(), sorted(projects)


def _queue_entries(rows: list[Any]) -> list[QueueEntry]:
    result = []
    for row in rows:
        starts = (row.explanation or {}).get("expected_start")
        result.append((row, parse_datetime(starts) if starts else None, row.queue_position != NOT_EVALUATED))
    return result
