"""Revert temporary quota changes when they expire, except for quotas that were edited since."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from berth.core.errors import BerthError
from berth.core.problems import Problem, format_value
from projects.actor import Actor
from projects.models import Quota, QuotaChange, QuotaExpiry
from projects.services.quotas.drafts import Draft, apply_draft
from projects.services.quotas.reverts import inverse_draft

MAX_LIFETIME = timedelta(days=366)
REVERTED_EARLY = "Reverted before it expired."


def expiry_problems(at: datetime, now: datetime) -> list[Problem]:
    """Return a problem if the expiry is not in the future or is more than 366 days away."""
    if now < at <= now + MAX_LIFETIME:
        return []
    allowed = f"later than {now:%Y-%m-%dT%H:%M:%SZ}, within {MAX_LIFETIME.days} days"
    return [
        Problem("expires_at", "is not a future time within 366 days", format_value(at.isoformat()), allowed)
    ]


def revert_expired_changes(now: datetime) -> int:
    """Revert every expired change, each in its own transaction. Return the number of changes processed."""
    due = QuotaExpiry.objects.filter(done_at=None, due_at__lte=now).values_list("pk", flat=True)
    return sum(_process_expiry(pk, now) for pk in list(due))


def _process_expiry(pk: int, now: datetime) -> bool:
    with transaction.atomic():
        rows = QuotaExpiry.objects.select_for_update(of=("self",), skip_locked=True).select_related("change")
        expiry = rows.filter(pk=pk, done_at=None).first()
        if expiry is None:
            return False
        expiry.outcome = _revert_unedited_quotas(expiry.change)
        expiry.done_at = now
        expiry.save()
    return True


def _revert_unedited_quotas(change: QuotaChange) -> str:
    """Revert the expired change.

    Return a sentence about the quotas that were not reverted because they had been edited since, or an empty
    string.
    """
    if QuotaChange.objects.filter(reverts=change.pk).exists():
        return REVERTED_EARLY
    try:
        draft, _ = inverse_draft(change)
        unchanged = [_is_unchanged(entry) for entry in change.written]
        reverted = tuple(
            change_in_draft
            for change_in_draft, is_unchanged in zip(draft.changes, unchanged, strict=True)
            if is_unchanged
        )
        if reverted:
            comment = f"Change {change.pk} has expired"
            with transaction.atomic():
                apply_draft(actor=Actor.system("expiry"), draft=Draft(reverted, comment), reverts=change.pk)
    except BerthError as error:
        return error.detail
    edited = [
        f"{entry['name']} in {'pool' if entry['pool_id'] else 'quota group'} {entry['pool']}"
        for entry, is_unchanged in zip(change.written, unchanged, strict=True)
        if not is_unchanged
    ]
    return f"Not reverted because they have been edited since: {', '.join(edited)}." if edited else ""


def _is_unchanged(entry: Mapping[str, Any]) -> bool:
    owner = {"project_id": entry.get("project_id")} if entry["kind"] == "project" else {
        "department_id": entry["department_id"]
    }  # fmt: skip
    place = {"pool_id": entry["pool_id"], "group_id": entry.get("group_id")}
    quota = Quota.objects.filter(**place, **owner).first()
    if quota is None:
        return not entry["version"]
    return bool(quota.pk == entry["quota_id"] and quota.version == entry["version"])
