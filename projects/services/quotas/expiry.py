"""Revert temporary quota changes when they expire.

What somebody has set since then stays as they set it: only what is still as the change left it goes back.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from berth.core.errors import BerthError
from berth.core.problems import Problem, shown
from projects.acting import Acting
from projects.models import Lapse, Quota, QuotaChange
from projects.services.quotas.drafts import Draft, apply_draft, inverse_of

LONGEST = timedelta(days=366)
NOT_SET_SINCE = "Taken back before its time."


def faults_of_time(at: datetime, now: datetime) -> list[Problem]:
    """A change may be made for a minute up to a year."""
    if now < at <= now + LONGEST:
        return []
    allowed = f"later than {now:%Y-%m-%dT%H:%M:%SZ}, within {LONGEST.days} days"
    return [Problem("expires_at", "is not a time to come", shown(at.isoformat()), allowed)]


def lapse_due(now: datetime) -> int:
    """Each in a transaction of its own; returns how many were settled."""
    due = Lapse.objects.filter(done_at=None, due_at__lte=now).values_list("pk", flat=True)
    return sum(_settle(pk, now) for pk in list(due))


def _settle(pk: int, now: datetime) -> bool:
    with transaction.atomic():
        rows = Lapse.objects.select_for_update(of=("self",), skip_locked=True).select_related("change")
        lapse = rows.filter(pk=pk, done_at=None).first()
        if lapse is None:
            return False
        lapse.outcome = _take_back(lapse.change)
        lapse.done_at = now
        lapse.save()
    return True


def _take_back(change: QuotaChange) -> str:
    """What was left alone, in a sentence; nothing where all went back."""
    if QuotaChange.objects.filter(reverts=change.pk).exists():
        return NOT_SET_SINCE
    try:
        draft, _ = inverse_of(change)
        still = [_is_as_left(entry) for entry in change.written]
        ours = tuple(each for each, same in zip(draft.changes, still, strict=True) if same)
        if ours:
            comment = f"Change {change.pk} was made for a while, which is over"
            with transaction.atomic():
                apply_draft(acting=Acting.system("lapses"), draft=Draft(ours, comment), reverts=change.pk)
    except BerthError as error:
        return error.detail
    left = [
        f"{entry['name']} on {entry['pool']}"
        for entry, same in zip(change.written, still, strict=True)
        if not same
    ]
    return f"Left as somebody has set it since: {', '.join(left)}." if left else ""


def _is_as_left(entry: Mapping[str, Any]) -> bool:
    """Of the quota that there is now, or of there being none."""
    owner = {"project_id": entry.get("project_id")} if entry["kind"] == "project" else {
        "department_id": entry["department_id"]
    }  # fmt: skip
    quota = Quota.objects.filter(pool_id=entry["pool_id"], **owner).first()
    if quota is None:
        return not entry["version"]
    return bool(quota.pk == entry["quota_id"] and quota.version == entry["version"])
