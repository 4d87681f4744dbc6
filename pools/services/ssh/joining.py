"""Register SSH hosts that join their pool.

The agent repeats a rejected attempt, so the host's row stores the reason.
"""

from dataclasses import replace
from datetime import datetime

from django.db import transaction

from berth.core.errors import Conflict, Unauthenticated
from berth.core.wording.words import format_count
from pools import history
from pools.engine.ssh_hosts import retry_delay
from pools.joining import secrets
from pools.models import Machine, MachineUse, SshHost
from pools.models.scaling import ScalingKind
from pools.services.joining import (
    JOIN_REJECTED,
    MachineReport,
    check_no_other_pool,
    has_changed,
    store_machine,
)
from pools.services.ssh.hosts import CONFLICT


def join_host(pool_name: str, host_version: tuple[int, int], measured: MachineReport, at: datetime) -> str:
    """Register the machine under the host's name, and return its agent's secret.

    Raises Unauthenticated for an expired token, and Conflict for a machine that is registered in another pool
    or under another name.
    """
    key, version = host_version
    try:
        return _join(pool_name, host_version, measured, at)
    except Conflict as error:
        _record_conflict(key, version, str(error), at)
        raise


def _join(pool_name: str, host_version: tuple[int, int], measured: MachineReport, at: datetime) -> str:
    key, version = host_version
    with transaction.atomic():
        hosts = SshHost.objects.select_for_update(of=("self",)).select_related("pool", "machine")
        host = hosts.filter(pk=key, join_version=version, pool__name=pool_name, removed_at=None).first()
        if host is None:
            raise Unauthenticated(JOIN_REJECTED)
        measured = replace(measured, name=host.name)
        former = _former_machine(host, measured, at)
        if former is not None and has_changed(former, measured):
            # Once a machine use has ended, its node is marked as lost.
            MachineUse.objects.filter(machine=former, ended_at=None).update(ended_at=at)
        machine = store_machine(former or Machine(pool=host.pool), measured, at)
        SshHost.objects.filter(pk=host.pk).update(machine=machine)
        SshHost.objects.filter(pk=host.pk, problem=CONFLICT).update(
            problem="", message="", failures=0, retry_at=None
        )
        action = "joined" if former is None else "joined again"
        gpus = format_count(len(measured.devices), "GPU")
        reason = f"{host.name} {action} with {gpus}, as an SSH host"
        history.write(host.pool, ScalingKind.JOINED, reason, at=at, machine=host.name)
    return secrets.machine_secret(machine.pk, machine.secret_version)


def _record_conflict(key: int, version: int, reason: str, at: datetime) -> None:
    """Store why the machine was rejected, and postpone the agent's next installation."""
    with transaction.atomic():
        hosts = SshHost.objects.select_for_update(of=("self",)).select_related("pool")
        host = hosts.filter(pk=key, join_version=version, removed_at=None).first()
        if host is None or (host.problem == CONFLICT and host.message == reason):
            return
        host.problem, host.message, host.failures = CONFLICT, reason, host.failures + 1
        host.retry_at = at + retry_delay(host.failures)
        host.save(update_fields=["problem", "message", "failures", "retry_at"])
        history.write(host.pool, ScalingKind.ERROR, f"host {host.name}: {reason}", at=at)


def _former_machine(host: SshHost, measured: MachineReport, at: datetime) -> Machine | None:
    """Return the row of the host's machine, or None if it is new.

    An earlier machine of the host is marked as departed. Raises Conflict if the machine belongs to another
    pool or host, or joined with a token.
    """
    check_no_other_pool(host.pool, measured)
    rows = Machine.objects.select_for_update(of=("self",)).select_related("pool")
    same = (
        rows.filter(pool=host.pool, machine_id=measured.machine_id).first() if measured.machine_id else None
    )
    if same is not None and same.departed_at is None and same.pk != host.machine_id:
        raise Conflict(
            f"This machine already belongs to pool {host.pool.name} as {same.name}. "
            "Remove one of the two hosts from the pool's settings."
        )
    if host.machine is not None and (same is None or same.pk != host.machine_id):
        if not measured.machine_id:
            return host.machine
        Machine.objects.filter(pk=host.machine.pk, departed_at=None).update(departed_at=at)
    return same
