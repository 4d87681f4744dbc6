"""Landing page of the admin site: problems that need attention, and recent events."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import Count, Q
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django_q.models import Failure, OrmQ

from berth.core.wording.words import format_gpu_time
from berth.server.web.admin_site.base import actor, is_platform_admin, render_table
from berth.server.web.admin_site.columns import format_time
from berth.server.web.numbers import NO_VALUE, milliseconds
from berth.server.web.zones import user_time_zone
from pools.models import Node, NodePool
from projects.actor import Actor
from projects.models import Audit, Delivery, Phase, Workload
from projects.selectors import workload_count
from projects.web.activity.entries import describe_entries
from scheduler.models import Cycle, Eviction
from scheduler.reports.evictions.rendering import KIND_TITLES
from scheduler.reports.health import health_document

DAY = timedelta(days=1)
MAX_ROWS = 6  # maximum number of rows per table
NUMBERS = ("Decisions applied", "Evictions", "Work lost", "Duration")
PENDING_PHASES = (Phase.PENDING, Phase.RESERVED)
Card = dict[str, Any]


def landing_page(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Add cards and tables to the context of the landing page. Raises PermissionDenied."""
    if not is_platform_admin(request):
        raise PermissionDenied
    now = timezone.now()
    return context | {
        "title": "Overview",
        "cards": [
            _scheduling_card(now),
            _capacity_card(),
            _evictions_card(now),
            _background_tasks_card(now),
        ],
        "tables": [_evictions_table(), _cycles_table(), _changes_table(actor(request))],
    }


def zone_label(request: HttpRequest) -> tuple[str, str]:
    """Return the text and colour of the label that shows the page's time zone."""
    return f"Times in {user_time_zone(request).key}", "info"


def _scheduling_card(now: datetime) -> Card:
    state = health_document(now)
    leader = state["leader"]
    broken = [invariant["name"] for invariant in state["invariants"] if not invariant["ok"]]
    alive = leader is not None and leader["alive"]
    notes = state["last_cycle"]["notes"] if state["last_cycle"] else []
    pending = Workload.objects.order_by().aggregate(n=workload_count(Q(phase__in=PENDING_PHASES)))["n"]
    lines = [f"{pending:,} pending"]
    lines += [f"violated: {name}" for name in broken]
    lines += [f"{len(notes)} invalid rows skipped"] if notes else []
    if leader is not None and alive:
        host, _, process = leader["holder"].partition(":")
        lines.append(f"on {host}, process {process}" if process else f"on {host}")
    return _card(
        "Scheduler",
        "Running" if alive else "Not running",
        lines,
        "scheduler_cycle",
        is_healthy=alive and not broken and not notes,
    )


def _capacity_card() -> Card:
    states = dict(Node.objects.exclude(state="ended").order_by().values_list("state").annotate(n=Count("pk")))
    failing = list(NodePool.objects.exclude(last_error="").values_list("name", flat=True)[:MAX_ROWS])
    lines = [f"{count:,} {state}" for state, count in sorted(states.items()) if state != "ready"]
    lines += [f"{name}: provider errors" for name in failing]
    return _card("Nodes", f"{states.get('ready', 0):,} ready", lines, "pools_node", is_healthy=not failing)


def _evictions_card(now: datetime) -> Card:
    evictions = Eviction.objects.filter(at__gte=now - DAY).order_by().values_list("kind", "lost_gpu_seconds")
    kinds: dict[str, int] = {}
    for kind, _ in evictions:
        kinds[kind] = kinds.get(kind, 0) + 1
    lines = [f"{count:,} {KIND_TITLES[kind].lower()}" for kind, count in sorted(kinds.items())]
    lines += (
        [f"{format_gpu_time(sum(seconds for _, seconds in evictions))} of work lost"] if evictions else []
    )
    return _card("Evictions (24 h)", f"{len(evictions):,}", lines, "scheduler_eviction", is_healthy=True)


def _background_tasks_card(now: datetime) -> Card:
    failed = Failure.objects.filter(stopped__gte=now - DAY).count()
    undelivered = Delivery.objects.filter(at__gte=now - DAY, state=Delivery.State.FAILED).count()
    lines = [f"{failed:,} failed in 24 hours"] if failed else []
    lines += (
        [f"{undelivered:,} notification{'' if undelivered == 1 else 's'} not delivered"]
        if undelivered
        else []
    )
    queued = OrmQ.objects.count()
    return _card("Background tasks", f"{queued:,} queued", lines, "django_q_failure", is_healthy=not lines)


def _card(title: str, headline: str, lines: list[str], model: str, *, is_healthy: bool) -> Card:
    address = reverse(f"admin:{model}_changelist")
    return {"title": title, "headline": headline, "lines": lines, "link": address, "well": is_healthy}


def _evictions_table() -> Card:
    rows = [
        (
            _link_to_row(row, f"{row.project_name}/{row.workload_name}"),
            f"{row.preemptor_project_name}/{row.preemptor_name}" if row.preemptor_name else NO_VALUE,
            KIND_TITLES[row.kind],
            format_gpu_time(row.lost_gpu_seconds),
            format_time(row.at),
        )
        for row in Eviction.objects.order_by("-at")[:MAX_ROWS]
    ]
    headings = ("Victim", "Preemptor", "Kind", "Work lost", "Time")
    return _table("Latest evictions", headings, rows, "scheduler_eviction")


def _cycles_table() -> Card:
    cycles = Cycle.objects.defer("snapshot", "plan").filter(bundles__gt=0).order_by("-id")[:MAX_ROWS]
    rows = [
        (
            _link_to_row(row, f"Cycle {row.pk}"),
            f"{row.applied} of {row.bundles}",
            row.evictions,
            milliseconds(row.observe_ms + row.decide_ms + row.commit_ms),
            format_time(row.at),
        )
        for row in cycles
    ]
    headings = ("Cycle", "Decisions applied", "Evictions", "Duration", "Time")
    return _table("Latest cycles with decisions", headings, rows, "scheduler_cycle")


def _changes_table(actor: Actor) -> Card:
    changes = list(Audit.objects.order_by("-pk")[:MAX_ROWS])
    rows = [
        (
            _link_to_row(entry.row, capfirst(f"{entry.verb} {entry.name}{entry.tail}")),
            entry.row.actor,
            format_time(entry.row.at),
        )
        for entry in describe_entries(actor, changes)
    ]
    return _table("Latest changes", ("Change", "User", "Time"), rows, "projects_audit")


def _table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], model: str) -> Card:
    link = reverse(f"admin:{model}_changelist")
    return {"title": title, "link": link, "table": render_table(headings, rows, numbers=NUMBERS)}


def _link_to_row(row: Eviction | Cycle | Audit, text: str) -> SafeString:
    address = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])
    return format_html('<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', address, text)
