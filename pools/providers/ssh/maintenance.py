"""Install, repair and uninstall the agents of SSH hosts, as decided by `pools.engine.ssh_hosts`."""

import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F
from django.db.models.functions import Coalesce

from pools import history
from pools.engine.ssh_hosts import RETRY_MAX, HostTask, next_task, retry_delay
from pools.joining import secrets
from pools.joining.package import agent_package
from pools.joining.server import ReachableServer, reachable_server
from pools.models import NodePool, SshHost
from pools.models.scaling import ScalingKind
from pools.providers.base import ProviderError
from pools.providers.ssh.endpoint import (
    ASYNCSSH_MISSING,
    SshError,
    SshErrorKind,
    Timeouts,
    fingerprint,
)
from pools.providers.ssh.task_runner import TaskOutcome, TaskRunner
from pools.services.ssh.hosts import CONFLICT, INSTALLING, settings_digest, to_engine_host
from pools.services.ssh.keys import PoolKeys

# A process that has not polled for this long was not the leader, so it has not seen the agents' reports.
UNWATCHED_AFTER = 300.0
OUTCOME_FIELDS = (
    "connected_at", "presented_key", "failures", "problem", "message", "retry_at", "applied", "facts",
)  # fmt: skip


@dataclass
class _WatchPeriod:
    since: float
    last: float


