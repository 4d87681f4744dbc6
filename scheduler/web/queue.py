"""Queue page, which explains each workload's position."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_GET

from berth.db.queries.known_names import unknown_value_problem
from berth.server.web.lists.filters import describe_unknown
from berth.server.web.lists.tables import (
    Listing,
    list_query,
    requested_csv,
    sort_choices,
    table_state,
)
from berth.server.web.pages import Request, page, signed_in
from pools.models import Node, NodePool
from pools.models.node import PENDING
from projects.access import Action, may, visible_pools
from projects.actor import Actor
from projects.known_names import unknown_pool_problem, unknown_project_problem
from projects.known_words import REASONS, RESERVED
from projects.models import Phase, Workload
from projects.pending_reasons import reason_condition
from projects.web.workloads.actions import BULK_ACTION_TITLES
from projects.web.workloads.request_labels import set_request_labels
from scheduler.models import Reservation
from scheduler.reports.health import is_scheduler_running
from scheduler.reports.pool_findings import format_node_names
from scheduler.reports.queues.pending_reason import load_awaited_shares
from scheduler.reports.queues.queue_list import (
    NO_POSITION,
    NOT_EVALUATED,
    SEVERAL_POOLS,
    QueueLength,
    count_unschedulable,
    held_tasks,
    queue_length,
    queue_lengths,
    queued_workloads,
    unschedulable_workloads,
)
from scheduler.web.hidden_queue import (
    HiddenWorkloadsRow,
    add_placeholders,
    hidden_workloads,
    is_last_in_queue,
    placeholders,
    position_before,
)
from scheduler.web.pools.capacity import capacity_by_pool
from scheduler.web.queue_actions import set_row_actions
from scheduler.web.queue_arrays import (
    annotate_expected_start_order,
    annotate_requested_gpus_order,
    load_queued_tasks,
    one_row_per_array,
)
from scheduler.web.queue_columns import COLUMNS, OTHER_SORTS, SORT_CHOICES
from scheduler.web.queue_filters import NO_CHOICES, load_filter_choices
from scheduler.web.queue_rows import QueueEntry, annotate_order, pool_label
from scheduler.web.queue_starts import load_awaited_ends, load_workloads_without_max_runtime

UNSCHEDULABLE_MAX = 20  # maximum number of unschedulable workloads that are listed


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    pools = list(visible_pools(request.actor).order_by("name"))
    pool = next((pool for pool in pools if pool.name == request.GET.get("pool")), None)
    if pool is None and len(pools) == 1:
        pool = pools[0]
    state = table_state(request.GET, "")
    is_in_order = state["sort"] in ("", "position") and not state["search"]
    # In queue order, the page has a heading for each pool. In other orders, the pool is below the position.
    is_grouped = pool is None and state["sort"].removeprefix("-") not in OTHER_SORTS
    columns = [column for column in COLUMNS if pool is None or column.key != "pool"]
    if pool is None:
        columns[0] = replace(columns[0], order=("pool_key", "queue_order"))
    mine = request.GET.get("mine") == "1"
    listing = None
    filters = {key: request.GET.get(key, "").replace("\x00", "")[:100] for key in ("reason", "project")}
    choices, matching = NO_CHOICES, Q()
    if pools:
        choices = load_filter_choices(request.actor, pool)
        matching = Q(submitted_by=request.actor.user) if mine else matching
        if filters["project"]:
            matching &= Q(project__name=filters["project"])
        for word in state["search"].split():
            matching &= (
                Q(name__icontains=word)
                | Q(project__name__icontains=word)
                | Q(submitted_by__username__icontains=word)
                | Q(message__icontains=word)
            )
        rows = queued_workloads(request.actor, pool).filter(matching).select_related("array")
        if filters["reason"]:
            rows = rows.filter(reason_condition(filters["reason"]))
        listing = list_query(
            request,
            columns,
            _select_queue_rows(rows, state["sort"], is_file=request.GET.get("format") == "csv"),
            _queue_entries,
            file_name=f"queue-{pool.name}" if pool else "queue",
            default="position",
        )
        if file := requested_csv(request, listing):
            return file
        load_queued_tasks(listing.rows, rows)
    unknown = (
        unknown_pool_problem(request.actor, request.GET.get("pool", "").replace("\x00", "")[:100]),
        unknown_project_problem(request.actor, filters["project"]),
        unknown_value_problem("reason", filters["reason"], (*REASONS, RESERVED)),
    )
    entries = listing.rows if listing else []
    set_request_labels([row for row, *_ in entries])
    set_row_actions(request.actor, [row for row, *_ in entries])
    load_awaited_shares([row for row, *_ in entries])
    load_awaited_ends(request.actor, entries)
    load_workloads_without_max_runtime(request.actor, entries)
    length = queue_length(pool) if pools else None
    is_filtered = bool(mine or any(filters.values()) or state["search"])
    held, unschedulable = _count_workloads_outside_queue(
        request.actor, pool, length, matching, filters["reason"]
    )
    impossible = list[Any]()
    # Show unschedulable workloads only on the last page.
    if unschedulable and not (listing and listing.next):
        impossible = _unschedulable_rows(
            request.actor, unschedulable_workloads(request.actor, pool).filter(matching)
        )
    matches = queue_lengths(rows) if pools and is_filtered else None
    groups: list[_PoolGroup] = _pool_groups(entries, pools, matches) if is_grouped else [(None, entries)]
    for row, *_ in entries:
        row.pool_label = pool_label(row)
    for _, each in groups:
        annotate_order(each, in_order=is_in_order)
    if listing and entries and is_in_order and not is_filtered:
        others = [
            name for name in (*(each.name for each in pools), SEVERAL_POOLS) if name not in choices.headings
        ]
        groups = _add_hidden_workloads(request.actor, groups, listing, pool, pools, others)
    context = {
        "pools": [(each.name, choices.by_pool.get(each.name, 0)) for each in pools],
        "pool": pool,
        "all_queued": choices.all_queued,
        "listing": listing,
        "sort_choices": sort_choices(SORT_CHOICES, state["sort"]),
        "rows": entries,
        "groups": groups,
        "impossible": impossible[:UNSCHEDULABLE_MAX],
        "has_more_impossible": len(impossible) > UNSCHEDULABLE_MAX,
        "is_grouped": is_grouped,
        "is_in_order": is_in_order,
        "width": 1 + sum(not column.is_csv_only for column in columns),
        "bulk_actions": BULK_ACTION_TITLES,
        "filters": filters,
        "unknown": describe_unknown(*unknown),
        "is_filtered": is_filtered,
        "mine": mine,
        "own": choices.own,
        "all_own": choices.all_own,
        "reasons": choices.reasons,
        "queued": choices.queued,
        "projects": choices.projects,
        "length": length,
        "free": capacity_by_pool([pool])[pool.pk].free if pool else None,
        "matches": None if matches is None else _sum_queue_lengths(matches.values()),
        "held_tasks": held,
        "unschedulable": unschedulable,
        "may_create_pool": not pools and may(request.actor, Action.ADMINISTER),
        "no_scheduler": not is_scheduler_running(timezone.now()),
    }
    return page(request, "scheduler/queue/list.html", context, inner="scheduler/queue/rows.html")


@dataclass(frozen=True, slots=True)
class _PoolHeading:
    """Heading of a pool's rows: the length of its entire queue, and its free GPUs in milli-GPU.

    A heading without a name is for new workloads, and its `free` is None. `matches` is None if no filter is
    set.
    """

    name: str
    workloads: int
    gpu_milli: int
    free: int | None
    # Placeholders for a queue in which the user can see no workload.
    hidden: Sequence[HiddenWorkloadsRow] = ()
    matches: tuple[int, int] | None = None


_PoolGroup = tuple[_PoolHeading | None, list[QueueEntry]]


def _select_queue_rows(rows: QuerySet[Any], sort: str, *, is_file: bool) -> QuerySet[Any]:
    """Return the rows to list, with their sort key.

    Only exported files have a line for each task of an array.
    """
    tasks = None if is_file else rows
    listed = annotate_expected_start_order(rows if is_file else one_row_per_array(rows), sort, tasks)
    return annotate_requested_gpus_order(listed, sort, tasks)


def _count_workloads_outside_queue(
    actor: Actor, pool: NodePool | None, length: QueueLength | None, matching: Q, reason: str
) -> tuple[int, int]:
    """Return the number of held array tasks and the number of unschedulable workloads that match the filters.

    Both are 0 if the list is filtered by reason. Without filters, the held tasks of hidden projects count
    too.
    """
    if length is None or reason:
        return 0, 0
    held = length.held_tasks
    if held and matching:
        held = held_tasks(actor, pool).filter(matching).count()
    return held, count_unschedulable(actor, pool, matching) if length.unschedulable else 0


def _sum_queue_lengths(lengths: Iterable[tuple[int, int]]) -> tuple[int, int]:
    counts = list(lengths)
    return sum(count for count, _ in counts), sum(gpu_milli for _, gpu_milli in counts)


def _pool_groups(
    rows: Sequence[QueueEntry], pools: Sequence[NodePool], matches: Mapping[str, tuple[int, int]] | None
) -> list[_PoolGroup]:
    groups = [(name, list(entries)) for name, entries in groupby(rows, lambda entry: entry[0].queue_pool)]
    headings = _pool_headings([name for name, _ in groups], pools)
    if matches is not None:
        headings = [replace(each, matches=matches.get(each.name, (0, 0))) for each in headings]
    return [(heading, entries) for heading, (_, entries) in zip(headings, groups, strict=True)]


def _pool_headings(names: Sequence[str], pools: Sequence[NodePool]) -> list[_PoolHeading]:
    by_name = {pool.name: pool for pool in pools}
    lengths = queue_lengths() if names else {}
    capacity = capacity_by_pool(by_name[name] for name in names if name in by_name)
    result = []
    for name in names:
        count, gpu_milli = lengths.get(name, (0, 0))
        free = capacity[by_name[name].pk].free if name in by_name else None
        result.append(_PoolHeading(name, count, gpu_milli, free))
    return result


def _add_hidden_workloads(
    actor: Actor,
    groups: list[_PoolGroup],
    listing: Listing[QueueEntry],
    pool: NodePool | None,
    pools: Sequence[NodePool],
    others: Sequence[str],
) -> list[_PoolGroup]:
    """Add placeholders for workloads that the user cannot see.

    On the last page, placeholders are also added for the pools in `others`.
    """
    hidden = hidden_workloads(actor, pool)
    for index, (_, entries) in enumerate(groups):
        in_pool = hidden.get(pool.name if pool else entries[0][0].queue_pool)
        if in_pool is None:
            continue
        may_continue = index == 0 and listing.previous
        may_be_continued = index == len(groups) - 1 and listing.next
        add_placeholders(
            entries,
            in_pool,
            previous=position_before(actor, pool, entries[0]) if may_continue else NO_POSITION,
            is_last=not may_be_continued or is_last_in_queue(actor, pool, entries[-1]),
        )
    if pool is not None or listing.next:
        return groups
    headings = _pool_headings([name for name in others if name in hidden], pools)
    return groups + [(replace(each, hidden=placeholders(hidden[each.name])), []) for each in headings]


def _unschedulable_rows(actor: Actor, rows: QuerySet[Workload]) -> list[Any]:
    """Return the latest unschedulable workloads in `rows`, one row for each array."""
    tasks = rows.filter(array__isnull=False).order_by("array_id", "array_index").distinct("array_id")
    shown = rows.filter(Q(array__isnull=True) | Q(pk__in=tasks.values("pk"))).select_related("array")
    listed: list[Any] = list(shown.order_by("-pending_since", "pk")[: UNSCHEDULABLE_MAX + 1])
    arrays = {row.array_id for row in listed} - {None}
    counts = dict(rows.filter(array__in=arrays).order_by().values_list("array").annotate(Count("pk")))
    set_request_labels(listed)
    set_row_actions(actor, listed)
    for row in listed:
        row.task_count = counts.get(row.array_id, 0)
        row.is_changeable = row.array_id is None and row.is_operable
    return listed


def _queue_entries(rows: list[Any]) -> list[QueueEntry]:
    result = list[QueueEntry]()
    reserved = _reserved_nodes([row.pk for row in rows if row.phase == Phase.RESERVED])
    for row in rows:
        nodes = reserved.get(row.pk, [])
        starts = (row.explanation or {}).get("expected_start")
        expected = _expected_ready_at(nodes) or (parse_datetime(starts) if starts else None)
        result.append((row, expected, row.queue_position != NOT_EVALUATED, _reservation_phrase(nodes)))
    return result


def _reserved_nodes(workloads: list[UUID]) -> dict[UUID, list[Node]]:
    if not workloads:
        return {}
    result: dict[UUID, dict[int, Node]] = defaultdict(dict)
    rows = Reservation.objects.filter(workload__in=workloads).select_related("node").order_by("node__name")
    for row in rows:
        result[row.workload_id][row.node_id] = row.node
    return {workload: list(nodes.values()) for workload, nodes in result.items()}


def _reservation_phrase(nodes: Sequence[Node]) -> str:
    """Return a phrase that says when and on which nodes a reserved workload starts, or "" if there are no
    nodes.
    """
    if not nodes:
        return ""
    booting = [node for node in nodes if node.state in PENDING]
    if not booting:
        return f"starts on {format_node_names(nodes)} once evicted pods have stopped"
    named = (
        "it has"
        if len(nodes) == 1
        else f"{format_node_names(booting)} {'has' if len(booting) == 1 else 'have'}"
    )
    return f"starts on {format_node_names(nodes)} once {named} booted"


def _expected_ready_at(nodes: Sequence[Node]) -> datetime | None:
    """Return when all booting nodes are expected to be ready.

    Return None if no node is booting, or if the time is unknown for any of them.
    """
    booting = [node.ready_at for node in nodes if node.state in PENDING]
    return max(filter(None, booting), default=None) if booting and all(booting) else None
