"""Preview and apply edits to the quota grid, and report conflicts cell by cell."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db.models import Max
from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from berth.core.errors import Invalid, PreconditionFailed
from berth.core.wording.words import format_count
from berth.server.web.pages import Request, signed_in
from berth.server.web.zones import user_time_zone
from pools.models import NodePool, QuotaGroup
from projects.actor import Actor
from projects.models import QuotaChange
from projects.models.tenants import PoolOrGroup
from projects.selectors import VisibleScope, departments, projects, quota_changes
from projects.services.quotas.drafts import NO_VERSION, Draft, apply_draft
from projects.web.quotas.cells import FIELDS
from projects.web.quotas.expiry import parse_expiry
from scheduler.reports.what_if.quota_preview import QuotaImpact, preview_draft
from scheduler.web.quotas.confirmation import find_consequences
from scheduler.web.quotas.grid_input import EditedQuota, build_changes, errors_by_cell, parse_edits
from scheduler.web.quotas.grid_table import cell_value, visible_quotas
from scheduler.web.quotas.preview_by_pool import group_by_pool, shares_with_visible_change

MAX_CHANGES = 100  # maximum number of changes; with more, the page reloads completely
QuotaPlace = tuple[str, str]  # owner key and pool name


@signed_in
@require_POST
def preview_or_apply(request: Request) -> HttpResponse:
    """Preview or apply the edited cells.

    Return a preview as HTML, and everything else as JSON. Edits that evict workloads or delete quotas are
    applied only if `confirmed` is the ETag of the edited quota versions.
    """
    typed: Sequence[EditedQuota] = ()
    try:
        typed = parse_edits(request.actor, request.POST.get("draft", ""))
        comment = request.POST.get("comment", "").replace("\x00", "")[:500].strip()
        expiry = parse_expiry(request.POST.get("until", ""), user_time_zone(request), timezone.now())
        draft = Draft(build_changes(typed), comment, expiry)
        if stale := _conflicting_quotas(request.actor, typed):
            return JsonResponse({"theirs": stale, "latest": latest_change_id()}, status=412)
        if request.POST.get("do") != "apply":
            return _render_preview(request, draft)
        tag = "-".join(edited.version for edited in typed)
        impact = preview_draft(actor=request.actor, draft=draft)
        if request.POST.get("confirmed") != tag and (
            question := _render_confirmation_question(request, impact)
        ):
            return JsonResponse({"question": question, "tag": tag})
        change, _ = apply_draft(actor=request.actor, draft=draft, expected=tag)
    except Invalid as error:
        return JsonResponse({"faults": list(errors_by_cell(typed, error))}, status=422)
    except PreconditionFailed:
        return JsonResponse(
            {"theirs": _conflicting_quotas(request.actor, typed), "latest": latest_change_id()}, status=412
        )
    now = current_cells(request.actor, {(edited.key, edited.pool.name): {} for edited in typed})
    message = " ".join([_describe_applied_edits(typed), *(warning["message"] for warning in impact.warnings)])
    answer = {
        "applied": message, "warns": bool(impact.warnings), "latest": latest_change_id(), "theirs": now,
    }  # fmt: skip
    return JsonResponse(answer | ({"link": _link_to_change(change)} if change else {}))


@signed_in
@require_GET
def changes_since(request: Request) -> JsonResponse:
    """Return the current values of the quotas that have changed since the change `after`.

    If there are too many, `reload` is true.
    """
    after = request.GET.get("after", "")
    last_seen = int(after) if after.isdecimal() and len(after) < 18 else 0
    changes = list(quota_changes(request.actor).filter(pk__gt=last_seen).order_by("pk")[: MAX_CHANGES + 1])
    seen, who = VisibleScope(request.actor), dict[QuotaPlace, dict[str, Any]]()
    for change in changes:
        for entry in change.written:
            if seen.includes(entry.get("project_id"), entry["department_id"]):
                key = f"{entry['kind']}-{entry[entry['kind'] + '_id']}"
                who[key, entry["pool"]] = {"by": change.actor, "at": change.at.isoformat()}
    rows = departments(request.actor).count() + projects(request.actor).count()
    return JsonResponse(
        {
            "theirs": current_cells(request.actor, who),
            "latest": max([last_seen, *(change.pk for change in changes)]),
            "tenants": rows,
            "reload": len(changes) > MAX_CHANGES,
        }
    )


def current_cells(actor: Actor, places: Mapping[QuotaPlace, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the stored values of the visible quotas, each combined with its entry in `places`."""
    names = {name for _, name in places}
    pools: dict[str, PoolOrGroup] = {pool.name: pool for pool in NodePool.objects.filter(name__in=names)}
    if names - pools.keys():
        pools |= {group.name: group for group in QuotaGroup.objects.filter(name__in=names)}
    stored_quotas = visible_quotas(actor, pools.values(), {key for key, _ in places})
    cells = []
    for (key, name), who in places.items():
        if name not in pools:
            continue
        quota = stored_quotas.get(key, {}).get(name)
        cells.append(
            {
                "owner": key,
                "pool": name,
                "version": quota.version if quota else NO_VERSION,
                "values": {field: cell_value(quota, field) for field in FIELDS},
                **who,
            }
        )
    return cells


