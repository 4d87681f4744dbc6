"""Page where users list, preview and revert quota changes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from berth.core.errors import BerthError
from berth.core.wording.words import format_count
from berth.server.web.lists.periods import parse_period
from berth.server.web.lists.tables import Column, list_query, requested_csv, table_state
from berth.server.web.pages import Request, page, signed_in, success_response
from berth.server.web.zones import user_time_zone
from projects.access import Action, may, visible_pools
from projects.actor import Actor
from projects.models import QuotaChange, QuotaExpiry
from projects.selectors import VisibleScope, audit, departments, find_quota_change, quota_changes
from projects.services.quotas import require_quota_permission
from projects.services.quotas.reverts import latest_changes, prepare_revert, revert, superseding_change
from projects.web.activity.values import list_differences
from scheduler.reports.what_if.quota_preview import preview_draft
from scheduler.web.quotas.preview_by_pool import shares_with_visible_change

PAGE_SIZE = 25
KEYS = ("change", "pool", "user", "since", "until")
DEFAULTS = {"Weight": "1", "Over quota": "yes"}  # default values, which are not listed for a new quota


@dataclass(frozen=True, slots=True)
class ChangedQuota:
    """Quota that was changed, with its old and new values."""

    name: str
    place: str
    created: bool
    removed: bool
    values: list[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class ListedChange:
    change: QuotaChange
    quotas: list[ChangedQuota]
    hidden: int
    reverted_by: int | None
    superseded_by: int | None
    expiry: QuotaExpiry | None
    can_revert: bool

    @property
    def revert_link_prefix(self) -> str:
        """Return the text before the link to the reverted change, or "" if the change is not a revert."""
        if self.change.reverts is None:
            return ""
        return "Expiry of" if self.change.comment.endswith("has expired") else "Reverts"

    @property
    def description(self) -> str:
        shown = [f"Quota of {quota.name} in {quota.place}{_format_values(quota)}" for quota in self.quotas]
        return "; ".join(
            [*shown, f"{format_count(self.hidden, 'more quota')} not visible to you"]
            if self.hidden
            else shown
        )


def _format_values(quota: ChangedQuota) -> str:
    if quota.removed:
        return " deleted"
    if quota.created:
        return " created: " + ", ".join(f"{key} {after or 'none'}" for key, _, after in quota.values)
    return ": " + ", ".join(
        f"{key} {before or 'none'} → {after or 'none'}" for key, before, after in quota.values
    )


COLUMNS: tuple[Column[ListedChange], ...] = (
    Column("number", "No.", lambda row: row.change.pk),
    Column("at", "Time", lambda row: row.change.at, order="pk"),
    Column("actor", "User", lambda row: row.change.actor, order="actor"),
    Column("what", "Changes", lambda row: row.description),
    Column("comment", "Comment", lambda row: row.change.comment, order="comment"),
    Column("expires", "Expires", lambda row: row.expiry.due_at if row.expiry else None, is_csv_only=True),
    Column("reverted", "Reverted by change", lambda row: row.reverted_by, is_csv_only=True),
)


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    actor, rows = request.actor, quota_changes(request.actor)
    for word in table_state(request.GET, "")["search"].split():
        named = audit(actor).filter(object_name__icontains=word, change_id__isnull=False)
        numbered = Q(pk=int(word)) if word.isdecimal() and len(word) < 18 else Q()
        rows = rows.filter(
            Q(pk__in=named.values("change_id"))
            | Q(actor__icontains=word)
            | Q(comment__icontains=word)
            | numbered
        )
    filters = {key: request.GET.get(key, "").replace("\x00", "")[:150] for key in KEYS}
    users = rows.order_by("actor").values_list("actor", flat=True).distinct()
    period = parse_period(filters, user_time_zone(request), timezone.now())
    rows = period.restrict(_filter_changes(rows, filters))
    listing = list_query(
        request, COLUMNS, rows, lambda some: list_changes(actor, some),
        file_name="quota-changes", default="-at", size=PAGE_SIZE,
    )  # fmt: skip
    if file := requested_csv(request, listing):
        period.require_valid()
        return file
    context = {
        "listing": listing,
        "changes": listing.rows,
        "filters": filters,
        "period": period,
        "is_filtered": bool(listing.search or any(filters.values())),
        "may_revert": _may_set_some_quota(actor),
        "pools": visible_pools(actor).order_by("name").values_list("name", flat=True),
        "users": users,
    }
    return page(request, "scheduler/quotas/changes.html", context, inner="scheduler/quotas/change_rows.html")


def _filter_changes(rows: QuerySet[QuotaChange], filters: Mapping[str, str]) -> QuerySet[QuotaChange]:
    if filters["pool"]:
        rows = rows.filter(written__contains=[{"pool": filters["pool"]}])
    if filters["change"]:
        number = filters["change"]
        rows = rows.filter(pk=int(number)) if number.isdecimal() and len(number) < 18 else rows.none()
    return rows.filter(actor=filters["user"]) if filters["user"] else rows


def _may_set_some_quota(actor: Actor) -> bool:
    return may(actor, Action.ADMINISTER) or any(
        may(actor, Action.EDIT, department) for department in departments(actor)
    )


@signed_in
@require_http_methods(["GET", "POST"])
def revert_change(request: Request, change_id: int) -> HttpResponse:
    change = find_quota_change(request.actor, change_id)
    impact, fault = None, None
    try:
        draft, _ = prepare_revert(request.actor, change)
        for edit in draft.changes:
            require_quota_permission(request.actor, edit.owner)
        if request.method == "POST":
            revert_change = revert(actor=request.actor, change=change)
            message = f"Change {change.pk} reverted by change {revert_change.pk}."
            return success_response(request, message, to=reverse("quota-changes"))
        impact = preview_draft(actor=request.actor, draft=draft)
        impact.shares = shares_with_visible_change(impact)
    except BerthError as error:
        if error.status in (403, 404):
            raise
        fault = error
    context = {
        "listed": list_changes(request.actor, [change])[0],
        "impact": impact,
        "result": {"quotas": [_restored_quota(quota) for quota in impact.quotas]} if impact else None,
        "evicted": len(impact.evictions) + impact.hidden.evictions if impact else 0,
        "fault": fault.detail if fault else "",
        "post_to": request.path,
        "back": reverse("quota-changes"),
    }
    status = fault.status if fault else 200
    return page(
        request,
        "scheduler/quotas/revert.html",
        context,
        inner="scheduler/quotas/revert_form.html",
        status=status,
    )


def list_changes(actor: Actor, rows: Iterable[QuotaChange]) -> list[ListedChange]:
    """Return the changes, each with the quotas that the user may see and the number of hidden quotas."""
    changes, seen = list(rows), VisibleScope(actor)
    reverted = dict(
        QuotaChange.objects.filter(reverts__in=[row.pk for row in changes]).values_list("reverts", "pk")
    )
    expiries = {
        row.change_id: row for row in QuotaExpiry.objects.filter(change__in=[row.pk for row in changes])
    }
    mine = {department.pk for department in departments(actor) if may(actor, Action.EDIT, department)}
    everything = may(actor, Action.ADMINISTER)
    latest = latest_changes(quota for row in changes for quota in row.written)
    listing = []
    for row in changes:
        shown = [
            quota for quota in row.written if seen.includes(quota.get("project_id"), quota["department_id"])
        ]
        settable = everything or all(
            quota["kind"] == "project" and quota["department_id"] in mine for quota in row.written
        )
        superseded_by = superseding_change(row, shown, latest)
        listing.append(
            ListedChange(
                change=row,
                quotas=[_changed_quota(quota) for quota in shown],
                hidden=len(row.written) - len(shown),
                reverted_by=reverted.get(row.pk),
                superseded_by=superseded_by,
                expiry=expiries.get(row.pk),
                can_revert=settable and row.pk not in reverted and superseded_by is None,
            )
        )
    return listing


def _changed_quota(quota: Mapping[str, Any]) -> ChangedQuota:
    return _describe_quota(quota, is_group=quota["pool_id"] is None)


def _restored_quota(quota: Mapping[str, Any]) -> ChangedQuota:
    return _describe_quota(quota, is_group=quota["group"])


def _describe_quota(quota: Mapping[str, Any], *, is_group: bool) -> ChangedQuota:
    before, after = (_merge_weights(quota[side] or {}) for side in ("before", "after"))
    values = list_differences(before, after)
    if not before:
        values = [value for value in values if DEFAULTS.get(value[0]) != value[2]]
    return ChangedQuota(
        quota["name"],
        f"{'quota group' if is_group else 'pool'} {quota['pool']}",
        created=not before,
        removed=not after,
        values=values,
    )


def _merge_weights(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the weights with a single value if they are equal for all resources."""
    weights = values.get("weight")
    if isinstance(weights, dict) and len(set(weights.values())) == 1:
        return {**values, "weight": next(iter(weights.values()))}
    return dict(values)
