"""Create, edit, pause, drain and delete pools."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy, deepcopy
from typing import Any

from django.db import transaction
from django.db.models import ProtectedError
from django.utils import timezone

from berth.core.errors import Conflict, Invalid, PreconditionFailed
from berth.core.problems import Problem
from pools import history
from pools.costs import current_price, store_past_price
from pools.models import Node, NodePool
from pools.models.node import NodeState
from pools.models.scaling import ScalingKind
from pools.services import environments, failed_boots
from pools.services.pool_values import apply, spec_of, values_of
from pools.signals import changed

FIXED_WHILE_USED = ("provider", "runtime")
# Fields that decide whether a node boots. Changing one of them resets the failed boots.
BOOT_FIELDS = (
    "provider", "runtime", "provider_settings", "gpus_per_node", "gpu_model", "gpu_memory_mib", "cpu_milli",
    "memory_mib", "plugins", "environment", "built_environment_id", "boot_timeout", "boot_failure_limit",
)  # fmt: skip


def create_pool(*, acting: Any, name: str, **values: Any) -> NodePool:
    """Create a pool from the model's fields; `nodes` accepts all of its notations. Raises Invalid."""
    columns, plugins = environments.split_values(values)
    with transaction.atomic():
        pool = NodePool(name=name)
        pool = apply(pool, environments.merge_environment(pool, columns))
        pool.nodes_desired = spec_of(pool).initial_nodes
        pool.save(force_insert=True)
        environments.build(pool, plugins, at=timezone.now())
        if pool.built_environment is not None:
            pool.save(update_fields=["plugins", "built_environment"])
        changed.send(NodePool, acting=acting, action="create", obj=pool, before=None, after=values_of(pool))
    return pool


def edit_pool(
    *, acting: Any, pool: NodePool, changes: Mapping[str, Any], version: int | None = None
) -> NodePool:
    """Edit a pool; its nodes keep their shape.

    Raises Invalid, Conflict, or PreconditionFailed if the pool is no longer at `version`.
    """
    columns, plugins = environments.split_values(changes)
    with _locked(acting, pool, "edit", version) as locked:
        before, boots = current_price(locked), _boot_values(locked)
        apply(locked, environments.merge_environment(locked, columns))
        if current_price(locked) != before:
            store_past_price(locked, before, until=timezone.now())
        if environments.REBUILT_FOR & columns.keys():
            environments.build(locked, plugins, at=timezone.now())
        if any(name in changes for name in FIXED_WHILE_USED):
            _check_unused(locked)
        _clamp_desired(locked, acting)
        if _boot_values(locked) != boots:
            failed_boots.retry(locked, acting=acting, at=timezone.now(), by="edited")
    return locked


def preview_edit(pool: NodePool, changes: Mapping[str, Any]) -> NodePool:
    """Return the pool as `edit_pool` would leave it, with its number of nodes. Nothing is stored.

    Raises the errors of `edit_pool` for contradictory values.
    """
    edited = copy(pool)
    columns, _ = environments.split_values(changes)
    apply(edited, environments.merge_environment(edited, columns))
    edited.nodes_desired = _desired_within_bounds(edited)
    return edited


def delete_pool(*, acting: Any, pool: NodePool) -> None:
    """Delete a pool that was never used; raise Conflict if the pool has nodes, quotas or a history."""
    try:
        with transaction.atomic():
            changed.send(
                NodePool, acting=acting, action="delete", obj=pool, before=values_of(pool), after=None
            )
            NodePool.objects.get(pk=pool.pk).delete()
    except ProtectedError as error:
        raise Conflict(
            f"Pool {pool.name} has a history or quotas and cannot be deleted. Drain it instead."
        ) from error


def pause_pool(*, acting: Any, pool: NodePool) -> NodePool:
    """Stop scaling the pool until it is resumed."""
    return _set_paused(acting, pool, True)


def resume_pool(*, acting: Any, pool: NodePool) -> NodePool:
    """Resume a paused or drained pool."""
    return _set_paused(acting, pool, False)


def retry_pool(*, acting: Any, pool: NodePool) -> NodePool:
    """Reset the count of failed boots, so that the pool orders nodes again at once."""
    with _locked(acting, pool, "retry", None) as locked:
        failed_boots.retry(locked, acting=acting, at=timezone.now())
    return locked


