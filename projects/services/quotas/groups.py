"""Create, edit and delete quota groups. The pools of a group share quotas."""

from collections.abc import Collection, Sequence
from typing import Any

from django.db import transaction

from berth.core.errors import Conflict, Invalid, NotFound
from berth.core.problems import Problem, format_value
from berth.core.spec.values.texts import NAME, NAME_ALLOWED
from berth.core.wording.words import format_count
from berth.db.loops.wake import wake
from pools.gpu_models import describe_models, differing_models
from pools.models import NodePool, QuotaGroup
from pools.quota_lock import lock_pools_and_quotas
from projects.access import Action, require
from projects.actor import Actor
from projects.models import Quota
from projects.services import announce, audit
from projects.services.quotas.versions import check_version

MAX_POOLS = 100
NAME_MAX = 40
MAX_NAMED = 5


def create_group(*, actor: Actor, name: str, pools: Sequence[NodePool]) -> QuotaGroup:
    """Create a quota group with the given pools and no quotas. Raises Invalid, Conflict or Forbidden."""
    require(actor, Action.ADMINISTER)
    with transaction.atomic():
        lock_pools_and_quotas()
        if problem := _name_problem(name):
            raise Invalid([problem])
        group = QuotaGroup.objects.create(name=name)
        _set_pools(group, pools)
        audit.write_entry(actor, "create", group, after=group_values(group))
        _announce_change()
    return group


def edit_group(
    *, actor: Actor, group: QuotaGroup, pools: Sequence[NodePool], expected_version: int | None = None
) -> QuotaGroup:
    """Change the pools of a group.

    The group's quotas then apply to the new pools and their running workloads. Raises Invalid,
    PreconditionFailed, NotFound or Forbidden.
    """
    require(actor, Action.ADMINISTER)
    with transaction.atomic():
        lock_pools_and_quotas()
        locked = _lock_group(group, expected_version)
        before = group_values(locked)
        _set_pools(locked, pools)
        old, new = audit.changed_values(before, group_values(locked))
        if new:
            locked.version += 1
            locked.save()
            audit.write_entry(actor, "edit", locked, before=old, after=new)
            _announce_change()
    return locked


def delete_group(*, actor: Actor, group: QuotaGroup, expected_version: int | None = None) -> None:
    """Delete a quota group. Raises Conflict if it has quotas."""
    require(actor, Action.ADMINISTER)
    with transaction.atomic():
        lock_pools_and_quotas()
        locked = _lock_group(group, expected_version)
        if quotas := Quota.objects.filter(group=locked).count():
            raise Conflict(
                f"Quota group {locked.name} still has {format_count(quotas, 'quota')}. Delete them "
                "first, or use `berth quota apply` to replace them with quotas in its pools."
            )
        audit.write_entry(actor, "delete", locked, before=group_values(locked))
        NodePool.objects.filter(quota_group=locked).update(quota_group=None)
        locked.delete()
        _announce_change()


def _announce_change() -> None:
    announce.tenants_changed()
    wake("scheduler")


def group_values(group: QuotaGroup) -> dict[str, Any]:
    return {"pools": sorted(NodePool.objects.filter(quota_group=group).values_list("name", flat=True))}


def _name_problem(name: str) -> Problem | None:
    if not NAME.fullmatch(name) or len(name) > NAME_MAX:
        return Problem(
            "name", "is not a valid name", format_value(name), NAME_ALLOWED.replace("63", str(NAME_MAX))
        )
    for what, model in (("pool", NodePool), ("quota group", QuotaGroup)):
        if model._default_manager.filter(name=name).exists():
            allowed = "a name that no pool or quota group has"
            return Problem("name", f"is already used by a {what}", format_value(name), allowed)
    return None


def _lock_group(group: QuotaGroup, expected_version: int | None) -> QuotaGroup:
    locked = QuotaGroup.objects.select_for_update().filter(pk=group.pk).first()
    if locked is None:
        raise NotFound(f"Quota group {group.name} has been deleted.")
    check_version(locked, expected_version, group_values)
    return locked


def check_pools(group: QuotaGroup, pools: Sequence[NodePool]) -> None:
    """Raise Invalid if the pools cannot form the group."""
    if problems := _count_problems(pools):
        raise Invalid(problems)
    keys = [pool.pk for pool in pools]
    rows = {row.pk: row for row in NodePool.objects.select_related("quota_group").filter(pk__in=keys)}
    current = [rows[key] for key in keys if key in rows]
    if problems := _membership_problems(group, current) or _model_problems(current):
        raise Invalid(problems)
    if problem := _overlap_problem(group, keys):
        raise Invalid([problem])


def _set_pools(group: QuotaGroup, pools: Sequence[NodePool]) -> None:
    check_pools(group, pools)
    keys = [pool.pk for pool in pools]
    NodePool.objects.filter(quota_group=group).exclude(pk__in=keys).update(quota_group=None)
    NodePool.objects.filter(pk__in=keys).update(quota_group=group)


def _overlap_problem(group: QuotaGroup, pools: Collection[int]) -> Problem | None:
    in_group = {(row.department_id, row.project_id) for row in Quota.objects.filter(group=group)}
    rows = Quota.objects.filter(pool__in=pools).select_related("pool", "department", "project").order_by("pk")
    both = [str(row) for row in rows if (row.department_id, row.project_id) in in_group]
    if not both:
        return None
    more = f" and {len(both) - MAX_NAMED} more" if len(both) > MAX_NAMED else ""
    return Problem(
        "pools",
        f"have quotas for owners that also have a quota in {group.name}",
        f"{', '.join(both[:MAX_NAMED])}{more}",
        "at most one quota per owner and pool. Remove these first",
    )


def _count_problems(pools: Sequence[NodePool]) -> list[Problem]:
    names = [pool.name for pool in pools]
    if not 1 <= len(names) <= MAX_POOLS:
        return [Problem("pools", "is not a list of pools", f"{len(names)}", f"1 to {MAX_POOLS} pools")]
    return [
        Problem(f"pools[{number}]", "is listed twice", format_value(name), "each pool once")
        for number, name in enumerate(names)
        if name in names[:number]
    ]


def _membership_problems(group: QuotaGroup, pools: Sequence[NodePool]) -> list[Problem]:
    return [
        Problem(
            f"pools[{number}]",
            f"already belongs to quota group {pool.quota_group.name}",
            format_value(pool.name),
            "a pool without a group. Remove it from the other group first",
        )
        for number, pool in enumerate(pools)
        if pool.quota_group is not None and pool.quota_group_id != group.pk
    ]


def _model_problems(pools: Sequence[NodePool]) -> list[Problem]:
    """Return a problem if the pools have different GPU models. Pools without GPUs are ignored."""
    if models := differing_models(pools):
        received = describe_models(models)
        return [Problem("pools", "have different GPU models", received, "pools with the same GPU model")]
    return []
