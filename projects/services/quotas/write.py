"""Set and remove quotas."""

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from psycopg.errors import UniqueViolation

from berth.core.errors import Invalid, NotFound, PreconditionFailed
from berth.db.references import with_living_references
from pools.models import NodePool
from projects.access import Action, require
from projects.acting import Acting
from projects.models import Department, Project, Quota
from projects.services.quotas.changes import Written, record
from projects.services.quotas.values import columns_of, value_problems, values_of
from projects.services.quotas.versions import next_version


def set_quota(
    *,
    acting: Acting,
    owner: Department | Project,
    pool: NodePool,
    values: Mapping[str, Any],
    expected_version: int | None = None,
) -> Quota:
    """Create or change a quota. `values` have the keys and units of documents (gpu, limit, weight, ...).

    A missing key keeps its value, or the default for a new quota. `expected_version` 0 means "none yet".
    Raises Invalid, PreconditionFailed, NotFound, Forbidden.
    """
    require_to_set(acting, owner)
    columns = columns_of(values)
    place = owner_columns(owner)
    try:
        with with_living_references(f"{owner.name} or the pool {pool.name}"):
            quota = Quota.objects.select_for_update(of=("self",)).filter(pool=pool, **place).first()
            _check_version(quota, expected_version)
            stored, quota = quota, quota or Quota(pool=pool, version=0, **place)
            before = values_of(stored) if stored else None
            for column, value in columns.items():
                setattr(quota, column, value)
            if problems := value_problems(quota):
                raise Invalid(problems)
            if before != values_of(quota):
                quota.version = next_version(quota)
                quota.save()
                record(acting, [Written(quota, owner, before, values_of(quota))])
    except IntegrityError as error:
        if not isinstance(error.__cause__, UniqueViolation):
            raise
        raise PreconditionFailed("This quota was created in the meantime. Read it again.") from None
    return quota


def remove_quota(*, acting: Acting, quota: Quota, expected_version: int | None = None) -> None:
    """Remove a quota. The owner then has quota 0 and no limit in the pool."""
    owner = quota.owner
    require_to_set(acting, owner)
    with transaction.atomic():
        locked = Quota.objects.select_for_update(of=("self",)).filter(pk=quota.pk).first()
        if locked is None:
            raise NotFound("This quota was already removed.")
        _check_version(locked, expected_version)
        record(acting, [Written(locked, owner, values_of(locked), None)])
        locked.delete()


def _check_version(quota: Quota | None, expected: int | None) -> None:
    current = quota.version if quota else 0
    if expected is not None and expected != current:
        raise PreconditionFailed(
            f"You edited version {expected}; the current version is {current}.",
            current=values_of(quota) if quota else None,
            version=current,
        )


def require_to_set(acting: Acting, owner: Department | Project) -> None:
    """Raise Forbidden unless the user may set the quota. Only platform admins set departments' quotas."""
    require(acting, Action.SET_QUOTA, owner)
    if isinstance(owner, Department):
        require(acting, Action.ADMINISTER)


def owner_columns(owner: Department | Project) -> dict[str, Any]:
    return {"department": owner} if isinstance(owner, Department) else {"project": owner}
