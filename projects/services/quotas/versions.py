"""Assign quota versions, which are never reused."""

from projects.models import Quota, RemovedQuota


def next_version(quota: Quota) -> int:
    """Return the version to store with the quota."""
    if quota.pk is not None:
        return quota.version + 1
    place = {"department": quota.department, "project": quota.project, "pool": quota.pool}
    before = RemovedQuota.objects.filter(**place).first()
    return 1 if before is None else before.version + 1


def store_removed_version(quota: Quota) -> None:
    """Store a removed quota's version, so that a new quota in its place continues the version numbers."""
    RemovedQuota.objects.update_or_create(
        department=quota.department,
        project=quota.project,
        pool=quota.pool,
        defaults={"version": quota.version},
    )
