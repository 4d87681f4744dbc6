"""Check and assign quota versions, which are never reused."""

from collections.abc import Callable
from typing import Any, TypeVar

from berth.core.errors import PreconditionFailed
from pools.models import QuotaGroup
from projects.models import Budget, Quota, RemovedQuota

Versioned = TypeVar("Versioned", Quota, Budget, QuotaGroup)


def check_version(
    row: Versioned | None, expected: int | None, row_values: Callable[[Versioned], dict[str, Any]]
) -> None:
    """Raise PreconditionFailed, with the current values, if the row does not have the expected version.

    A row that does not exist yet has version 0.
    """
    current = row.version if row else 0
    if expected is not None and expected != current:
        raise PreconditionFailed(
            f"You edited version {expected}, but the current version is {current}. Reload and try again.",
            current=row_values(row) if row else None,
            version=current,
        )


def next_version(quota: Quota) -> int:
    if quota.pk is not None:
        return quota.version + 1
    before = RemovedQuota.objects.filter(**_version_columns(quota)).first()
    return 1 if before is None else before.version + 1


def store_removed_version(quota: Quota) -> None:
    """Store a removed quota's version, so that a new quota in its place continues the version numbers."""
    RemovedQuota.objects.update_or_create(**_version_columns(quota), defaults={"version": quota.version})


def _version_columns(quota: Quota) -> dict[str, Any]:
    return {name: getattr(quota, name) for name in ("department", "project", "pool", "group")}
