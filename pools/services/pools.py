"""Preview, create, edit, pause, drain and delete pools."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.db.models import ProtectedError
from django.utils import timezone

from berth.core.errors import Conflict, Invalid, PreconditionFailed
from berth.core.problems import Problem
from berth.core.wording.words import format_count
from pools import history
from pools.costs import current_price, store_past_price
from pools.models import Node, NodePool
from pools.models.node import NodeState
from pools.models.scaling import ScalingKind
from pools.providers.base import Provider, ProviderError, Shape
from pools.providers.preview import Preview, error, warning
from pools.quota_lock import lock_pools_and_quotas
from pools.runtimes.capabilities import default_runtime
from pools.services import environments, failed_boots
from pools.services.pool_values import apply_values, collect_problems, pool_node_spec, pool_settings
from pools.services.ssh.hosts import pin_keys_of_remaining_hosts, remove_all_hosts, sync_hosts
from pools.services.ssh.keys import split_keys, store_keys
from pools.signals import changed, proposed

FIXED_WHILE_USED = ("provider", "runtime")
# Fields that affect whether a node boots. Changing any of them resets the failed boots.
BOOT_FIELDS = (
    "provider", "runtime", "provider_settings", "gpus_per_node", "gpu_model", "gpu_memory_mib", "cpu_milli",
    "memory_mib", "plugins", "environment", "built_environment_id", "boot_timeout", "boot_failure_limit",
)  # fmt: skip


def create_pool(*, actor: Any, name: str, **values: Any) -> NodePool:
    """Create a pool from values of the model's fields. Raises Invalid.

    `nodes` may use any of the node spec notations.
    """
    values, ssh_keys = split_keys(values)
    with transaction.atomic():
        lock_pools_and_quotas()
        pool, plugins = _new_pool(name, values)
        pool.save(force_insert=True)
        environments.build(pool, plugins, at=timezone.now())
        if pool.built_environment is not None:
            pool.save(update_fields=["plugins", "built_environment"])
        store_keys(pool, ssh_keys, actor=actor, at=timezone.now())
        sync_hosts(pool, actor=actor)
        changed.send(NodePool, actor=actor, action="create", obj=pool, before=None, after=pool_settings(pool))
    return pool


def preview_pool(*, provider_for: Callable[[NodePool], Provider], name: str, **values: Any) -> Preview:
    """Preview the pool that `create_pool` would create: its nodes, and any problems. Raises Invalid.

    If the provider cannot be examined, the preview contains only that problem.
    """
    values, ssh_keys = split_keys(values)
    pool, _ = _new_pool(name, values)
    proposed.send(NodePool, obj=pool, before=None, after=pool_settings(pool))
    pool.unstored_ssh_keys = ssh_keys
    shape = Shape(pool.cpu_milli, pool.memory_mib, pool.gpus_per_node, pool.gpu_model, pool.gpu_memory_mib)
    try:
        preview = provider_for(pool).preview(pool.name, shape)
    except ProviderError as failure:
        return Preview(findings=(error(failure.message),))
    usable, needed = len(preview.usable_nodes), pool_node_spec(pool).initial_nodes
    if preview.nodes and usable < needed:
        message = f"The pool starts with {format_count(needed, 'node')}, but only {usable} can be used."
        preview = replace(preview, findings=(*preview.findings, warning(message)))
    return preview


def _new_pool(name: str, values: dict[str, Any]) -> tuple[NodePool, environments.PluginChanges]:
    """Return a validated, unsaved pool and its plugins."""
    if "provider" in values:
        values.setdefault("runtime", default_runtime(values["provider"]))
    pool = NodePool(name=name)
    columns, plugins = _merge_environment(pool, values)
    pool = apply_values(pool, columns)
    pool.nodes_desired = pool_node_spec(pool).initial_nodes
    return pool, plugins


def _merge_environment(
    pool: NodePool, values: Mapping[str, Any]
) -> tuple[dict[str, Any], environments.PluginChanges]:
    """Return the values with the merged environment, and the changes to plugins.

    Raises Invalid with the problems of all values, so that users see them together.
    """
    try:
        columns, plugins = environments.split_values(values)
        return environments.merge_environment(pool, columns), plugins
    except Invalid as error:
        others = {name: value for name, value in values.items() if name not in ("plugins", "environment")}
        raise Invalid([*error.problems, *collect_problems(apply_values, copy(pool), others)]) from None


def check_new_pool(*, name: str, **values: Any) -> None:
    """Raise Invalid, with all problems, if `create_pool` would reject the values."""
    _new_pool(name, split_keys(values)[0])


def edit_pool(
    *, actor: Any, pool: NodePool, changes: Mapping[str, Any], version: int | None = None
) -> NodePool:
    """Change settings of a pool. Existing nodes keep their shape.

    Raises Invalid, Conflict if the provider or runtime changes while the pool has nodes, and
    PreconditionFailed if the pool is no longer at `version`.
    """
    values, ssh_keys = split_keys(changes)
    columns, plugins = environments.split_values(values)
    with _lock_pool(actor, pool, "edit", version) as locked:
        before, boot_values = current_price(locked), _boot_values(locked)
        columns = dict(pin_keys_of_remaining_hosts(locked, columns))
        apply_values(locked, environments.merge_environment(locked, columns))
        if current_price(locked) != before:
            store_past_price(locked, before, until=timezone.now())
        if environments.REBUILD_FIELDS & columns.keys():
            environments.build(locked, plugins, at=timezone.now())
        if any(name in changes for name in FIXED_WHILE_USED):
            _check_fixed_settings(locked)
        store_keys(locked, ssh_keys, actor=actor, at=timezone.now())
        if {"provider", "provider_settings"} & changes.keys():
            sync_hosts(locked, actor=actor)
        _clamp_desired_nodes(locked, actor)
        if _boot_values(locked) != boot_values:
            failed_boots.retry(locked, actor=actor, at=timezone.now(), by="edited")
    return locked


def preview_edit(pool: NodePool, changes: Mapping[str, Any]) -> NodePool:
    """Return the pool as `edit_pool` would save it, with the new node count.

    Raises the same errors as `edit_pool`.
    """
    edited = copy(pool)
    values, _ = split_keys(changes)
    columns, _ = _merge_environment(edited, values)
    apply_values(edited, dict(pin_keys_of_remaining_hosts(edited, columns)))
    if any(name in changes for name in FIXED_WHILE_USED):
        _check_fixed_settings(edited)
    before, after = _changed_settings(pool_settings(pool), pool_settings(edited))
    proposed.send(NodePool, obj=edited, before=before, after=after)
    edited.nodes_desired = _desired_nodes_within_bounds(edited)
    return edited


def delete_pool(*, actor: Any, pool: NodePool) -> None:
    """Delete a pool that has never been used.

    Raises Conflict if the pool has nodes, quotas or a history.
    """
    try:
        with transaction.atomic():
            remove_all_hosts(pool)
            changed.send(
                NodePool, actor=actor, action="delete", obj=pool, before=pool_settings(pool), after=None
            )
            NodePool.objects.get(pk=pool.pk).delete()
    except ProtectedError as error:
        raise Conflict(
            f"Pool {pool.name} has a history or quotas and cannot be deleted. Drain the pool instead."
        ) from error


def pause_pool(*, actor: Any, pool: NodePool) -> NodePool:
    """Pause a pool's scaling until the pool is resumed."""
    return _set_paused(actor, pool, True)