class SshMaintenance:
    """Maintain all pools' SSH hosts in steps that never wait for a host."""

    def __init__(
        self, now: Callable[[], datetime], installation: Callable[[], str], runner: TaskRunner,
        timeouts: Timeouts | None = None,
    ) -> None:  # fmt: skip
        self._now, self.installation, self._runner = now, installation, runner
        self._timeouts = timeouts or Timeouts()
        self._watches: dict[int, _WatchPeriod] = {}
        self._digests: dict[int, str] = {}

    def run_step(self, pool_name: str) -> None:
        """Store the outcomes of completed tasks, and start the tasks that are due."""
        pool = NodePool.objects.filter(name=pool_name).first()
        if pool is None:
            return
        rows = list(SshHost.objects.filter(pool=pool).select_related("machine", "pool"))
        outcomes = self._runner.collect_outcomes(frozenset(row.pk for row in rows))
        for row in rows:
            if row.pk in outcomes:
                self._record_outcome(row, outcomes[row.pk])
        watched_for = self._watch_duration(pool)
        if rows and not pool.paused:
            self._start_tasks(pool, [row for row in rows if row.pk is not None], watched_for)

    def _start_tasks(self, pool: NodePool, rows: Iterable[SshHost], watched_for: timedelta) -> None:
        keys, now = PoolKeys(pool), self._now()
        busy = self._runner.hosts_with_tasks()
        try:
            server: ReachableServer | ProviderError = reachable_server()
        except ProviderError as error:
            server = error
        for row in rows:
            reachable = server if isinstance(server, ReachableServer) else ReachableServer("", "", False)
            digest = settings_digest(row.settings, reachable.url, reachable.ca)
            view = to_engine_host(row, now, is_busy=row.pk in busy, applied=digest)
            task = next_task(view, now, watched_for=watched_for)
            if task is None:
                continue
            try:
                if task is HostTask.INSTALL and isinstance(server, ProviderError):
                    raise SshError(SshErrorKind.UNSUITABLE, server.message)
                self._start(row, task, keys, reachable, digest)
            except SshError as error:
                self._record_outcome(row, TaskOutcome(task, error=error))

    def _start(
        self, row: SshHost, task: HostTask, keys: PoolKeys, server: ReachableServer, digest: str
    ) -> None:
        if task is HostTask.FORGET:
            row.delete()
            return
        endpoint = keys.endpoint(row.settings)
        tasks = _import_tasks()
        home, installation = row.settings["home"], self.installation()
        coroutine: Coroutine[Any, Any, Any]
        if task is HostTask.SCAN:
            coroutine = tasks.scan(endpoint, self._timeouts)
        elif task is HostTask.UNINSTALL:
            coroutine = tasks.uninstall(endpoint, home, installation, self._timeouts)
        else:
            if not self._begin_installation(row):
                return
            env = {
                **row.settings["env"], "BERTH_URL": server.url, "BERTH_POOL": row.pool.name,
                "BERTH_JOIN_TOKEN": secrets.host_join_token(row.pk, row.join_version),
                "BERTH_MACHINE_STATE": home, "BERTH_INSTALLATION": installation,
                **({"BERTH_PLAIN_HTTP": "1"} if server.plain_http else {}),
            }  # fmt: skip
            order = tasks.Installation(home, agent_package(), env, server.ca)
            self._digests[row.pk] = digest
            coroutine = tasks.install(endpoint, order, installation, self._timeouts)
        self._runner.start(row.pk, task, coroutine)

    def _begin_installation(self, row: SshHost) -> bool:
        """Record the start of an installation, and revoke earlier join tokens.

        Return False if the host has just been removed.
        """
        fresh = SshHost.objects.filter(pk=row.pk, removed_at=None)
        began = fresh.update(
            join_version=F("join_version") + 1, touched_at=Coalesce(F("touched_at"), self._now()),
            problem=INSTALLING,
        )  # fmt: skip
        if began:
            row.refresh_from_db(fields=["join_version", "touched_at"])
        return bool(began)

    def _record_outcome(self, row: SshHost, outcome: TaskOutcome) -> None:
        now, error = self._now(), outcome.error
        if outcome.task is HostTask.UNINSTALL and error is None:
            reason = f"{row.name}: the agent was uninstalled"
            history.write(row.pool, ScalingKind.TERMINATE, reason, at=now, machine=row.name)
            row.delete()
            return
        former = row.message
        row.connected_at, row.presented_key = now, ""
        may_not_join = outcome.task is HostTask.INSTALL and row.problem == CONFLICT
        if error is not None and error.kind is SshErrorKind.COMMAND and may_not_join:
            pass  # the conflict recorded during this installation explains the failure
        elif error is not None:
            row.failures += 1
            row.problem, row.message = error.kind.value, error.message[:2000]
            row.presented_key, row.retry_at = error.presented, now + retry_delay(row.failures)
        elif outcome.task is HostTask.SCAN:
            row.failures, row.problem, row.retry_at = 0, SshErrorKind.HOST_KEY.value, now + RETRY_MAX
            row.presented_key = outcome.scanned_key
            row.message = f"the host key {fingerprint(outcome.scanned_key)} has not been accepted"
        else:
            # Keep a recorded conflict: the agent is installed, but the machine may not join.
            if row.problem != CONFLICT:
                row.failures, row.problem, row.message, row.retry_at = 0, "", "", None
            row.applied = self._digests.pop(row.pk, "")
            row.facts = outcome.facts.to_json() if outcome.facts else {}
        row.save(update_fields=OUTCOME_FIELDS)
        if row.message and row.message != former:
            history.write(row.pool, ScalingKind.ERROR, f"host {row.name}: {row.message}", at=now)

    def _watch_duration(self, pool: NodePool) -> timedelta:
        """Return how long this process has been watching the pool without a long interruption."""
        current = time.monotonic()
        watch = self._watches.get(pool.pk)
        longest = max(UNWATCHED_AFTER, 3.0 * pool.reconcile_tick)
        if watch is None or current - watch.last > longest:
            watch = self._watches[pool.pk] = _WatchPeriod(current, current)
        watch.last = current
        return timedelta(seconds=current - watch.since)


def _import_tasks() -> Any:
    """Return the `tasks` module.

    It is imported here, so that asyncssh is loaded only in processes that use it.
    """
    try:
        from pools.providers.ssh import tasks
    except ModuleNotFoundError as error:
        raise SshError(SshErrorKind.UNSUITABLE, ASYNCSSH_MISSING) from error
    return tasks
