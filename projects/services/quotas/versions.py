"""Versions of quotas that are never reused."""

from projects.models import Quota, RemovedQuota


def next_version(quota: Quota) -> int:
    """Return the version that the row is about to be stored with."""
    if quota.pk is not None:
        return quota.version + 1
    place = {"department": quota.department, "project": quota.project, "pool": quota.pool}
    before = RemovedQuota.objects.filter(**place).first()
    return 1 if before is None else before.version + 1


def remember_removed(quota: Quota) -> None:
    """Remember the version of a quota in the transaction that removes it, so that counting continues."""
    RemovedQuota.objects.update_or_create(
        department=quota.department,
        project=quota.project,
        pool=quota.pool,
        defaults={"version": quota.version},
    )
