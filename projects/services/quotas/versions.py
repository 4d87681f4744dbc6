"""Versions of quotas that are never reused."""

from projects.models import Quota, RemovedQuota


def next_version(quota: Quota) -> int:
    """What the row is about to be stored as."""
    if quota.pk is not None:
        return quota.version + 1
    place = {"department": quota.department, "project": quota.project, "pool": quota.pool}
    before = RemovedQuota.objects.filter(**place).first()
    return 1 if before is None else before.version + 1


def remember_removed(quota: Quota) -> None:
    """In the transaction that removes it: counting goes on from here."""
    RemovedQuota.objects.update_or_create(
        department=quota.department,
        project=quota.project,
        pool=quota.pool,
        defaults={"version": quota.version},
    )
