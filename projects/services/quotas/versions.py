"""Assign quota versions, which are never reused."""

from typing import Any

from projects.models import Quota, RemovedQuota


def next_version(quota: Quota) -> int:
    """Return the next version number of the quota."""
    if quota.pk is not None:
        return quota.version + 1
    before = RemovedQuota.objects.filter(**_columns(quota)).first()
    return 1 if before is None else before.version + 1


def store_removed_version(quota: Quota) -> None:
    """Store a removed quota's version, so that a new quota in its place continues the version numbers."""
    RemovedQuota.objects.update_or_create(**_columns(quota), defaults={"version": quota.version})


def _columns(quota: Quota) -> dict[str, Any]:
    return {name: getattr(quota, name) for name in ("department", "project", "pool", "group")}