def resume_pool(*, actor: Any, pool: NodePool) -> NodePool:
    """Resume a paused or drained pool."""
    return _set_paused(actor, pool, False)


def retry_pool(*, actor: Any, pool: NodePool) -> NodePool:
    """Reset the count of failed boots, so that the pool requests nodes again immediately."""
    with _lock_pool(actor, pool, "retry", None) as locked:
        failed_boots.retry(locked, actor=actor, at=timezone.now())
    return locked


def drain_pool(*, actor: Any, pool: NodePool, reason: str = "") -> NodePool:
    """Expire the pool now. Its nodes finish running their pods and are not replaced.

    Raises Conflict for a paused pool.
    """
    with _lock_pool(actor, pool, "drain", None) as locked:
        if locked.paused:
            raise Conflict(f"Pool {locked.name} is paused and cannot be drained. Resume the pool first.")
        now = timezone.now()
        if locked.expires_at is None or locked.expires_at > now:
            before, locked.nodes_desired, locked.expires_at = locked.nodes_desired, 0, now
            reason_text = f"drained by {actor.name}" + (f": {reason}" if reason else "")
            history.write(locked, ScalingKind.AUTOSCALE, reason_text, at=now, before=before, after=0)
    return locked


def set_nodes_desired(
    *, actor: Any, pool: NodePool, nodes_desired: int, version: int | None = None
) -> NodePool:
    """Set the node count manually. The autoscaler continues from there after its cooldown.

    Raises Invalid, and PreconditionFailed if the pool is not at `version`.
    """
    with _lock_pool(actor, pool, "scale", version) as locked:
        check_nodes_desired(locked, nodes_desired)
        before, locked.nodes_desired = locked.nodes_desired, nodes_desired
        if before != nodes_desired:
            locked.last_scaled_at = timezone.now()
            history.write(
                locked, ScalingKind.AUTOSCALE, f"set by {actor.name}", at=locked.last_scaled_at,
                before=before, after=nodes_desired,
            )  # fmt: skip
    return locked


