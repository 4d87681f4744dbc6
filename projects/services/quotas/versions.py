"""Versions of quotas, which are never reused."""

from projects.models import Quota, RemovedQuota


def next_version(quota: Quota) -> int:
    """Return the version with which the row is about to be stored."""
    if quota.pk is not None:
        return quota.version + 1
    place = {"department": quota.department, "project": quota.project, "pool": quota.pool}
    before = RemovedQuota.objects.filter(**place).first()
    return 1 if before is None else before.version + 1


def remember_removed(quota: Quota) -> None:
    """Store a quota's version in the transaction that removes the quota, so that versions continue."""
    RemovedQuota.objects.update_or_create(
        department=quota.department,
        project=quota.project,
        pool=quota.pool,
        defaults={"version": quota.version},
    )
