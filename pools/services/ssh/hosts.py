"""Update SSH host rows when the settings of their pool change."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem, format_value, suggest
from pools.engine.ssh_hosts import Host, HostState, host_state
from pools.models import NodePool, SshHost
from pools.providers.ssh.settings import keep_host_keys, pin_host_keys, ssh_settings
from pools.services.machines import remove_machine
from pools.signals import changed

SSH = NodePool.Provider.SSH.value


def pin_keys_of_remaining_hosts(pool: NodePool, columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the pool's new values. SSH hosts that are still listed keep their pinned keys."""
    if pool.provider != SSH or columns.get("provider", SSH) != SSH or "provider_settings" not in columns:
        return columns
    try:
        settings = keep_host_keys(columns["provider_settings"], pool.provider_settings)
    except Invalid:
        return columns  # invalid settings are reported later, together with other invalid values
    return {**columns, "provider_settings": settings}


def sync_hosts(pool: NodePool, *, actor: Any) -> None:
    """Create, update and remove host rows to match the pool's settings.

    Call this in the transaction that stores the settings. Removed hosts are drained first. Raises Invalid if
    a host belongs to another pool, is being removed, or must be uninstalled first.
    """
    if pool.provider != SSH:
        remove_all_hosts(pool)
        return
    listed = ssh_settings(pool.provider_settings).resolved_hosts()
    rows = {row.name: row for row in SshHost.objects.select_for_update(of=("self",)).filter(pool=pool)}
    paths = {host["name"]: f"provider_settings.hosts[{index}]" for index, host in enumerate(listed)}
    problems = [
        problem
        for host in listed
        if host["name"] in rows
        for problem in _settings_change_problems(rows[host["name"]], host, paths[host["name"]])
    ]
    if problems := [*problems, *_conflict_problems(pool, listed, paths)]:
        raise Invalid(problems)
    now = timezone.now()
    for name in rows.keys() - paths.keys():
        _begin_removal(rows[name], actor=actor, at=now)
    new = [_host_row(pool, host) for host in listed if host["name"] not in rows]
    try:
        with transaction.atomic():
            SshHost.objects.bulk_create(new)
    except IntegrityError:
        detail = "Another pool now uses one of these hosts. Reload the pools and try again."
        raise Conflict(detail) from None
    for host in listed:
        row = rows.get(host["name"])
        if row is not None and row.settings != host:
            _store_settings(row, host)


def remove_all_hosts(pool: NodePool) -> None:
    """Delete the rows of the pool's hosts. Raises Conflict if an agent is installed on any of them."""
    SshHost.objects.filter(pool=pool, touched_at=None).delete()
    if count := SshHost.objects.filter(pool=pool).count():
        raise Conflict(
            f"The agent is installed on {count} hosts of pool {pool.name}. Remove them from the pool first: "
            f"`berth pool edit {pool.name} --set 'provider_settings={{hosts: []}}'`."
        )


def forget_host(host: SshHost, *, actor: Any) -> None:
    """Delete the row of a removed host, for example an unreachable one.

    An agent that is installed on the host stays there. Raises Conflict if the host is not being removed, or
    its node is still being drained.
    """
    if host.removed_at is None:
        raise Conflict(
            f"Host {host.name} is in the settings of pool {host.pool}. Remove the host there first."
        )
    if host.machine is not None and host.machine.departed_at is None:
        raise Conflict(f"The node of host {host.name} is still draining. Try again when it has drained.")
    with transaction.atomic():
        summary = {"host": host.name, "address": host.address}
        changed.send(
            NodePool, actor=actor, action="forget_host", obj=host.pool, before=summary, after=None
        )  # fmt: skip
        host.delete()


def accept_host_keys(*, actor: Any, pool: NodePool, keys: Mapping[str, str]) -> None:
    """Pin `keys`, keyed by host name. Raises Invalid if a key is not the last one that the host presented."""
    from pools.services.pools import edit_pool

    presented = dict(SshHost.objects.filter(pool=pool).values_list("name", "presented_key"))
    problems = []
    for name, key in keys.items():
        if name not in presented:
            allowed = suggest(name, sorted(presented))
            problems.append(
                Problem(f"keys.{name}", "is not a host of this pool", format_value(name), allowed)
            )
        elif not key or presented[name] != key:
            message = "is not the key that the host presented at the last connection"
            problems.append(Problem(f"keys.{name}", message, format_value(key), presented[name]))
    if problems:
        raise Invalid(problems)
    settings = pin_host_keys(pool.provider_settings, keys, replace=True)
    edit_pool(actor=actor, pool=pool, changes={"provider_settings": settings}, version=pool.version)


