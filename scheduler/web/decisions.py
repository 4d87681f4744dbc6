"""Pages of scheduling decisions by cycle, with links to evictions and replays."""

from django.http import Http404, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from berth.core.errors import Conflict
from berth.server.web.lists.filters import describe_unknown
from berth.server.web.lists.paging import load_slice
from berth.server.web.lists.periods import CHOICES, parse_period
from berth.server.web.pages import Request, page, signed_in
from berth.server.web.zones import user_time_zone
from projects.access import is_platform_admin, visible_pools
from projects.known_names import unknown_pool_problem, unknown_project_problem
from projects.selectors import projects
from scheduler.models import Cycle
from scheduler.reports.decisions import (
    KIND_TITLES,
    CycleDecisions,
    DecisionFilters,
    cycles_with_decisions,
    render_cycles,
)
from scheduler.reports.replay import replay
from scheduler.reports.triggers import describe_trigger
from scheduler.web.decision_rows import decision_rows
from scheduler.web.decision_steps import step_rows

SORTS = {"at": "pk"}
CYCLES_PER_PAGE = 50
FILTERS = ("kind", "pool", "project", "workload")
PERIOD_FILTERS = ("since", "until", "period")


@signed_in
@require_GET
def index(request: Request) -> HttpResponse:
    values = {key: request.GET.get(key, "").replace("\x00", "")[:100] for key in (*FILTERS, *PERIOD_FILTERS)}
    filters = DecisionFilters(values["kind"], values["pool"], values["project"], values["workload"])
    period = parse_period(values, user_time_zone(request), timezone.now())
    rows = period.restrict(cycles_with_decisions(request.actor, filters, period.since, period.until))
    cursor = request.GET.get("cursor", "")
    listing = load_slice(rows, SORTS, sort="-at", default="-at", cursor=cursor, size=CYCLES_PER_PAGE)
    unknown = (
        unknown_pool_problem(request.actor, filters.pool),
        unknown_project_problem(request.actor, filters.project),
    )
    context = {
        "filters": values,
        "period": period,
        "unknown": "" if listing.rows else describe_unknown(*unknown),
        "is_admin": is_platform_admin(request.actor),
        "is_filtered": period.is_set or any(values[key] for key in FILTERS),
        "slice": listing,
        "rows": decision_rows(render_cycles(request.actor, listing.rows, filters)),
        "kinds": KIND_TITLES.items(),
        "periods": CHOICES,
        "pools": visible_pools(request.actor).order_by("name"),
        "projects": projects(request.actor),
    }
    return page(request, "scheduler/decisions/list.html", context, inner="scheduler/decisions/rows.html")


@signed_in
@require_GET
def detail(request: Request, cycle_id: int) -> HttpResponse:
    cycle = _find_cycle(request, cycle_id)
    context = {
        "cycle": cycle,
        "decisions": step_rows(request.actor, cycle.decisions),
        "trigger": describe_trigger(cycle.row.trigger),
        "is_admin": is_platform_admin(request.actor),
        "has_snapshot": Cycle.objects.filter(pk=cycle_id, snapshot__isnull=False).exists(),
    }
    return page(request, "scheduler/decisions/detail.html", context)


@signed_in
@require_POST
def replay_cycle(request: Request, cycle_id: int) -> HttpResponse:
    """Replay the stored snapshot with the current engine, without storing the result."""
    if not is_platform_admin(request.actor):
        raise Http404
    cycle = _find_cycle(request, cycle_id)
    context: dict[str, object] = {
        "cycle": cycle,
        "decisions": step_rows(request.actor, cycle.decisions),
        "trigger": describe_trigger(cycle.row.trigger),
        "is_admin": True,
    }
    try:
        context["result"] = replay(Cycle.objects.get(pk=cycle_id))
    except Conflict as error:
        context["problem"] = error.detail
    return page(request, "scheduler/decisions/detail.html", context, inner="scheduler/decisions/replay.html")


def _find_cycle(request: Request, cycle_id: int) -> CycleDecisions:
    """Return the cycle.

    Raises Http404 if the cycle does not exist, or if all of its decisions are hidden from the user.
    """
    row = Cycle.objects.defer("snapshot").filter(pk=cycle_id).first()
    if row is None:
        raise Http404
    cycle = render_cycles(request.actor, [row], DecisionFilters())[0]
    if not cycle.decisions and not is_platform_admin(request.actor):
        raise Http404
    return cycle