def drain_pool(*, acting: Any, pool: NodePool, reason: str = "") -> NodePool:
    """Let the pool expire now: its nodes finish their pods and end without being replaced.

    Raises Conflict for a paused pool.
    """
    with _locked(acting, pool, "drain", None) as locked:
        if locked.paused:
            raise Conflict(f"Pool {locked.name} is paused and cannot be drained. Resume it first.")
        now = timezone.now()
        if locked.expires_at is None or locked.expires_at > now:
            before, locked.nodes_desired, locked.expires_at = locked.nodes_desired, 0, now
            reason_text = f"drained by {acting.name}" + (f": {reason}" if reason else "")
            history.write(locked, ScalingKind.AUTOSCALE, reason_text, at=now, before=before, after=0)
    return locked


def set_nodes_desired(
    *, acting: Any, pool: NodePool, nodes_desired: int, version: int | None = None
) -> NodePool:
    """Set the size by hand. The autoscaler continues from this size after its cooldown.

    Raises Invalid and PreconditionFailed.
    """
    with _locked(acting, pool, "scale", version) as locked:
        check_nodes_desired(locked, nodes_desired)
        before, locked.nodes_desired = locked.nodes_desired, nodes_desired
        if before != nodes_desired:
            locked.last_scaled_at = timezone.now()
            history.write(
                locked, ScalingKind.AUTOSCALE, f"set by {acting.name}", at=locked.last_scaled_at,
                before=before, after=nodes_desired,
            )  # fmt: skip
    return locked


def check_nodes_desired(pool: NodePool, nodes_desired: int, called: str = "nodes_desired") -> None:
    """Raise Invalid if the pool's size is fixed or the number is outside its limits."""
    spec = spec_of(pool)
    if not spec.elastic:
        raise Invalid([Problem(called, "cannot be changed: the pool has a fixed size. Set nodes.max first")])
    if not spec.min <= nodes_desired <= spec.ceiling:
        allowed = f"{spec.min} to {spec.ceiling}"
        raise Invalid([Problem(called, "is outside of the pool's limits", str(nodes_desired), allowed)])


def _clamp_desired(pool: NodePool, acting: Any, what: str = "limits changed") -> None:
    before, pool.nodes_desired = pool.nodes_desired, _desired_within_bounds(pool)
    if pool.nodes_desired != before:
        reason = f"{what} by {acting.name}"
        at = timezone.now()
        history.write(pool, ScalingKind.AUTOSCALE, reason, at=at, before=before, after=pool.nodes_desired)


def _desired_within_bounds(pool: NodePool) -> int:
    """Return the desired nodes clamped to the limits; 0 for an expired pool."""
    expired = pool.expires_at is not None and pool.expires_at <= timezone.now()
    return 0 if expired else spec_of(pool).clamp(pool.nodes_desired)


def _set_paused(acting: Any, pool: NodePool, paused: bool) -> NodePool:
    action, kind = ("pause", ScalingKind.PAUSED) if paused else ("resume", ScalingKind.RESUMED)
    with _locked(acting, pool, action, None) as locked:
        if locked.paused != paused:
            locked.paused = paused
            history.write(locked, kind, f"{action}d by {acting.name}", at=timezone.now())
        if not paused and locked.expires_at is not None and locked.expires_at <= timezone.now():
            locked.expires_at = None
            _clamp_desired(locked, acting, "resumed")
        if not paused:
            failed_boots.retry(locked, acting=acting, at=timezone.now(), by="resumed")
    return locked


@contextmanager
def _locked(acting: Any, pool: NodePool, action: str, version: int | None) -> Iterator[NodePool]:
    """Yield the locked row; store changes as a new version and send `changed`."""
    with transaction.atomic():
        locked = NodePool.objects.select_for_update(no_key=True).get(pk=pool.pk)
        if version is not None and version != locked.version:
            raise PreconditionFailed(
                f"Pool {locked.name} has changed to version {locked.version}. Reload it and try again."
            )
        before, built = values_of(locked), locked.built_environment_id
        yield locked
        after = values_of(locked)
        names = [name for name in after if after[name] != before[name]]
        if names or locked.built_environment_id != built:
            locked.version += 1
            locked.save()
        changed.send(
            NodePool,
            acting=acting,
            action=action,
            obj=locked,
            before={name: before[name] for name in names},
            after={name: after[name] for name in names},
        )


def _boot_values(pool: NodePool) -> list[Any]:
    return [deepcopy(getattr(pool, name)) for name in BOOT_FIELDS]


def _check_unused(pool: NodePool) -> None:
    stored = NodePool.objects.only(*FIXED_WHILE_USED).get(pk=pool.pk)
    if all(getattr(stored, name) == getattr(pool, name) for name in FIXED_WHILE_USED):
        return
    if pool.provisioning or Node.objects.filter(pool=pool).exclude(state=NodeState.ENDED).exists():
        raise Conflict(f"Pool {pool.name} has nodes. Change provider and runtime once all are gone.")
