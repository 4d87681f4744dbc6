"""Overview page: GPUs, queues, pending workloads with their reasons, and recent evictions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Min, Q, QuerySet
from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from berth.core.values.amounts import MILLI
from berth.core.wording.words import format_count, format_gpus
from berth.db.queries.first_rows import first_rows
from berth.server.web.charts.bars import Bar, gpu_ticks, stacked_bar
from berth.server.web.lists.filters import describe_unknown
from berth.server.web.numbers import thousandths
from berth.server.web.overview.attention import attention_items
from berth.server.web.overview.first_steps import first_steps
from berth.server.web.overview.own_workloads import (
    PENDING_PHASES,
    count_own_workloads,
    own_workloads,
)
from berth.server.web.overview.utilization import last_hour_utilization, mean_utilization, utilization_chart
from berth.server.web.pages import Request, page, signed_in
from berth.server.web.zones import user_time_zone
from pools.models import NodePool
from projects.access import Action, may, may_submit_anywhere, visible_pools
from projects.actor import Actor
from projects.known_names import unknown_pool_problem
from projects.models import ArrayState, Phase, Workload
from projects.selectors import workload_count, workloads
from projects.services.workloads.pending.unschedulable import REASON as UNSCHEDULABLE
from projects.web.workloads.listing.engine_rows import only_folded_engines
from projects.web.workloads.listing.filters import (
    failed_since_condition,
    state_condition,
    state_count,
)
from scheduler.models import Eviction
from scheduler.reports.evictions.rendering import render_with_links
from scheduler.reports.health import is_scheduler_running
from scheduler.reports.queues.pending_reasons import count_by_reason
from scheduler.reports.queues.pending_times import pending_times
from scheduler.reports.queues.starved import find_shortfalls
from scheduler.reports.selectors import evictions
from scheduler.reports.utilization.over_time import hourly_utilization, mean_gpus
from scheduler.reports.visibility import viewer_for
from scheduler.web.pools.capacity import Capacity, capacity_by_pool
from scheduler.web.pools.devices import build_legend, mark_unused_devices, pool_node_maps
from scheduler.web.quotas.queue_rows import QuotaLine, quota_lines, set_overview_scale

COUNTED_STATES = ("running", "pending", "suspended")
DAY = timedelta(days=1)
HOURS = 24
# With up to MIN_HISTORY hours of data, a sentence replaces the chart.
MIN_HISTORY = 2
EVICTIONS_MAX, REASONS_MAX, DEVICES_MAX, PROJECTS_MAX = 6, 8, 512, 12
FREE_POOLS_MAX = 3  # maximum number of pools that are listed with their free GPUs
# Load more candidates than are shown, because several may be tasks of one array.
LONGEST_MAX, LONGEST_CANDIDATES = 5, 20
FEW_DEVICES = 4  # nodes with at most this many devices are drawn in two columns


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """Number of workloads pending for one reason, and the GPUs they request.

    `is_held` is True for arrays that wait for earlier tasks.
    """

    reason: str
    count: int
    gpu_milli: int
    bar: Bar
    is_held: bool = False


@signed_in
@require_GET
def index(request: Request) -> HttpResponse:
    actor = request.actor
    request.may_submit = may_submit_anywhere(actor)
    pools = list(visible_pools(actor).order_by("name"))
    name = request.GET.get("pool", "").replace("\x00", "")[:100]
    pool = next((visible for visible in pools if visible.name == name), None)
    shown = [pool] if pool else pools
    by_pool = capacity_by_pool(shown)
    capacity = sum(by_pool.values(), start=Capacity(0, 0, 0))
    is_drawable = 0 < capacity.total <= DEVICES_MAX * MILLI
    maps = [node_map for node_map in pool_node_maps(actor, shown) if node_map.devices] if is_drawable else []
    small = sum(len(node_map.devices) for node_map in maps) <= DEVICES_MAX
    now = timezone.now()
    hours = hourly_utilization(shown, now, HOURS)
    hourly_means = [mean_gpus(hour, now) for hour in hours]
    hours_with_nodes = sum(hour.total > 0 for hour in hourly_means)
    zone = user_time_zone(request)
    reasons = reason_counts(actor, shown)
    queues, more_projects = select_busiest(quota_lines(actor, shown))
    shown_lines = [line for _, lines in queues for line in lines]
    set_overview_scale(shown_lines)
    bars = [bar for line in shown_lines for bar in line.overview_bars]
    recent = evictions(actor).filter(pool_id__in=[each.pk for each in shown])
    pool_name = pool.name if pool else ""
    mine = own_workloads(actor, now, pool_name)
    is_admin = may(actor, Action.ADMINISTER)
    # The user's own pending workloads are already listed with their reasons.
    longest = longest_pending_workloads(actor, shown) if reasons and (is_admin or not mine) else []
    no_scheduler = not is_scheduler_running(now)
    shown_maps = maps if small else []
    context = {
        "pools": pools,
        "pool": pool,
        "unknown": describe_unknown(unknown_pool_problem(actor, name)),
        "capacity": capacity,
        "free_gpus_by_pool": free_gpus_by_pool(shown, by_pool),
        "queues": queues,
        "more_projects": more_projects,
        "has_project_bars": bool(shown_lines),
        "bar_kinds": {part.kind for bar in bars for part in bar.parts},
        "has_share_marks": any(bar.share is not None for bar in bars),
        "ticks": gpu_ticks(next((line.scale for line in shown_lines), 0)),
        "last_hour_utilization": last_hour_utilization(hours, now),
        "counts": count_by_state(actor, shown, now),
        "reasons": reasons[:REASONS_MAX],
        "longest": longest,
        "maps": shown_maps,
        "unused_devices": mark_unused_devices(shown_maps, now) if shown_maps else 0,
        "pool_bars": [] if shown_maps else [(each, by_pool[each.pk]) for each in shown],
        "legend": build_legend(maps) if small else [],
        "evicted": render_with_links(viewer_for(actor), recent[:EVICTIONS_MAX]),
        "evicted_today": count_evictions(recent.filter(at__gte=now - DAY)),
        "pending_times": pending_times(actor, shown, now - DAY),
        "attention": attention_items(
            actor,
            shortfalls=find_shortfalls(actor, shown),
            unschedulable=next((each.count for each in reasons if each.reason == UNSCHEDULABLE), 0),
            pools=shown,
            pool=pool_name,
            is_admin=is_admin,
            no_scheduler=no_scheduler,
            now=now,
        ),
        # Users with read-only access are mainly interested in decisions.
        "evictions_first": not is_admin and not request.may_submit,
        "has_few_devices": all(len(node_map.devices) <= FEW_DEVICES for node_map in shown_maps),
        "course": [(hour, mean_utilization([sums])) for hour, sums in zip(hourly_means, hours, strict=True)][
            ::-1
        ],
        "mean_utilization": mean_utilization(hours),
        "measured": any(hour.measured for hour in hourly_means),
        "chart": utilization_chart(hourly_means),
        "chart_begin": hourly_means[0].at,
        "chart_end": hourly_means[-1].at + timedelta(hours=1),
        "zone": zone.key,
        "no_scheduler": no_scheduler,
        # Platform admins see the errors of pools under "Needs attention".
        "failing": [pool for pool in shown if pool.last_error and not is_admin],
        "is_admin": is_admin,
        "mine": mine,
        "mine_total": count_own_workloads(actor, now, pool_name) if mine else 0,
        "mine_has_gpus": any(own.row.gpu_milli_min for own in mine),
        "first": (first := first_steps(actor, can_submit=request.may_submit)),
        "is_guided": bool(first.steps) and not first.is_folded,
        "is_new": bool(first.steps) and not first.is_folded and is_admin,
        "has_history": hours_with_nodes > MIN_HISTORY,  # the first and the last hour are incomplete
    }
    return page(request, "web/overview/page.html", context, inner="web/overview/body.html")


def free_gpus_by_pool(pools: Sequence[NodePool], capacities: Mapping[int, Capacity]) -> list[str]:
    """Return where the free GPUs are, such as "train 1.25" and "local 2", largest first.

    The list is empty if there is only one pool.
    """
    if len(pools) < 2:
        return []
    largest_first = sorted(pools, key=lambda pool: -capacities[pool.pk].total)
    free = [(pool.name, capacities[pool.pk].free) for pool in largest_first if capacities[pool.pk].free]
    if len(free) == 1:
        return [f"all in {free[0][0]}"]
    parts = [f"{name} {thousandths(milli)}" for name, milli in free[:FREE_POOLS_MAX]]
    if others := free[FREE_POOLS_MAX:]:
        milli = sum(each for _, each in others)
        parts.append(f"{format_count(len(others), 'other pool')} {thousandths(milli)}")
    return parts


def count_evictions(rows: QuerySet[Eviction]) -> Mapping[str, Any]:
    """Return the number of evictions that stopped workloads, the time of the latest one, and the number of
    moves.
    """
    is_move = Q(kind="consolidate")
    stops = ~is_move
    return rows.order_by().aggregate(
        stopped=Count("pk", filter=stops), moved=Count("pk", filter=is_move), latest=Max("at", filter=stops)
    )


def select_busiest(tops: list[QuotaLine]) -> tuple[list[tuple[QuotaLine, list[QuotaLine]]], int]:
    """Return each department's busiest projects by allocated and requested GPUs, and the number of others.

    Projects without quota, allocated or requested GPUs are omitted, as are departments with nothing to show.
    """
    children = [line for top in tops for line in top.children]
    listed = [line for line in children if line.gpus != 0 or line.held or line.pending]
    if len(listed) > PROJECTS_MAX:
        listed.sort(key=lambda line: (-line.allocated, -line.pending, line.owner.name))
        listed = listed[:PROJECTS_MAX]
    shown = {line.owner.pk for line in listed}
    groups = []
    for top in tops:
        lines = [line for line in top.children if line.owner.pk in shown]
        if lines or (top.children and top.numbers_visible and (top.held or top.unassigned)):
            groups.append((top, lines))
    return groups, len(children) - len(listed)


def count_by_state(actor: Actor, pools: Iterable[NodePool], now: datetime) -> dict[str, Any]:
    """Return the number of workloads by state, as in the workload list.

    `failed` counts the workloads that failed in the last day, and `failed_tasks` the tasks of active arrays
    that did. `partly_pending` counts the running arrays with pending tasks. `waiting_since` is the time at
    which the longest wait began, or None.
    """
    rows = workloads(actor).filter(pools__overlap=[pool.name for pool in pools]).order_by()
    counts = {state: state_count(state) for state in COUNTED_STATES}
    counts["failed"] = workload_count(failed_since_condition(now - DAY))
    in_part = Q(state_condition("running"), array__isnull=False, phase__in=PENDING_PHASES)
    failed_tasks = Q(
        phase=Phase.FAILED, array__state=ArrayState.ACTIVE, ended_at__gte=now - DAY, superseded=False
    )
    queued = Q(phase__in=PENDING_PHASES, held=False) & ~Q(reason=UNSCHEDULABLE)
    result = rows.aggregate(
        **counts,
        failed_tasks=Count("pk", filter=failed_tasks),
        partly_pending=Count("array", filter=in_part, distinct=True),
        waiting_since=Min("pending_since", filter=queued),
    )
    folded = only_folded_engines(rows).aggregate(**counts)
    return result | {state: result[state] - folded[state] for state in counts}


def reason_counts(actor: Actor, pools: Iterable[NodePool]) -> list[ReasonCount]:
    """Return the reasons why workloads and tasks of running arrays are pending, most GPUs first.

    Arrays whose pending tasks all wait for earlier tasks have no reason and come last.
    """
    rows = workloads(actor).filter(phase__in=PENDING_PHASES, pools__overlap=[pool.name for pool in pools])
    counts = count_by_reason(rows)
    most = max(counts.gpu_milli.values(), default=0)

    def reason_count(reason: str, count: int, *, is_held: bool = False) -> ReasonCount:
        milli = 0 if is_held else counts.gpu_milli.get(reason, 0)
        bar = stacked_bar([(milli, "requested")], most, format_gpus(milli))
        return ReasonCount(reason, count, milli, bar, is_held)

    reasons = [reason_count(reason, count) for reason, count in counts.by_reason]
    reasons.sort(key=lambda each: -each.gpu_milli)  # ties stay sorted by workload count
    if counts.held_arrays:
        reasons.append(reason_count("", counts.held_arrays, is_held=True))
    return reasons


def longest_pending_workloads(actor: Actor, pools: Iterable[NodePool]) -> list[Workload]:
    """Return the queued workloads with the longest waits. An array is represented by one of its tasks."""
    rows = workloads(actor).filter(
        phase__in=PENDING_PHASES, held=False, pools__overlap=[pool.name for pool in pools]
    )
    candidates = rows.exclude(reason=UNSCHEDULABLE).select_related("array").order_by("pending_since", "pk")
    longest: dict[object, Workload] = {}
    for row in first_rows(candidates, LONGEST_CANDIDATES):
        longest.setdefault(row.array_id or row.pk, row)
    return list(longest.values())[:LONGEST_MAX]
