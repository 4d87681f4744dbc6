"""Overview page: GPUs, queues, pending workloads with their reasons, and recent evictions."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from zoneinfo import ZoneInfo

from django.db.models import Count
from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from berth.core.amounts import MILLI
from berth.db.models import Lease
from berth.server.web.charts.bars import Bar, stacked
from berth.server.web.charts.columns import Columns, columns
from berth.server.web.pages import Request, page, signed_in
from berth.server.web.zones import zone_of
from pools.models import NodePool
from projects.access import Action, may, visible_pools
from projects.acting import Acting
from projects.models import Phase
from projects.selectors import workloads
from scheduler.reports.evictions.rendering import to_open
from scheduler.reports.invariants import NAME as SCHEDULER
from scheduler.reports.queues.starved import shortfalls
from scheduler.reports.queues.waiting_times import wait_times
from scheduler.reports.selectors import evictions
from scheduler.reports.utilization.over_time import MeanGpus, mean_gpus, used_course
from scheduler.reports.visibility import reader
from scheduler.web.pools.capacity import total_gpus
from scheduler.web.pools.devices import legend, node_maps
from scheduler.web.quotas.queue_rows import Line, lines

DAY = timedelta(days=1)
HOURS = 24
MOST_SHORTFALLS = 5
MOST_EVICTIONS, MOST_REASONS, MOST_DEVICES, MOST_PROJECTS = 6, 8, 512, 40


@dataclass(frozen=True, slots=True)
class ReasonCount:
    reason: str
    count: int
    bar: Bar


@signed_in
@require_GET
def index(request: Request) -> HttpResponse:
    acting = request.acting
    pools = list(visible_pools(acting).order_by("name"))
    pool = next((each for each in pools if each.name == request.GET.get("pool")), None)
    shown = [pool] if pool else pools
    capacity = total_gpus(shown)
    drawn = 0 < capacity.total <= MOST_DEVICES * MILLI
    maps = [each for each in node_maps(acting, shown) if each.devices] if drawn else []
    small = sum(len(each.devices) for each in maps) <= MOST_DEVICES
    now = timezone.now()
    course = [mean_gpus(hour, now) for hour in used_course(shown, now, HOURS)]
    zone = zone_of(request)
    context = {
        "pools": pools,
        "pool": pool,
        "capacity": capacity,
        "queues": busiest(lines(acting, shown)),
        "counts": counts(acting, shown),
        "reasons": reasons(acting, shown),
        "maps": maps if small else [],
        "legend": legend(maps) if small else [],
        "evicted": to_open(
            reader(acting), evictions(acting).filter(pool_id__in=[each.pk for each in shown])[:MOST_EVICTIONS]
        ),
        "evicted_today": evictions(acting).filter(at__gte=now - DAY).count(),
        "waits": wait_times(acting, shown, now - DAY),
        "shortfalls": shortfalls(acting, shown)[:MOST_SHORTFALLS],
        "course": list(reversed(course)),
        "measured": any(hour.measured for hour in course),
        "chart": chart_of(course, zone),
        "zone": zone.key,
        "no_scheduler": not Lease.objects.filter(name=SCHEDULER, expires_at__gt=now).exists(),
        "failing": [each for each in shown if each.last_error],
        "running_it": may(acting, Action.ADMINISTER),
    }
    return page(request, "web/overview.html", context, inner="web/overview_body.html")


def chart_of(course: list[MeanGpus], zone: ZoneInfo) -> Columns:
    """Return hourly stacks of GPUs: busy, allocated but idle, allocated but not measured, and free."""
    layers: dict[str, list[tuple[float, str]]] = {"busy": [], "quiet": [], "used": [], "wanted": []}
    for hour in course:
        at = hour.at.astimezone(zone).strftime("%a %H:00")
        for kind, amount, use in (
            ("busy", hour.used, "allocated and busy"),
            ("quiet", hour.measured - hour.used, "allocated and not busy"),
            ("used", hour.allocated - hour.measured, "allocated, not measured"),
            ("wanted", hour.total - hour.allocated, "free"),
        ):
            layers[kind].append((amount, f"{at}: {amount:,.1f} GPUs {use}"))
    return columns(list(layers.items()))


def busiest(tops: list[Line]) -> list[tuple[Line, list[Line], int]]:
    """Return each department with the projects to show and the number of its other projects.

    If there are many projects, show the projects with the most allocated and requested GPUs, and omit
    departments without projects.
    """
    children = [line for top in tops for line in top.children]
    many = len(children) > MOST_PROJECTS
    if many:
        children = [line for line in children if line.allocated or line.waiting]
        children.sort(key=lambda line: (-line.allocated, -line.waiting, line.owner.name))
    shown = {line.owner.pk for line in children[:MOST_PROJECTS]}
    shown_tops = []
    for top in tops:
        drawn = [line for line in top.children if line.owner.pk in shown]
        if drawn or top.children:
            shown_tops.append((top, drawn, len(top.children) - len(drawn)))
    return shown_tops


def counts(acting: Acting, pools: Iterable[NodePool]) -> dict[str, int]:
    """Return the number of live workloads by state."""
    rows = workloads(acting).filter(pools__overlap=[pool.name for pool in pools]).order_by()
    by_phase = dict(rows.values_list("phase").annotate(count=Count("pk")))
    return {
        "running": sum(by_phase.get(phase, 0) for phase in (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)),
        "pending": sum(by_phase.get(phase, 0) for phase in (Phase.PENDING, Phase.RESERVED)),
        "suspended": by_phase.get(Phase.SUSPENDED, 0),
    }


def reasons(acting: Acting, pools: Iterable[NodePool]) -> list[ReasonCount]:
    """Return the pending reasons with their numbers of workloads, most frequent first."""
    rows = (
        workloads(acting)
        .filter(phase=Phase.PENDING, pools__overlap=[pool.name for pool in pools])
        .order_by()
        .values_list("reason")
        .annotate(count=Count("pk"))
    )
    commonest = sorted(rows, key=lambda row: (-row[1], row[0]))[:MOST_REASONS]
    most = commonest[0][1] if commonest else 0
    return [ReasonCount(reason, n, stacked([(n, "over")], most, f"{n} workloads")) for reason, n in commonest]
