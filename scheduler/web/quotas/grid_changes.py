"""Preview and apply the quota grid, reporting conflicts cell by cell."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.db.models import Max
from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from berth.core.errors import Invalid, PreconditionFailed
from berth.core.problems import Problem
from berth.core.words import counted
from berth.server.web.pages import Request, signed_in
from berth.server.web.zones import zone_of
from pools.models import NodePool
from projects.acting import Acting
from projects.models import QuotaChange
from projects.selectors import Scope, departments, projects, quota_changes
from projects.services.quotas.drafts import NO_VERSION, Draft, apply_draft
from projects.services.quotas.expiry import expiry_problems
from projects.web.quotas.cells import FIELDS
from scheduler.reports.what_if.quota_preview import preview
from scheduler.web.quotas.grid_input import Typed, changes_of, faults_of, read_typed
from scheduler.web.quotas.grid_table import held_values, stored
from scheduler.web.quotas.preview_by_pool import by_pool

MOST_CHANGES = 100  # with more changes the page reloads
Place = tuple[str, str]  # key of the owner, name of the pool


@signed_in
@require_POST
def submit(request: Request) -> HttpResponse:
    """Return the preview as HTML, or JSON with the applied, conflicting or invalid changes."""
    typed: Sequence[Typed] = ()
    try:
        typed = read_typed(request.acting, request.POST.get("draft", ""))
        comment = request.POST.get("comment", "").replace("\x00", "")[:500].strip()
        draft = Draft(changes_of(typed), comment, _expiry(request))
        if stale := _conflicting_quotas(request.acting, typed):
            return JsonResponse({"theirs": stale, "latest": latest()}, status=412)
        if request.POST.get("do") != "apply":
            return _render_preview(request, draft)
        apply_draft(acting=request.acting, draft=draft, expected="-".join(each.version for each in typed))
    except Invalid as error:
        return JsonResponse({"faults": list(faults_of(typed, error))}, status=422)
    except PreconditionFailed:
        return JsonResponse(
            {"theirs": _conflicting_quotas(request.acting, typed), "latest": latest()}, status=412
        )
    now = present(request.acting, {(each.key, each.pool.name): {} for each in typed})
    return JsonResponse({"applied": _applied_message(typed), "latest": latest(), "theirs": now})


@signed_in
@require_GET
def updates(request: Request) -> JsonResponse:
    """Return the changes since the page was loaded. `reload` is true if there are too many to list."""
    after = request.GET.get("after", "")
    last_seen = int(after) if after.isdecimal() and len(after) < 18 else 0
    changes = list(quota_changes(request.acting).filter(pk__gt=last_seen).order_by("pk")[: MOST_CHANGES + 1])
    seen, who = Scope(request.acting), dict[Place, dict[str, Any]]()
    for change in changes:
        for entry in change.written:
            if seen.holds(entry.get("project_id"), entry["department_id"]):
                key = f"{entry['kind']}-{entry[entry['kind'] + '_id']}"
                who[key, entry["pool"]] = {"by": change.actor, "at": change.at.isoformat()}
    rows = departments(request.acting).count() + projects(request.acting).count()
    return JsonResponse(
        {
            "theirs": present(request.acting, who),
            "latest": max([last_seen, *(change.pk for change in changes)]),
            "tenants": rows,
            "reload": len(changes) > MOST_CHANGES,
        }
    )


def present(acting: Acting, places: Mapping[Place, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the stored values of visible cells, with the user who set them last."""
    pools = {pool.name: pool for pool in NodePool.objects.filter(name__in={name for _, name in places})}
    held = stored(acting, pools.values(), {key for key, _ in places})
    cells = []
    for (key, name), who in places.items():
        if name not in pools:
            continue
        quota = held.get(key, {}).get(pools[name].pk)
        cells.append(
            {
                "owner": key,
                "pool": name,
                "version": quota.version if quota else NO_VERSION,
                "values": {field: held_values(quota, field) for field in FIELDS},
                **who,
            }
        )
    return cells


def latest() -> int:
    return QuotaChange.objects.aggregate(n=Max("pk"))["n"] or 0


def _expiry(request: Request) -> datetime | None:
    """Return the time at which the change expires, or None if it never expires.

    A time without an offset is in the reader's time zone. Raises Invalid.
    """
    text = request.POST.get("until", "").strip()
    if not text:
        return None
    try:
        typed = datetime.fromisoformat(text)
        expiry = (typed if typed.tzinfo else typed.replace(tzinfo=zone_of(request))).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid([Problem("expires_at", "is not a valid time", text[:40], "a date and time")]) from None
    if problems := expiry_problems(expiry, timezone.now()):
        raise Invalid(problems)
    return expiry


def _applied_message(typed: Sequence[Typed]) -> str:
    removals = sum(each.removes for each in typed)
    parts = [
        f"{counted(count, 'quota')} {what}"
        for count, what in ((len(typed) - removals, "saved"), (removals, "deleted"))
        if count
    ]
    return f"{', '.join(parts)}."


def _render_preview(request: Request, draft: Draft) -> HttpResponse:
    impact = preview(acting=request.acting, draft=draft)
    context = {"impact": impact, "pools": by_pool(impact), "count": len(draft.changes)}
    return render(request, "scheduler/quotas/grid_preview.html", context)


def _conflicting_quotas(acting: Acting, typed: Iterable[Typed]) -> list[dict[str, Any]]:
    """Return the draft's quotas that have changed since the draft was started."""
    each_now = present(acting, {(each.key, each.pool.name): {} for each in typed})
    versions = {(each.key, each.pool.name): each.version for each in typed}
    moved = [row for row in each_now if row["version"] != versions[row["owner"], row["pool"]]]
    by = _last_changes([row["owner"] for row in moved])
    return [{**row, **by.get((row["owner"], row["pool"]), {"by": "Someone else"})} for row in moved]


def _last_changes(keys: Sequence[str]) -> dict[Place, dict[str, Any]]:
    """Return the user and time of each quota's last change."""
    result: dict[Place, dict[str, Any]] = {}
    wanted = set(keys)
    for change in QuotaChange.objects.order_by("-pk")[:MOST_CHANGES] if wanted else ():
        for entry in change.written:
            key = f"{entry['kind']}-{entry[entry['kind'] + '_id']}"
            if key in wanted:
                place = (key, entry["pool"])
                result.setdefault(place, {"by": change.actor, "at": change.at.isoformat()})
    return result