def latest_change_id() -> int:
    return QuotaChange.objects.aggregate(n=Max("pk"))["n"] or 0


def _render_confirmation_question(request: Request, impact: QuotaImpact) -> str:
    """Return the confirmation prompt for evictions and deletions as HTML, or "" if the draft causes none."""
    consequences = find_consequences(impact)
    if consequences is None:
        return ""
    context = {"ask": consequences, "label": "Apply changes", "back": reverse("quotas")}
    return render_to_string("scheduler/quotas/confirm_form.html", context, request)


def _link_to_change(change: QuotaChange) -> dict[str, str]:
    url = f"{reverse('quota-changes')}?change={change.pk}"
    return {"text": f"Show change {change.pk}", "href": url}


def _describe_applied_edits(typed: Sequence[EditedQuota]) -> str:
    removals = sum(edited.is_removal for edited in typed)
    parts = [
        f"{format_count(count, 'quota')} {what}"
        for count, what in ((len(typed) - removals, "saved"), (removals, "deleted"))
        if count
    ]
    return f"{', '.join(parts)}."


def _render_preview(request: Request, draft: Draft) -> HttpResponse:
    impact = preview_draft(actor=request.actor, draft=draft)
    impact.shares = shares_with_visible_change(impact)
    context = {"impact": impact, "pools": group_by_pool(impact), "count": len(draft.changes)}
    return render(request, "scheduler/quotas/grid_preview.html", context)


def _conflicting_quotas(actor: Actor, typed: Iterable[EditedQuota]) -> list[dict[str, Any]]:
    current = current_cells(actor, {(edited.key, edited.pool.name): {} for edited in typed})
    versions = {(edited.key, edited.pool.name): edited.version for edited in typed}
    changed = [row for row in current if row["version"] != versions[row["owner"], row["pool"]]]
    by = _last_changes([row["owner"] for row in changed])
    return [{**row, **by.get((row["owner"], row["pool"]), {"by": "Someone else"})} for row in changed]


def _last_changes(keys: Sequence[str]) -> dict[QuotaPlace, dict[str, Any]]:
    """Return the time and user of each quota's last change, if it is among the latest MAX_CHANGES changes."""
    result: dict[QuotaPlace, dict[str, Any]] = {}
    requested_keys = set(keys)
    for change in QuotaChange.objects.order_by("-pk")[:MAX_CHANGES] if requested_keys else ():
        for entry in change.written:
            key = f"{entry['kind']}-{entry[entry['kind'] + '_id']}"
            if key in requested_keys:
                place = (key, entry["pool"])
                result.setdefault(place, {"by": change.actor, "at": change.at.isoformat()})
    return result