def to_engine_host(row: SshHost, now: datetime, *, is_busy: bool = False, applied: str = "") -> Host:
    """Return a host's state for `pools.engine`. `applied` is the digest of the host's current settings."""
    machine = row.machine
    present = machine is not None and machine.departed_at is None
    return Host(
        is_pinned=bool(row.settings["host_key"]),
        is_touched=row.touched_at is not None,
        is_current=row.applied == applied,
        is_removed=row.removed_at is not None,
        silent_for=max(now - machine.last_seen_at, timedelta()) if machine is not None and present else None,
        is_busy=is_busy,
        failures=row.failures,
        retry_at=row.retry_at,
    )


def displayed_state(row: SshHost, now: datetime) -> HostState:
    """Return the host's state as shown to users."""
    is_busy = row.problem == INSTALLING
    return host_state(to_engine_host(row, now, is_busy=is_busy))


# Problems of a host that SshErrorKind does not cover.
INSTALLING = "installing"
CONFLICT = "conflict"  # the host could not join, because its machine is registered elsewhere


def settings_digest(settings: Mapping[str, Any], url: str, ca: str) -> str:
    """Return the digest of the files that the installation writes to a host."""
    content = json.dumps([settings["home"], settings["env"], url, ca], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _host_row(pool: NodePool, host: dict[str, Any]) -> SshHost:
    return SshHost(
        pool=pool, name=host["name"], address=host["address"], port=host["port"],
        through=_bastion_address(host), settings=host,
    )  # fmt: skip


def _store_settings(row: SshHost, host: dict[str, Any]) -> None:
    row.settings, row.address, row.port, row.through = (
        host,
        host["address"],
        host["port"],
        _bastion_address(host),
    )
    row.retry_at, row.failures, row.message, row.presented_key, row.problem = None, 0, "", "", ""
    row.save()


def _begin_removal(row: SshHost, *, actor: Any, at: datetime) -> None:
    if row.removed_at is not None:
        return
    if row.touched_at is None:
        row.delete()
        return
    row.removed_at, row.retry_at, row.failures, row.message, row.problem = at, None, 0, "", ""
    row.save()
    if row.machine is not None and row.machine.departed_at is None:
        remove_machine(actor=actor, machine=row.machine, at=at, reason="the host was removed from the pool")


def _settings_change_problems(row: SshHost, host: Mapping[str, Any], path: str) -> Iterable[Problem]:
    if row.removed_at is not None:
        message = f"is still being removed (host {row.name}). Add it again once its agent is uninstalled"
        yield Problem(f"{path}.name", message, format_value(row.name))
    elif row.touched_at is not None:
        for field in ("address", "home"):
            if row.settings[field] != host[field]:
                message = f"cannot be changed while the agent is installed (host {row.name})"
                remedy = f"{row.settings[field]}; or remove the host first"
                yield Problem(f"{path}.{field}", message, format_value(host[field]), remedy)


def _conflict_problems(
    pool: NodePool, listed: Iterable[Mapping[str, Any]], paths: Mapping[str, str]
) -> Iterable[Problem]:
    by_place = {(host["address"], host["port"], _bastion_address(host)): host for host in listed}
    rows = SshHost.objects.filter(address__in={place[0] for place in by_place}).exclude(pool=pool)
    for row in rows.select_related("pool"):
        host = by_place.get((row.address, row.port, row.through))
        if host is not None:
            message = f"belongs to pool {row.pool.name} as {row.name}. Remove it there first"
            yield Problem(f"{paths[host['name']]}.address", message, format_value(row.address))
    renamed = SshHost.objects.filter(pool=pool, address__in={place[0] for place in by_place})
    for row in renamed:
        host = by_place.get((row.address, row.port, row.through))
        if host is not None and host["name"] != row.name:
            message = f"belongs to host {row.name} of this pool. Keep the name, or remove that host first"
            yield Problem(f"{paths[host['name']]}.name", message, format_value(host["name"]), row.name)


def _bastion_address(host: Mapping[str, Any]) -> str:
    return host["bastion"]["address"] if host["bastion"] else ""