def check_nodes_desired(pool: NodePool, nodes_desired: int, field: str = "nodes_desired") -> None:
    """Raise Invalid if the pool's size is fixed or the node count is outside its limits."""
    spec = pool_node_spec(pool)
    if not spec.is_elastic:
        raise Invalid([Problem(field, "cannot be changed: the pool has a fixed size. Set nodes.max first")])
    if not spec.min <= nodes_desired <= spec.max_nodes:
        allowed = f"{spec.min} to {spec.max_nodes}"
        raise Invalid([Problem(field, "is outside the pool's limits", str(nodes_desired), allowed)])


def _clamp_desired_nodes(pool: NodePool, actor: Any, cause: str = "limits changed") -> None:
    before, pool.nodes_desired = pool.nodes_desired, _desired_nodes_within_bounds(pool)
    if pool.nodes_desired != before:
        reason = f"{cause} by {actor.name}"
        at = timezone.now()
        history.write(pool, ScalingKind.AUTOSCALE, reason, at=at, before=before, after=pool.nodes_desired)


def _desired_nodes_within_bounds(pool: NodePool) -> int:
    """Return the desired node count within the pool's limits, or 0 for an expired pool."""
    expired = pool.expires_at is not None and pool.expires_at <= timezone.now()
    return 0 if expired else pool_node_spec(pool).clamp(pool.nodes_desired)


def _set_paused(actor: Any, pool: NodePool, paused: bool) -> NodePool:
    action, kind = ("pause", ScalingKind.PAUSED) if paused else ("resume", ScalingKind.RESUMED)
    with _lock_pool(actor, pool, action, None) as locked:
        if locked.paused != paused:
            locked.paused = paused
            history.write(locked, kind, f"{action}d by {actor.name}", at=timezone.now())
        if not paused and locked.expires_at is not None and locked.expires_at <= timezone.now():
            locked.expires_at = None
            _clamp_desired_nodes(locked, actor, "resumed")
        if not paused:
            failed_boots.retry(locked, actor=actor, at=timezone.now(), by="resumed")
    return locked


@contextmanager
def _lock_pool(actor: Any, pool: NodePool, action: str, version: int | None) -> Iterator[NodePool]:
    """Lock and yield the pool.

    After the block, save the changes as a new version and send `changed`. Raises PreconditionFailed if the
    pool's version is not `version`.
    """
    with transaction.atomic():
        locked = NodePool.objects.select_for_update(no_key=True).get(pk=pool.pk)
        if version is not None and version != locked.version:
            raise PreconditionFailed(
                f"Pool {locked.name} has changed to version {locked.version}. Reload the pool and try again."
            )
        before, built = pool_settings(locked), locked.built_environment_id
        yield locked
        before, after = _changed_settings(before, pool_settings(locked))
        if after or locked.built_environment_id != built:
            locked.version += 1
            locked.save()
        changed.send(NodePool, actor=actor, action=action, obj=locked, before=before, after=after)


def _changed_settings(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    names = [name for name in {**after, **before} if after.get(name) != before.get(name)]
    return {name: before.get(name) for name in names}, {name: after.get(name) for name in names}


def _boot_values(pool: NodePool) -> list[Any]:
    return [deepcopy(getattr(pool, name)) for name in BOOT_FIELDS]


def _check_fixed_settings(pool: NodePool) -> None:
    stored = NodePool.objects.only(*FIXED_WHILE_USED).get(pk=pool.pk)
    if all(getattr(stored, name) == getattr(pool, name) for name in FIXED_WHILE_USED):
        return
    if pool.provisioning or Node.objects.filter(pool=pool).exclude(state=NodeState.ENDED).exists():
        raise Conflict(
            f"Pool {pool.name} has nodes or is launching nodes. Change the provider or runtime after all "
            "nodes have been removed."
        )
