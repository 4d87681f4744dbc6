"""Activity page, which lists the audit log by day."""

from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter

from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from berth.core.wording.words import token_to_words
from berth.db.queries.known_names import NameColumn, unknown_value_problem
from berth.server.web.lists.filters import describe_unknown
from berth.server.web.lists.periods import parse_period
from berth.server.web.lists.tables import Column, list_query, requested_csv
from berth.server.web.pages import Request, page, signed_in
from berth.server.web.zones import user_time_zone
from projects.known_names import unknown_user_problem
from projects.known_words import OBJECT_TYPES
from projects.models import Audit
from projects.selectors import audit
from projects.services.audit import ACTIONS
from projects.web.activity.entries import NOUNS, ActivityEntry, describe_entries
from projects.web.activity.grouping import group_entries
from projects.web.activity.values import format_changes

# Titles of actions whose names do not say enough in the filter.
ACTION_TITLES = {
    "grant": "Grant role", "issue": "Issue API token", "set_budget": "Create or change budget",
    "set_quota": "Create or change quota", "set_schedule": "Create or change schedule",
    "set_secret": "Create or replace secret", "set_template": "Create or change template",
}  # fmt: skip
FILTERS = {"actor": "actor", "action": "action", "kind": "object_type"}
COLUMNS: tuple[Column[Audit], ...] = (
    Column("at", "Time", lambda row: row.at, order="pk"),
    Column("actor", "User", lambda row: row.actor, order="actor", is_csv_only=True),
    Column("action", "Action", lambda row: row.action, order="action", is_csv_only=True),
    Column("what", "Object", lambda row: row.object_name, order="object_name", is_csv_only=True),
    Column("kind", "Object type", lambda row: row.object_type, is_csv_only=True),
    Column("change", "Changes", format_changes, page_title="Change"),
)


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    filters = {
        key: request.GET.get(key, "").replace("\x00", "")[:100]
        for key in (*FILTERS, "search", "since", "until")
    }
    rows = audit(request.actor).filter(
        **{column: filters[key] for key, column in FILTERS.items() if filters[key]}
    )
    if filters["search"]:
        rows = rows.filter(object_name__icontains=filters["search"])
    zone = user_time_zone(request)
    period = parse_period(filters, zone, timezone.now())
    rows = period.restrict(rows)
    listing = list_query(request, COLUMNS, rows, list, file_name="activity", default="-at")
    if file := requested_csv(request, listing):
        period.require_valid()
        return file
    unknown = (
        unknown_value_problem(
            "action", filters["action"], ACTIONS, NameColumn(audit(request.actor), "action")
        ),
        unknown_value_problem(
            "object type", filters["kind"], OBJECT_TYPES, NameColumn(audit(request.actor), "object_type")
        ),
        unknown_user_problem(request.actor, filters["actor"], NameColumn(audit(request.actor), "actor")),
    )
    everything = audit(request.actor).order_by()
    kinds = everything.order_by("object_type").values_list("object_type", flat=True).distinct()
    actions = everything.order_by("action").values_list("action", flat=True).distinct()
    actors = set(everything.order_by("actor").values_list("actor", flat=True).distinct())
    entries = describe_entries(request.actor, listing.rows)
    today = timezone.now().astimezone(zone)
    context = {
        "filters": filters,
        "period": period,
        "listing": listing,
        "days": [
            (_day_title(day, today), list(group_entries(of_day)))
            for day, of_day in groupby(entries, key=lambda entry: _local_day(entry, today))
        ],
        "actions": sorted(((name, _action_title(name)) for name in actions), key=itemgetter(1)),
        "actors": sorted({*actors, filters["actor"]} - {""}),
        "kinds": [(kind, NOUNS.get(kind, kind)) for kind in kinds],
        "unknown": describe_unknown(*unknown),
        "is_filtered": any(filters.values()),
    }
    return page(request, "projects/activity/list.html", context, inner="projects/activity/rows.html")


def _action_title(action: str) -> str:
    return ACTION_TITLES.get(action) or token_to_words(action)


def _local_day(entry: ActivityEntry, now: datetime) -> datetime:
    local = entry.row.at.astimezone(now.tzinfo)
    return local.replace(hour=0, minute=0, second=0, microsecond=0)


def _day_title(day: datetime, now: datetime) -> str:
    """Return a heading such as "Today, Thursday 26 November 2026"."""
    title = f"{day:%A} {day.day} {day:%B %Y}"
    if day.date() == now.date():
        return f"Today, {title}"
    return f"Yesterday, {title}" if day.date() == now.date() - timedelta(days=1) else title
