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
from projects.services.quotas.values import columns_of, faults_of, values_of
from projects.services.quotas.versions import next_version


def set_quota(
    *,
    acting: Acting,
    owner: Department | Project,
    pool: NodePool,
    values: Mapping[str, Any],
    expected_version: int | None = None,
) -> Quota:
    """Creates or changes it; `values` are in the words and units of documents (gpu, limit, weight, ...).

    A key left out keeps its value (a new quota: its default). `expected_version` 0 means "there is none
    yet". Raises Invalid, PreconditionFailed, NotFound, Forbidden.
    """
    require_to_set(acting, owner)
    columns = columns_of(values)
    place = place_of(owner)
    try:
        with with_living_references(f"{owner.name} or the pool {pool.name}"):
            quota = Quota.objects.select_for_update(of=("self",)).filter(pool=pool, **place).first()
            _guard(quota, expected_version)
            stored, quota = quota, quota or Quota(pool=pool, version=0, **place)
            before = values_of(stored) if stored else None
            for column, value in columns.items():
                setattr(quota, column, value)
            if problems := faults_of(quota):
                raise Invalid(problems)
            if before != values_of(quota):
                quota.version = next_version(quota)
                quota.save()
                record(acting, [Written(quota, owner, before, values_of(quota))])
    except IntegrityError as error:
        if not isinstance(error.__cause__, UniqueViolation):
            raise
        raise PreconditionFailed("Somebody created this quota at the same moment: read it again.") from None
    return quota


def remove_quota(*, acting: Acting, quota: Quota, expected_version: int | None = None) -> None:
    """Without a quota the owner has none of the pool (quota 0) and no limit."""
    owner = quota.owner
    require_to_set(acting, owner)
    with transaction.atomic():
        locked = Quota.objects.select_for_update(of=("self",)).filter(pk=quota.pk).first()
        if locked is None:
            raise NotFound("This quota was removed already.")
        _guard(locked, expected_version)
        record(acting, [Written(locked, owner, values_of(locked), None)])
        locked.delete()


def _guard(quota: Quota | None, expected: int | None) -> None:
    present = quota.version if quota else 0
    if expected is not None and expected != present:
        raise PreconditionFailed(
            f"You edited version {expected}, the present version is {present}.",
            current=values_of(quota) if quota else None,
            version=present,
        )


def require_to_set(acting: Acting, owner: Department | Project) -> None:
    """A department's own quota is set by the platform: its admins divide what they were given."""
    require(acting, Action.SET_QUOTA, owner)
    if isinstance(owner, Department):
        require(acting, Action.ADMINISTER)


def place_of(owner: Department | Project) -> dict[str, Any]:
    return {"department": owner} if isinstance(owner, Department) else {"project": owner}
