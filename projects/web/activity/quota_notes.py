"""Comments, expiries and reverts of quota changes, shown with their audit entries."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from projects.models import Audit, QuotaChange, QuotaExpiry


@dataclass(frozen=True, slots=True)
class QuotaNote:
    """Details of a quota change, shown with its activity entry.

    If this change reverts another, `reverts` is the number of that change.
    """

    number: int
    comment: str
    expires_at: datetime | None
    reverts: int | None


def quota_notes(rows: Iterable[Audit]) -> dict[int, QuotaNote]:
    """Return a note for each quota change in the audit entries, keyed by the number of the change."""
    numbers = {row.change_id for row in rows if row.object_type == "quota" and row.change_id}
    if not numbers:
        return {}
    expiries = dict(
        QuotaExpiry.objects.filter(change__in=numbers, done_at=None).values_list("change_id", "due_at")
    )
    return {
        change.pk: QuotaNote(
            number=change.pk,
            comment="" if change.comment == f"Reverts change {change.reverts}" else change.comment,
            expires_at=expiries.get(change.pk),
            reverts=change.reverts,
        )
        for change in QuotaChange.objects.filter(pk__in=numbers)
    }
